//! Short calls that hold a lock of the program's: others must not take the CPU away in the middle of one.

/// Runs a call of a millisecond or two ahead of all ordinary threads (`SCHED_FIFO`), where that is allowed.
///
/// On a busy machine a thread that loses its CPU while it holds a process's `mmap_lock` holds that process up for as long
/// as it waits: 6 ms and more were seen. What the thread does before and after has its usual priority.
///
/// The priority is the lowest real-time one: all other real-time threads preempt the call, but for those of the same
/// priority that may run on no other CPU. These wait for it, a millisecond or two.
pub fn unpreempted<T>(call: impl FnOnce() -> T) -> T {
    let _usual = Usual::replaced();
    call()
}

/// The usual scheduling of this thread, taken up again when this is dropped.
struct Usual {
    policy: i32,
    priority: libc::sched_param,
}

impl Usual {
    /// `None` where nothing was changed.
    fn replaced() -> Option<Self> {
        let mut priority = libc::sched_param { sched_priority: 0 };
        // SAFETY: plain system calls on this thread; `priority` is ours and lives through them.
        let policy = unsafe {
            libc::sched_getparam(0, &raw mut priority);
            libc::sched_getscheduler(0)
        };
        (policy >= 0 && set(libc::SCHED_FIFO, libc::sched_param { sched_priority: 1 }))
            .then_some(Self { policy, priority })
    }
}

impl Drop for Usual {
    fn drop(&mut self) {
        if !set(self.policy, self.priority) {
            tracing::warn!("the manager's own priority could not be put back");
        }
    }
}

fn set(policy: i32, priority: libc::sched_param) -> bool {
    // SAFETY: a plain system call on this thread, which only reads `priority`.
    unsafe { libc::sched_setscheduler(0, policy, &raw const priority) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> i32 {
        // SAFETY: a plain system call without pointers.
        unsafe { libc::sched_getscheduler(0) }
    }

    #[test]
    fn the_priority_is_as_before_afterwards() {
        let before = policy();
        let within = unpreempted(policy);
        assert!(within == libc::SCHED_FIFO || within == before);
        assert_eq!(policy(), before);
    }
}
