//! Makes a huge page in a region that nothing has touched, or that its program began to touch.

use crate::error::{LinuxError, Result};
use crate::processes::mappings::vm;
use crate::processes::process::ProcessHandle;
use crate::promote::reserve::RESERVE;
use crate::promote::target_call::{CallHelperPool, TargetRequest};
use hawkeye_policy::{MAX_SHARED_PAGES, RegionAddr};
use nix::errno::Errno;

/// How a region is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefaultMethod {
    /// A remote read faults in a huge page, as the owner's own fault would. Other faults of the
    /// process go on meanwhile. It requires a mapping that gets huge pages at faults, and
    /// `use_zero_page` 0.
    Read,
    /// A remote read maps a base page, and the region is then collapsed. It works on any mapping,
    /// but faults of the process wait meanwhile.
    Collapse,
}

impl PrefaultMethod {
    /// The method for a mapping with these `VM_*` bits. `enabled` is the value of the THP setting
    /// that applies, and `zero_page` that of `use_zero_page`. `None`: a remote read would map the
    /// huge zero page, and the program's own faults give huge pages.
    pub fn for_mapping(vma_flags: u64, enabled: &str, zero_page: bool) -> Option<Self> {
        let asked = vma_flags & vm::HUGEPAGE != 0;
        let at_faults = enabled == "always" || enabled == "madvise" && asked;
        match (at_faults, zero_page) {
            (true, true) => None,
            (true, false) => Some(Self::Read),
            (false, _) => Some(Self::Collapse),
        }
    }
}

/// Fills a region that nothing has touched; by `Collapse` also one that its program has
/// touched. The calling thread waits while 2 MiB are zeroed.
///
/// # Errors
/// - `EIO`: nothing is mapped there, or userfaultfd watches it.
/// - `ESRCH`: the process has ended.
/// - `EACCES`: this process may not touch it.
/// - `EEXIST`: the owner has written to the region and shares it with a child.
/// - `NotAnswering`: the call waits for a lock of the process.
/// - The errors of [`CallHelperPool::collapse`].
pub(super) fn prefault_region(
    calls: &mut CallHelperPool,
    process: &ProcessHandle,
    region: RegionAddr,
    method: PrefaultMethod,
) -> Result<()> {
    calls.map_page_by_reading(process, region.start(), method == PrefaultMethod::Read)?;
    if method == PrefaultMethod::Collapse {
        // If its owner has written to the region and forked, a collapse would copy what both share.
        if calls.find_shared_pages_of_region(process.id, region)?.count() > MAX_SHARED_PAGES {
            let refused = LinuxError::wrap_errno("filling a region that is shared by now");
            return Err(refused(Errno::EEXIST));
        }
        let request = TargetRequest::for_collapse(process, region);
        calls.call_target(process.id, &request.on_cpu(RESERVE.give_back_page()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::anonymous_mapping::AnonymousMapping;
    use crate::probe::userfaultfd_handle::{UserfaultfdHandle, WatchMode};
    use crate::promote::stuck_target::ended_child;
    use hawkeye_policy::HUGE_PAGE_BYTES;
    use nix::sys::signal::{Signal, kill};
    use nix::sys::wait::waitpid;
    use nix::unistd::{ForkResult, Pid, fork, pause};
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    #[test]
    fn memory_shared_by_a_fork_is_not_filled() {
        let (memory, region) = untouched();
        let mut calls = CallHelperPool::default();
        let process = own();
        // Other tests of this program fork too, and their children share the memory for a moment.
        let mut becomes_private = || {
            let deadline = Instant::now() + Duration::from_secs(30);
            loop {
                let shared = calls.find_shared_pages_of_region(process.id, region);
                let private = shared.is_ok_and(|shared| shared.count() <= MAX_SHARED_PAGES);
                if private || Instant::now() >= deadline {
                    return private;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        assert!(becomes_private(), "an untouched region is private");
        let offset = (region.start() - memory.address()) as usize;
        // SAFETY: within the mapping, to which no reference exists.
        unsafe {
            let first = memory.start().cast::<u8>().add(offset);
            first.write_bytes(1, HUGE_PAGE_BYTES as usize);
        }
        assert!(becomes_private(), "a written region is private");
        // SAFETY: the child only waits for a signal.
        let child = match unsafe { fork() }.expect("fork succeeds") {
            ForkResult::Child => loop {
                pause();
            },
            ForkResult::Parent { child } => child,
        };
        // The helper is a fork as well, and ends here.
        let fill =
            |mut calls| prefault_region(&mut calls, &process, region, PrefaultMethod::Collapse);
        let filled = fill(CallHelperPool::default());
        kill(child, Signal::SIGKILL).expect("the child can be killed");
        waitpid(child, None).expect("the child ends");
        let errno = filled.expect_err("a shared region is refused").errno();
        assert_eq!(errno, Some(Errno::EEXIST));
        let again = becomes_private();
        assert!(again, "without the child the region is private");
    }

    #[test]
    fn a_region_that_is_touched_keeps_its_contents() {
        let (memory, region) = untouched();
        let offset = (region.start() - memory.address()) as usize;
        // SAFETY: within the mapping, to which no reference exists.
        let page = |n: usize| unsafe { memory.start().cast::<u8>().add(offset + n * 4096) };
        let pages = [3, 4, 511];
        for n in pages {
            // SAFETY: the address is in the mapping, as above.
            unsafe { page(n).write_volatile(n as u8) };
        }
        let mut calls = CallHelperPool::default();
        // Other tests fork meanwhile. A region that is shared at that moment is refused.
        let filled = (0..1000).any(|_| {
            let method = PrefaultMethod::Collapse;
            let filled = prefault_region(&mut calls, &own(), region, method).is_ok();
            if !filled {
                std::thread::sleep(Duration::from_millis(10));
            }
            filled
        });
        assert!(filled, "a region with some base pages becomes huge");
        let range = region.start()..region.end();
        let found = crate::sample::pagemap::read_population(std::process::id(), &[range]);
        let found = found.expect("the own memory can be read");
        assert!(found.iter().any(|found| found.is_huge()), "{found:?}");
        // SAFETY: as above.
        let kept = pages.map(|n| unsafe { page(n).read_volatile() });
        assert_eq!(kept, pages.map(|n| n as u8));
    }

    #[test]
    fn the_thp_settings_for_page_faults_are_read() {
        let (read, collapse) = (Some(PrefaultMethod::Read), Some(PrefaultMethod::Collapse));
        for (flags, enabled, with_zero_page, without) in [
            (0, "always", None, read),
            (0, "madvise", collapse, collapse),
            (vm::HUGEPAGE, "madvise", None, read),
            (vm::HUGEPAGE, "never", collapse, collapse),
        ] {
            let method = |zero_page| PrefaultMethod::for_mapping(flags, enabled, zero_page);
            assert_eq!(method(true), with_zero_page, "{enabled}");
            assert_eq!(method(false), without, "{enabled}");
        }
    }

    /// Memory of this process with a whole region that nothing has touched.
    fn untouched() -> (AnonymousMapping, RegionAddr) {
        let memory =
            AnonymousMapping::map(4 * HUGE_PAGE_BYTES as usize).expect("memory can be mapped");
        let region = RegionAddr::containing(memory.address() + 2 * HUGE_PAGE_BYTES);
        (memory, region)
    }

    fn own() -> ProcessHandle {
        ProcessHandle::open(std::process::id()).expect("this process exists")
    }

    #[test]
    fn a_fill_does_not_wait_for_an_unanswered_userfaultfd() {
        let (_memory, region) = untouched();
        let range = region.start()..region.end();
        // Watching faults inside the kernel requires root.
        let Ok(watcher) = UserfaultfdHandle::open(false) else {
            return;
        };
        let registered = watcher.register(range.clone(), WatchMode::Missing);
        registered.expect("the range can be registered");
        let (tell, told) = mpsc::channel();
        let filling = std::thread::spawn(move || {
            let mut calls = CallHelperPool::default();
            let filled = prefault_region(&mut calls, &own(), region, PrefaultMethod::Read);
            let _ = tell.send(filled);
        });
        let filled = told.recv_timeout(Duration::from_secs(20));
        let reported = watcher.next_fault_address();
        let unregistered = watcher.unregister(range);
        unregistered.expect("the range can be unregistered");
        filling.join().expect("the thread ends");
        let refused = filled.expect("it returns").expect_err("it is refused");
        assert_eq!(refused.errno(), Some(Errno::EIO), "{refused}");
        assert_eq!(reported, Ok(None), "the monitor gets no request");
    }

    #[test]
    fn a_process_with_a_reused_pid_is_not_touched() {
        let (_memory, region) = untouched();
        let handle = ended_child();
        // A fork with the same memory, untouched. It requires CAP_CHECKPOINT_RESTORE.
        let Some(stranger) = fork_as(handle.id.pid) else {
            return;
        };
        let mut calls = CallHelperPool::default();
        let refused = prefault_region(&mut calls, &handle, region, PrefaultMethod::Collapse);
        let range = region.start()..region.end();
        let found = crate::sample::pagemap::read_population(handle.id.pid, &[range]);
        kill(stranger, Signal::SIGKILL).expect("the child can be killed");
        waitpid(stranger, None).expect("the child ends");
        assert!(refused.is_err_and(|error| error.is_process_gone()));
        let found = found.expect("the memory of the other process can be read");
        assert_eq!(found, []);
    }

    /// Forks a waiting child with this pid; `None` where a pid cannot be chosen.
    fn fork_as(pid: u32) -> Option<Pid> {
        // struct clone_args: flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size,
        // tls, set_tid, set_tid_size
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
