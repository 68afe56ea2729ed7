//! The file systems that a process sees.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::str::FromStr;

/// Bytes of `mountinfo` that are read at most. Any user can mount, below long paths.
const MOST_MOUNTINFO_BYTES: u64 = 16 << 20;

/// The types of the file systems that a process sees, by device (major, minor).
#[derive(Clone, Debug, Default)]
pub struct MountedFileSystems(HashMap<(i32, i32), String>);

impl MountedFileSystems {
    /// The mounts of a process, in its own mount namespace. Those that cannot be read, or that
    /// follow after 16 MiB, are left out.
    pub fn of_process(pid: u32) -> Self {
        Self::parse(&read_mountinfo(pid))
    }

    /// Any user can mount a file system with a name that is no text.
    pub(crate) fn parse(mountinfo: &[u8]) -> Self {
        let text = String::from_utf8_lossy(mountinfo);
        Self(text.lines().filter_map(device_and_type).collect())
    }

    /// The type of the file system on a device, such as `ext4`. `None`: it is not mounted there, or
    /// its files have devices of their own (btrfs).
    pub fn type_of(&self, device: (i32, i32)) -> Option<&str> {
        self.0.get(&device).map(String::as_str)
    }

    /// Whether the file system on a device is a tmpfs.
    pub fn is_tmpfs(&self, device: (i32, i32)) -> bool {
        self.type_of(device) == Some("tmpfs")
    }
}

/// The device (major, minor) of the file system of a mount, by the mount's id in `fdinfo`. `None`:
/// it is not visible to this process.
pub(crate) fn device_of_own_mount(id: u64) -> Option<(u64, u64)> {
    let mountinfo = read_mountinfo(std::process::id());
    device_of_mount(&mountinfo, id)
}

fn device_of_mount(mountinfo: &[u8], id: u64) -> Option<(u64, u64)> {
    let text = String::from_utf8_lossy(mountinfo);
    let has_id = |line: &&str| line.split(' ').next().is_some_and(|it| it.parse::<u64>() == Ok(id));
    text.lines().find(has_id).and_then(device_of_line)
}

fn read_mountinfo(pid: u32) -> Vec<u8> {
    let mut text = Vec::new();
    if let Ok(file) = File::open(format!("/proc/{pid}/mountinfo")) {
        // An error leaves what was read before it.
        let _ = file.take(MOST_MOUNTINFO_BYTES).read_to_end(&mut text);
    }
    text
}

/// The device and the type in a line of `mountinfo` (proc_pid_mountinfo(5)).
fn device_and_type(line: &str) -> Option<((i32, i32), String)> {
    let (mount, file_system) = line.split_once(" - ")?;
    Some((device_of_line(mount)?, file_system.split(' ').next()?.to_owned()))
}

fn device_of_line<N: FromStr>(line: &str) -> Option<(N, N)> {
    let (major, minor) = line.split(' ').nth(2)?.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTINFO: &[u8] = b"36 35 0:27 / /dev/shm rw,nosuid shared:3 - tmpfs tmpfs rw\n\
        37 35 0:99 / /tmp/\xff\xfe rw - fuse.x x rw\n\
        38 35 0:30 / /tmp/\xff rw - tmpfs \xff rw\n\
        39 35 no device - tmpfs\n\
        \n40";

    #[test]
    fn a_mount_is_found_by_its_id() {
        let devices = [38, 39, 40, 41].map(|id| device_of_mount(MOUNTINFO, id));
        assert_eq!(devices, [Some((0, 30)), None, None, None]);
    }

    #[test]
    fn mounts_are_read_whatever_their_names_are() {
        let mounts = MountedFileSystems::parse(MOUNTINFO);
        let types = [(0, 27), (0, 99), (0, 30), (0, 1)].map(|device| mounts.type_of(device));
        assert_eq!(types, [Some("tmpfs"), Some("fuse.x"), Some("tmpfs"), None]);
        assert!(mounts.is_tmpfs((0, 27)) && !mounts.is_tmpfs((0, 99)) && !mounts.is_tmpfs((0, 1)));
    }
}
