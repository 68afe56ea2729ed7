//! A memory cgroup for a trial.

use crate::error::BenchError;
use hawkeye_linux::memory::cgroup::{CgroupVersion, memory_hierarchy};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A memory cgroup of version 2 or 1, removed when dropped.
#[derive(Debug)]
pub struct MemoryCgroup {
    path: PathBuf,
    version: CgroupVersion,
}

impl MemoryCgroup {
    /// Makes a cgroup with this limit, without swap.
    ///
    /// # Errors
    /// No cgroup can be made here.
    pub fn new(name: &str, limit_bytes: u64) -> Result<Self, BenchError> {
        let failed = |error: io::Error| {
            BenchError::Impossible(format!("no memory cgroup can be made here: {error}"))
        };
        let (version, root) =
            memory_hierarchy().ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        let path = root.join(name);
        fs::create_dir_all(&path).map_err(failed)?;
        let group = Self { path, version };
        let (limit, swap, most_swap) = match version {
            CgroupVersion::V2 => ("memory.max", "memory.swap.max", 0),
            // Memory and swap together.
            CgroupVersion::V1 => (
                "memory.limit_in_bytes",
                "memory.memsw.limit_in_bytes",
                limit_bytes,
            ),
        };
        let write = |file: &str, bytes: u64| fs::write(group.path.join(file), bytes.to_string());
        write(limit, limit_bytes).map_err(failed)?;
        // Without swap accounting there is no such file.
        let _ = write(swap, most_swap);
        Ok(group)
    }

    /// Memory in use in it.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn used_bytes(&self) -> Result<u64, BenchError> {
        self.read_bytes(match self.version {
            CgroupVersion::V2 => "memory.current",
            CgroupVersion::V1 => "memory.usage_in_bytes",
        })
    }

    /// The most memory that was ever in use in it.
    ///
    /// # Errors
    /// The kernel does not say (version 2 before Linux 5.19).
    pub fn peak_bytes(&self) -> Result<u64, BenchError> {
        self.read_bytes(match self.version {
            CgroupVersion::V2 => "memory.peak",
            CgroupVersion::V1 => "memory.max_usage_in_bytes",
        })
    }

    fn read_bytes(&self, file: &str) -> Result<u64, BenchError> {
        let text = fs::read_to_string(self.path.join(file)).ok();
        let bytes = text.and_then(|text| text.trim().parse().ok());
        bytes.ok_or_else(|| BenchError::Impossible(format!("the cgroup has no {file}")))
    }

    /// A command that runs `program` in the cgroup.
    pub fn command(&self, program: &Path, words: &str) -> Command {
        let mut command = Command::new(program);
        command.args(words.split_whitespace());
        self.around(&command)
    }

    /// A command that does the same as this one, in the cgroup.
    pub fn around(&self, within: &Command) -> Command {
        let mut command = Command::new("sh");
        let script = "echo $$ >\"$0/cgroup.procs\" && exec \"$@\"";
        command.arg("-c").arg(script).arg(&self.path);
        command.arg(within.get_program()).args(within.get_args());
        command
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        // A member that was just killed takes a moment to leave.
        for _ in 0..100 {
            match fs::remove_dir(&self.path) {
                Ok(()) => return,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return,
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
        eprintln!(
            "hawkeye: the cgroup {} could not be removed",
            self.path.display()
        );
    }
}
