//! A process that holds its `mmap_lock` indefinitely, and one that has ended, for tests.

use crate::anonymous_mapping::AnonymousMapping;
use crate::processes::process::ProcessHandle;
use hawkeye_live_test_support::silent_files::SilentFiles;
use hawkeye_policy::saturating_cast::usize_from_u64;
use hawkeye_policy::{HUGE_PAGE_BYTES, RegionAddr};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A child that reads its own memory where a file is mapped of which no read is answered. This
/// process has the same memory at the same addresses. Both have touched only the first page.
pub(crate) struct StuckTarget {
    pub(crate) handle: Arc<ProcessHandle>,
    child: Pid,
    memory: AnonymousMapping,
    files: Option<SilentFiles>,
    folder: PathBuf,
}

impl StuckTarget {
    /// Returns `None` where nothing can be mounted.
    pub(crate) fn start() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("hawkeye-silent-{}-{count}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let files = SilentFiles::mount(&folder).ok()?;
        let file =
            CString::new(files.file().as_os_str().as_bytes()).expect("the path has no NUL byte");
        let memory = AnonymousMapping::map(8 * usize_from_u64(HUGE_PAGE_BYTES))
            .expect("memory can be mapped");
        // A mapping in which nothing was written cannot be collapsed.
        // SAFETY: a byte of that mapping, to which no reference exists.
        unsafe { memory.start().cast::<u8>().write_volatile(1) };
        // SAFETY: the child makes plain system calls only.
        let child = match unsafe { fork() }.expect("fork succeeds") {
            ForkResult::Child => block_reading_own_memory(&file),
            ForkResult::Parent { child } => child,
        };
        let pid = child.as_raw().unsigned_abs();
        let stuck = Self {
            handle: Arc::new(ProcessHandle::open(pid).expect("the child exists")),
            child,
            memory,
            files: Some(files),
            folder,
        };
        let deadline = Instant::now() + Duration::from_secs(30);
        while !stuck.is_stuck() {
            let late = Instant::now() >= deadline;
            assert!(!late, "the child does not read its own memory");
            std::thread::sleep(Duration::from_millis(1));
        }
        Some(stuck)
    }

    /// Whether the child waits in its read.
    fn is_stuck(&self) -> bool {
        let call = std::fs::read_to_string(format!("/proc/{}/syscall", self.child));
        call.is_ok_and(|call| call.starts_with(&format!("{} ", libc::SYS_pread64)))
    }

    /// A region that nothing has touched. The next three are untouched as well.
    pub(crate) fn untouched_region(&self) -> RegionAddr {
        RegionAddr::containing(self.memory.address() + 2 * HUGE_PAGE_BYTES)
    }
}

impl Drop for StuckTarget {
    fn drop(&mut self) {
        // The child ends with the file system, because its read then fails.
        drop(self.files.take());
        let _ = std::fs::remove_dir(&self.folder);
        let _ = kill(self.child, Signal::SIGKILL);
        let _ = waitpid(self.child, None);
    }
}

/// A child that has just ended.
pub(crate) fn ended_child() -> ProcessHandle {
    let mut child = Command::new("sleep").arg("60").spawn();
    let child = child.as_mut().expect("the child starts");
    let handle = ProcessHandle::open(child.id()).expect("the child exists");
    child.kill().expect("the child can be killed");
    child.wait().expect("the child ends");
    handle
}

/// Runs in the forked child.
fn block_reading_own_memory(file: &CString) -> ! {
    let mut byte = 0u8;
    // SAFETY: plain system calls; the names end with a zero, and `byte` lives through the read.
    unsafe {
        let file = libc::open(file.as_ptr(), libc::O_RDONLY);
        let (read, shared) = (libc::PROT_READ, libc::MAP_SHARED);
        let mapped = libc::mmap(std::ptr::null_mut(), 4096, read, shared, file, 0);
        let memory = libc::open(c"/proc/self/mem".as_ptr(), libc::O_RDONLY);
        libc::pread(memory, (&raw mut byte).cast(), 1, mapped as libc::off_t);
        libc::_exit(0)
    }
}
