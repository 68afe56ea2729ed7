//! Making a huge page where nobody has been yet.

use crate::error::LinuxError;
use crate::mappings::vm;
use crate::process::ProcessHandle;
use crate::remote_advice;
use hawkeye_policy::RegionAddr;
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
/// `EFAULT` nothing is mapped there, `ESRCH` gone, `EPERM` not ours to touch; what
/// [`remote_advice::collapse`] says.
pub fn fill(
    process: &ProcessHandle,
    region: RegionAddr,
    method: FillMethod,
) -> Result<(), LinuxError> {
    touch(process.id.pid, region.start())?;
    match method {
        FillMethod::Read => Ok(()),
        FillMethod::Collapse => remote_advice::collapse(process, region),
    }
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

    #[test]
    fn who_gets_huge_pages_at_faults_is_read() {
        assert_eq!(FillMethod::of(0, "always"), FillMethod::Read);
        assert_eq!(FillMethod::of(0, "madvise"), FillMethod::Collapse);
        assert_eq!(FillMethod::of(vm::HUGEPAGE, "madvise"), FillMethod::Read);
        assert_eq!(FillMethod::of(vm::HUGEPAGE, "never"), FillMethod::Collapse);
    }
}
