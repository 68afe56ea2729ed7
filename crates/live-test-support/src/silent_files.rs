//! A file system with one file, which never answers a read (FUSE, by its own protocol:
//! include/uapi/linux/fuse.h).

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;

const ROOT: u64 = 1;
const THE_FILE: u64 = 2;
const BYTES: u64 = 1 << 20;

/// The mounted file system. When it is dropped, whatever waits for it gets an error.
pub struct SilentFiles {
    folder: PathBuf,
    server: Option<JoinHandle<()>>,
}

impl SilentFiles {
    /// Mounts it on a new folder.
    ///
    /// # Errors
    /// The reason why this machine has no FUSE.
    pub fn mount(folder: &Path) -> Result<Self, String> {
        let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
        let device = device.map_err(|error| format!("no FUSE here: {error}"))?;
        fs::create_dir(folder).map_err(|error| error.to_string())?;
        let fd = device.as_raw_fd();
        let options = format!("fd={fd},rootmode=40000,user_id=0,group_id=0");
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        let mounted = mount(Some("silent"), folder, Some("fuse"), flags, Some(&*options));
        mounted.map_err(|errno| format!("no FUSE can be mounted here: {errno}"))?;
        Ok(Self {
            folder: folder.to_owned(),
            server: Some(std::thread::spawn(move || serve(device))),
        })
    }

    /// Path of the file that can't be read.
    pub fn file(&self) -> PathBuf {
        self.folder.join("file")
    }
}

impl Drop for SilentFiles {
    fn drop(&mut self) {
        // Aborts the connection, which ends everything that waits for an answer.
        let _ = umount2(&self.folder, MntFlags::MNT_FORCE);
        let _ = umount2(&self.folder, MntFlags::MNT_DETACH);
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
    }
}

/// Answers every request except reads, until the file system is unmounted.
fn serve(mut device: File) {
    let mut request = vec![0u8; 1 << 20];
    loop {
        let Ok(length) = device.read(&mut request) else {
            return;
        };
        let word = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().expect("4 bytes"));
        let long = |at: usize| u64::from_ne_bytes(request[at..at + 8].try_into().expect("8 bytes"));
        if length < 40 {
            return;
        }
        let (code, unique, node) = (word(4), long(8), long(16));
        let answer = match code {
            FORGET | BATCH_FORGET | READ | INTERRUPT => continue,
            INIT => Ok(init()),
            LOOKUP if node == ROOT => Ok(entry()),
            GETATTR => Ok([vec![0; 16], attributes(node)].concat()),
            OPEN => Ok(vec![0; 16]),
            _ => Err(libc::ENOSYS),
        };
        let (error, body) = match answer {
            Ok(body) => (0, body),
            Err(errno) => (-errno, Vec::new()),
        };
        let length = 16 + body.len() as u32;
        let head = [length.to_ne_bytes(), error.to_ne_bytes()].concat();
        let packet = [head, unique.to_ne_bytes().to_vec(), body].concat();
        // The process that asked may have been interrupted.
        let _ = device.write_all(&packet);
    }
}

/// A structure of `bytes` bytes with each field at its offset; all other bytes are 0.
fn structure(bytes: usize, fields: &[(usize, &[u8])]) -> Vec<u8> {
    let mut body = vec![0; bytes];
    for (at, field) in fields {
        body[*at..at + field.len()].copy_from_slice(field);
    }
    body
}

/// struct fuse_init_out: version 7.31, no options.
fn init() -> Vec<u8> {
    let version = [7u32.to_ne_bytes(), 31u32.to_ne_bytes()].concat();
    // max_background, congestion_threshold; max_write.
    let queue = [16u16.to_ne_bytes(), 12u16.to_ne_bytes()].concat();
    structure(64, &[(0, &version), (16, &queue), (20, &4096u32.to_ne_bytes())])
}

/// struct fuse_entry_out: the file, whatever name was asked for.
fn entry() -> Vec<u8> {
    let body = structure(40, &[(0, &THE_FILE.to_ne_bytes())]);
    [body, attributes(THE_FILE)].concat()
}

fn attributes(node: u64) -> Vec<u8> {
    let mode: u32 = if node == ROOT { 0o040_755 } else { 0o100_444 };
    let sizes = [node, BYTES, BYTES / 512].map(u64::to_ne_bytes).concat();
    let mode_and_links = [mode, 1].map(u32::to_ne_bytes).concat();
    structure(88, &[(0, &sizes), (60, &mode_and_links)])
}
