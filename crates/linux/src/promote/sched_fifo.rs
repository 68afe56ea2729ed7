//! Short calls that hold a lock of the program's: the thread must not lose its CPU in the middle.

/// Runs a call of a millisecond or two ahead of all ordinary threads (`SCHED_FIFO`), where that is
/// allowed.
///
/// On a busy machine a thread can lose its CPU while it holds a process's `mmap_lock`. It then
/// holds that process up for as long as it waits: 6 ms and more were seen. Before and after the
/// call the thread has its usual priority.
///
/// The priority is the lowest real-time one, so other real-time threads preempt the call. Threads
/// of the same priority that may run on no other CPU wait for it, a millisecond or two.
pub fn run_with_sched_fifo<T>(call: impl FnOnce() -> T) -> T {
    let usual = ThreadScheduling::of_this_thread();
    let is_set = ThreadScheduling::FIFO.set_for_this_thread();
    let _usual = is_set.then(|| SchedulingRestoreGuard(usual));
    call()
}

/// The usual scheduling of this thread, restored on drop.
struct SchedulingRestoreGuard(ThreadScheduling);

impl Drop for SchedulingRestoreGuard {
    fn drop(&mut self) {
        if !self.0.set_for_this_thread() {
            tracing::warn!("the manager's own scheduling priority could not be restored");
        }
    }
}

/// How a thread is scheduled. It makes plain system calls, because a helper process uses it too.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ThreadScheduling {
    policy: i32,
    priority: i32,
}

impl ThreadScheduling {
    /// Ahead of all ordinary threads.
    pub(crate) const FIFO: Self = Self { policy: libc::SCHED_FIFO, priority: 1 };

    /// The usual scheduling of a thread that was just forked. Its maker may be in the middle of a
    /// call under [`Self::FIFO`], which is no usual scheduling.
    pub(crate) fn usual_after_fork() -> Self {
        const ORDINARY: ThreadScheduling =
            ThreadScheduling { policy: libc::SCHED_OTHER, priority: 0 };
        let inherited = Self::of_this_thread();
        let usual = if inherited == Self::FIFO { ORDINARY } else { inherited };
        usual.set_for_this_thread();
        usual
    }

    pub(crate) fn of_this_thread() -> Self {
        let mut priority = libc::sched_param { sched_priority: 0 };
        // SAFETY: `priority` is ours and lives through the calls.
        let policy = unsafe {
            libc::sched_getparam(0, &raw mut priority);
            libc::sched_getscheduler(0)
        };
        Self { policy: policy.max(libc::SCHED_OTHER), priority: priority.sched_priority }
    }

    /// Sets it for this thread; returns whether that was allowed. If not, nothing changes.
    pub(crate) fn set_for_this_thread(self) -> bool {
        let priority = libc::sched_param { sched_priority: self.priority };
        // SAFETY: `priority` is ours and lives through the call.
        unsafe { libc::sched_setscheduler(0, self.policy, &raw const priority) == 0 }
    }
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
        let within = run_with_sched_fifo(policy);
        assert!(within == libc::SCHED_FIFO || within == before);
        assert_eq!(policy(), before);
    }
}
