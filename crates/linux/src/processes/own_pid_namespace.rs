//! The pid namespace of this process. BPF programs see all processes of the machine, by the pids of
//! the first namespace.

use nix::sys::stat::{major, minor, stat};

/// A pid namespace that is not the machine's first, as BPF programs need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnPidNamespace {
    /// The device of its file, in the kernel's encoding.
    pub(crate) dev: u64,
    /// The inode of its file.
    pub(crate) ino: u64,
}

/// `PROC_PID_INIT_INO` (include/linux/proc_ns.h).
const FIRST: u64 = 0xeffffffc;

impl OwnPidNamespace {
    /// This process's namespace. `None` if it is the machine's first, where pids need no
    /// translation, or if it cannot be read.
    pub(crate) fn own_if_not_first() -> Option<Self> {
        let file = stat("/proc/self/ns/pid").ok()?;
        Self::nested_from_device_and_inode(file.st_dev, file.st_ino)
    }

    fn nested_from_device_and_inode(dev: u64, ino: u64) -> Option<Self> {
        // `MKDEV` (include/linux/kdev_t.h). The encoding in user space differs.
        let dev = (major(dev) << 20) | minor(dev);
        (ino != FIRST).then_some(Self { dev, ino })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_nested_pid_namespace_is_reported() {
        assert_eq!(OwnPidNamespace::nested_from_device_and_inode(4, FIRST), None);
        let own = OwnPidNamespace { dev: 4, ino: 4_026_532_000 };
        assert_eq!(OwnPidNamespace::nested_from_device_and_inode(4, own.ino), Some(own));
    }

    #[test]
    fn a_device_is_written_as_the_kernel_does() {
        let dev = nix::sys::stat::makedev(3, 0x1234);
        let told = OwnPidNamespace::nested_from_device_and_inode(dev, 1).map(|own| own.dev);
        assert_eq!(told, Some((3 << 20) | 0x1234));
    }
}
