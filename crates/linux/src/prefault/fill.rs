//! Making a huge page where nobody has been yet.

use crate::error::{LinuxError, Result};
use crate::processes::mappings::vm;
use crate::processes::process::ProcessHandle;
use crate::promote::target_call::{COLLAPSING, Request, TargetCalls};
use hawkeye_policy::{MAX_SHARED_PAGES, ProcessId, RegionAddr};
use nix::errno::Errno;

/// How a region is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FillMethod {
    /// A remote read faults a huge page in, as its owner's own fault would: other faults of the
    /// process go on meanwhile. Takes a mapping that gets huge pages at faults, and
    /// `use_zero_page` 0.
    Read,
    /// A remote read maps a base page, and the region is collapsed: on any mapping, but the process
    /// waits when it faults meanwhile.
    Collapse,
}

impl FillMethod {
    /// The one for a mapping with these `VM_*` bits while the `enabled` that decides says this.
    pub fn of(vma_flags: u64, enabled: &str) -> Self {
        let asked = vma_flags & vm::HUGEPAGE != 0;
        let at_faults = enabled == "always" || enabled == "madvise" && asked;
        if at_faults {
            Self::Read
        } else {
            Self::Collapse
        }
    }
}

/// Fills a region that nobody has touched: 2 MiB are zeroed, here and now.
///
/// # Errors
/// `EIO` nothing is mapped there or userfaultfd watches it, `ESRCH` gone, `EACCES` not ours to touch,
/// `EEXIST` its owner has written to it and shares it with a child; `NotAnswering` the call waits for
/// a lock of the process; what [`crate::promote::remote_advice::collapse`] says.
pub(super) fn fill(
    calls: &mut TargetCalls,
    process: &ProcessHandle,
    region: RegionAddr,
    method: FillMethod,
) -> Result<()> {
    calls.map_page(process, region.start())?;
    match method {
        FillMethod::Read => Ok(()),
        FillMethod::Collapse => {
            refuse_shared(calls, process.id, region)?;
            let range = region.start()..region.end();
            let request = Request::collapse(process, &range);
            calls.make(process.id, COLLAPSING, &request).map(drop)
        }
    }
}

/// The region was empty a moment ago. If its owner has written to it and forked since, a collapse
/// would copy what both share.
fn refuse_shared(calls: &mut TargetCalls, process: ProcessId, region: RegionAddr) -> Result<()> {
    let shared = calls.shared_pages(process, region)?;
    if shared.count() <= MAX_SHARED_PAGES {
        return Ok(());
    }
    Err(LinuxError::Call {
        call: "filling a region that is shared by now",
        errno: Errno::EEXIST,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::userfaultfd::{Mode, Userfaultfd};
    use hawkeye_policy::HUGE_PAGE_BYTES;
    use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
    use nix::sys::signal::{Signal, kill};
    use nix::sys::wait::waitpid;
    use nix::unistd::{ForkResult, Pid, fork, pause};
    use std::ffi::c_void;
    use std::num::NonZeroUsize;
    use std::process::Command;
    use std::ptr::NonNull;
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    #[test]
    fn what_a_fork_shares_meanwhile_is_not_filled() {
        let bytes = NonZeroUsize::new(2 * HUGE_PAGE_BYTES as usize).expect("it is not zero");
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let memory = unsafe { mmap_anonymous(None, bytes, protection, MapFlags::MAP_PRIVATE) };
        let memory = memory.expect("maps");
        let start = (memory.as_ptr() as u64).next_multiple_of(HUGE_PAGE_BYTES);
        let region = RegionAddr::containing(start);
        let mut calls = TargetCalls::default();
        let process = own();
        // Other tests of this program fork, too: their children share it for a moment.
        let mut becomes_private = || {
            let deadline = Instant::now() + Duration::from_secs(30);
            loop {
                let private = refuse_shared(&mut calls, process.id, region).is_ok();
                if private || Instant::now() >= deadline {
                    return private;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        assert!(becomes_private(), "it is empty");
        let offset = start as usize - memory.as_ptr() as usize;
        // SAFETY: the second half of the mapping at the latest, to which no reference exists.
        unsafe {
            let first = memory.cast::<u8>().add(offset);
            first.write_bytes(1, HUGE_PAGE_BYTES as usize);
        }
        assert!(becomes_private(), "it is private");
        // SAFETY: the child only waits for a signal.
        let child = match unsafe { fork() }.expect("forks") {
            ForkResult::Child => loop {
                pause();
            },
            ForkResult::Parent { child } => child,
        };
        let filled = fill(
            &mut TargetCalls::default(),
            &process,
            region,
            FillMethod::Collapse,
        );
        kill(child, Signal::SIGKILL).expect("kills");
        waitpid(child, None).expect("waits");
        let errno = filled.expect_err("it is shared").errno();
        assert_eq!(errno, Some(Errno::EEXIST));
        assert!(becomes_private(), "the child has ended");
        // SAFETY: the mapping made above, to which no reference is left.
        unsafe { munmap(memory, bytes.get()) }.expect("unmaps");
    }

    #[test]
    fn who_gets_huge_pages_at_faults_is_read() {
        assert_eq!(FillMethod::of(0, "always"), FillMethod::Read);
        assert_eq!(FillMethod::of(0, "madvise"), FillMethod::Collapse);
        assert_eq!(FillMethod::of(vm::HUGEPAGE, "madvise"), FillMethod::Read);
        assert_eq!(FillMethod::of(vm::HUGEPAGE, "never"), FillMethod::Collapse);
    }

    /// Two whole regions of this process that nothing has touched; unmapped when dropped.
    struct Untouched(NonNull<c_void>);

    const LENGTH: usize = 4 * HUGE_PAGE_BYTES as usize;

    impl Untouched {
        fn new() -> Self {
            let length = LENGTH.try_into().expect("not 0");
            let both = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
            // SAFETY: a new mapping, at an address that the kernel chooses.
            let memory = unsafe { mmap_anonymous(None, length, both, MapFlags::MAP_PRIVATE) };
            Self(memory.expect("maps"))
        }

        fn region(&self) -> RegionAddr {
            RegionAddr::containing(self.0.as_ptr() as u64 + 2 * HUGE_PAGE_BYTES)
        }
    }

    impl Drop for Untouched {
        fn drop(&mut self) {
            // SAFETY: it was mapped above, and nothing refers to it.
            unsafe { munmap(self.0, LENGTH) }.expect("unmaps");
        }
    }

    fn own() -> ProcessHandle {
        ProcessHandle::open(std::process::id()).expect("opens")
    }

    #[test]
    fn a_fill_does_not_wait_for_a_userfaultfd_that_nobody_answers() {
        let memory = Untouched::new();
        let region = memory.region();
        let range = region.start()..region.end();
        // Faults inside the kernel take root.
        let Ok(watcher) = Userfaultfd::open(false) else {
            return;
        };
        watcher
            .register(range.clone(), Mode::Missing)
            .expect("registers");
        let (tell, told) = mpsc::channel();
        let filling = std::thread::spawn(move || {
            let mut calls = TargetCalls::default();
            let _ = tell.send(fill(&mut calls, &own(), region, FillMethod::Read));
        });
        let filled = told.recv_timeout(Duration::from_secs(20));
        let reported = watcher.next_fault();
        watcher.unregister(range).expect("unregisters");
        filling.join().expect("ends");
        let refused = filled.expect("the fill comes back").expect_err("fails");
        assert_eq!(refused.errno(), Some(Errno::EIO), "{refused}");
        assert_eq!(reported, Ok(None), "the monitor was not asked");
    }

    #[test]
    fn a_process_that_got_the_pid_of_the_right_one_is_not_touched() {
        let memory = Untouched::new();
        let mut right = Command::new("sleep").arg("60").spawn().expect("starts");
        let handle = ProcessHandle::open(right.id()).expect("opens");
        right.kill().expect("is killed");
        right.wait().expect("ends");
        // A fork with the same memory, untouched. It takes CAP_CHECKPOINT_RESTORE.
        let Some(stranger) = fork_as(handle.id.pid) else {
            return;
        };
        let region = memory.region();
        let mut calls = TargetCalls::default();
        let refused = fill(&mut calls, &handle, region, FillMethod::Collapse);
        let range = region.start()..region.end();
        let found = crate::sample::pagemap::population(handle.id.pid, &[range]);
        kill(stranger, Signal::SIGKILL).expect("is our child");
        waitpid(stranger, None).expect("ends");
        assert!(
            refused.as_ref().is_err_and(LinuxError::is_gone),
            "{refused:?}"
        );
        assert_eq!(found.expect("reads"), []);
    }

    /// Forks a child that waits, with this pid; `None` where pids can't be chosen.
    fn fork_as(pid: u32) -> Option<Pid> {
        // struct clone_args: flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size
        let pids = [pid];
        let mut clone = [0u64; 10];
        clone[4] = libc::SIGCHLD as u64;
        clone[8] = pids.as_ptr() as u64;
        clone[9] = 1;
        // SAFETY: without flags this is a fork; the child makes two system calls only.
        match unsafe { libc::syscall(libc::SYS_clone3, clone.as_ptr(), size_of_val(&clone)) } {
            0 => loop {
                // SAFETY: as above.
                unsafe { libc::pause() };
            },
            child => (child > 0).then(|| Pid::from_raw(child as i32)),
        }
    }
}
