//! A memory cgroup for one trial.

use crate::error::{BenchResult, impossible};
use hawkeye_linux::memory::cgroup_limits::{CgroupVersion, find_memory_hierarchy};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A memory cgroup of version 2 or 1; removed when dropped.
#[derive(Debug)]
pub struct MemoryCgroup {
    path: PathBuf,
}

impl MemoryCgroup {
    /// Creates a cgroup with this limit and without swap.
    pub fn new(name: &str, limit_bytes: u64) -> BenchResult<Self> {
        let failed = |error: io::Error| impossible!("creating the memory cgroup {name}: {error}");
        let (version, root) =
            find_memory_hierarchy().ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        let path = root.join(name);
        fs::create_dir_all(&path).map_err(failed)?;
        let group = Self { path };
        let (limit, swap, most_swap) = match version {
            CgroupVersion::V2 => ("memory.max", "memory.swap.max", 0),
            // This limit is on memory and swap together.
            CgroupVersion::V1 => {
                ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", limit_bytes)
            }
        };
        let write = |file: &str, bytes: u64| fs::write(group.path.join(file), bytes.to_string());
        write(limit, limit_bytes).map_err(failed)?;
        // This file is missing without swap accounting.
        let _ = write(swap, most_swap);
        Ok(group)
    }

    /// A command that runs `program` in the cgroup.
    pub fn program_command_in_cgroup(&self, program: &Path, words: &str) -> Command {
        let mut command = Command::new(program);
        command.args(words.split_whitespace());
        self.wrap_command(&command)
    }

    /// A command that runs the given command in the cgroup.
    pub fn wrap_command(&self, within: &Command) -> Command {
        let mut command = Command::new("sh");
        let script = "echo $$ >\"$0/cgroup.procs\" && exec \"$@\"";
        command.arg("-c").arg(script).arg(&self.path);
        command.arg(within.get_program()).args(within.get_args());
        command
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        // A process that was just killed takes a moment to leave the cgroup.
        for _ in 0..100 {
            match fs::remove_dir(&self.path) {
                Ok(()) => return,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return,
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
        let path = self.path.display();
        eprintln!("hawkeye-lab: cgroup {path} could not be removed: remove it with rmdir");
    }
}
