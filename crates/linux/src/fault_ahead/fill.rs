//! Making a huge page where nobody has been yet.

use crate::error::LinuxError;
use crate::mappings::vm;
use crate::process::ProcessHandle;
use crate::remote_advice;
use crate::shared_pages::SharedPages;
use hawkeye_policy::{MAX_SHARED_PAGES, RegionAddr};
use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use std::io::IoSliceMut;

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
/// `EFAULT` nothing is mapped there, `ESRCH` gone, `EPERM` not ours to touch, `EEXIST` its owner
/// has written to it and shares it with a child; what [`remote_advice::collapse`] says.
pub fn fill(
    process: &ProcessHandle,
    region: RegionAddr,
    method: FillMethod,
) -> Result<(), LinuxError> {
    touch(process.id.pid, region.start())?;
    match method {
        FillMethod::Read => Ok(()),
        FillMethod::Collapse => {
            refuse_shared(process.id.pid, region)?;
            remote_advice::collapse(process, region)
        }
    }
}

/// The region was empty a moment ago. If its owner has written to it and forked since, a collapse
/// would copy what both share.
fn refuse_shared(pid: u32, region: RegionAddr) -> Result<(), LinuxError> {
    let shared = SharedPages::open(pid)?.in_region(region)?;
    if shared.count() <= MAX_SHARED_PAGES {
        return Ok(());
    }
    Err(LinuxError::Call {
        call: "filling a region that is shared by now",
        errno: Errno::EEXIST,
    })
}

/// Reads a byte of another process, and leaves it.
fn touch(pid: u32, address: u64) -> Result<(), LinuxError> {
    let mut byte = [0u8];
    let from = RemoteIoVec {
        base: address as usize,
        len: 1,
    };
    let failed = |errno| LinuxError::Call {
        call: "reading ahead of a process",
        errno,
    };
    match process_vm_readv(
        Pid::from_raw(pid as i32),
        &mut [IoSliceMut::new(&mut byte)],
        &[from],
    ) {
        Ok(1) => Ok(()),
        Ok(_) => Err(failed(Errno::EFAULT)),
        Err(errno) => Err(failed(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_policy::HUGE_PAGE_BYTES;
    use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
    use nix::sys::signal::{Signal, kill};
    use nix::sys::wait::waitpid;
    use nix::unistd::{ForkResult, fork, pause};
    use std::num::NonZeroUsize;

    #[test]
    fn what_a_fork_shares_meanwhile_is_not_filled() {
        let bytes = NonZeroUsize::new(2 * HUGE_PAGE_BYTES as usize).expect("it is not zero");
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let memory = unsafe { mmap_anonymous(None, bytes, protection, MapFlags::MAP_PRIVATE) };
        let memory = memory.expect("maps");
        let start = (memory.as_ptr() as u64).next_multiple_of(HUGE_PAGE_BYTES);
        let region = RegionAddr::containing(start);
        let pid = std::process::id();
        assert!(refuse_shared(pid, region).is_ok(), "it is empty");
        let offset = start as usize - memory.as_ptr() as usize;
        // SAFETY: the second half of the mapping at the latest, to which no reference exists.
        unsafe {
            let first = memory.cast::<u8>().add(offset);
            first.write_bytes(1, HUGE_PAGE_BYTES as usize);
        }
        assert!(refuse_shared(pid, region).is_ok(), "it is private");
        // SAFETY: the child only waits for a signal.
        let child = match unsafe { fork() }.expect("forks") {
            ForkResult::Child => loop {
                pause();
            },
            ForkResult::Parent { child } => child,
        };
        let process = ProcessHandle::open(pid).expect("opens");
        let filled = fill(&process, region, FillMethod::Collapse);
        kill(child, Signal::SIGKILL).expect("kills");
        waitpid(child, None).expect("waits");
        let errno = filled.expect_err("it is shared").errno();
        assert_eq!(errno, Some(Errno::EEXIST));
        assert!(refuse_shared(pid, region).is_ok(), "the child has ended");
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
}
