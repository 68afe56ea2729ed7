//! A memory cgroup for one trial.

use super::programs::running_process::{send_signal, signal_when_parent_thread_ends};
use crate::error::{BenchResult, impossible};
use hawkeye_linux::memory::cgroup_limits::{CgroupVersion, find_memory_hierarchy};
use hawkeye_linux::stop_signals::unblock_signals_in_child;
use hawkeye_workload::WorkloadProcess;
use nix::sys::signal::Signal;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A memory cgroup of version 2 or 1; removed when dropped. One inside another must be dropped
/// first.
#[derive(Debug)]
pub struct MemoryCgroup {
    version: CgroupVersion,
    path: PathBuf,
}

impl MemoryCgroup {
    /// Creates a cgroup with this limit and without swap.
    pub fn new(name: &str, limit_bytes: u64) -> BenchResult<Self> {
        let group = Self::without_limit(name)?;
        group.set_limit(limit_bytes)?;
        Ok(group)
    }

    /// Creates a cgroup without a limit of its own. In a name, a slash leads to a cgroup inside
    /// another.
    pub fn without_limit(name: &str) -> BenchResult<Self> {
        let failed = |error: io::Error| impossible!("creating the memory cgroup {name}: {error}");
        let (version, root) =
            find_memory_hierarchy().ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        let path = root.join(name);
        remove_leftover_cgroup(&path);
        fs::create_dir(&path).map_err(failed)?;
        Ok(Self { version, path })
    }

    /// Limits its memory, and forbids swap.
    pub fn set_limit(&self, limit_bytes: u64) -> BenchResult<()> {
        let (limit, swap, most_swap) = match self.version {
            CgroupVersion::V2 => ("memory.max", "memory.swap.max", 0),
            // This limit is on memory and swap together.
            CgroupVersion::V1 => {
                ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", limit_bytes)
            }
        };
        let write = |file: &str, bytes: u64| fs::write(self.path.join(file), bytes.to_string());
        write(limit, limit_bytes).map_err(|error| {
            impossible!("limiting the memory cgroup {}: {error}", self.path.display())
        })?;
        // This file is missing without swap accounting.
        let _ = write(swap, most_swap);
        Ok(())
    }

    /// Memory that is charged to it and to cgroups inside it, files included.
    pub fn used_bytes(&self) -> BenchResult<u64> {
        self.read_number("memory.current", "memory.usage_in_bytes")
    }

    /// The most memory that was ever charged to it. Version 2 has that since Linux 5.19.
    pub fn peak_bytes(&self) -> BenchResult<u64> {
        self.read_number("memory.peak", "memory.max_usage_in_bytes")
    }

    /// How many of its processes the kernel has killed because of a memory limit.
    pub fn count_oom_kills(&self) -> BenchResult<u64> {
        let file = match self.version {
            CgroupVersion::V2 => "memory.events",
            CgroupVersion::V1 => "memory.oom_control",
        };
        self.find_number(file, "oom_kill ")
    }

    /// Memory that is charged to it, without files. That includes what was given back of a huge
    /// page that is still whole, which is not resident any more.
    pub fn used_bytes_without_files(&self) -> BenchResult<u64> {
        Ok(self.used_bytes()?.saturating_sub(self.file_bytes()?))
    }

    /// Memory of files that is charged to it.
    pub fn file_bytes(&self) -> BenchResult<u64> {
        let files = match self.version {
            CgroupVersion::V2 => "file ",
            CgroupVersion::V1 => "total_cache ",
        };
        self.find_number("memory.stat", files)
    }

    /// Private memory of its processes that huge pages map.
    pub fn huge_bytes(&self) -> BenchResult<u64> {
        let huge = match self.version {
            CgroupVersion::V2 => "anon_thp ",
            CgroupVersion::V1 => "total_rss_huge ",
        };
        self.find_number("memory.stat", huge)
    }

    fn read_number(&self, of_version_2: &str, of_version_1: &str) -> BenchResult<u64> {
        let file = match self.version {
            CgroupVersion::V2 => of_version_2,
            CgroupVersion::V1 => of_version_1,
        };
        let text = self.read_file(file)?;
        let number = text.trim().parse();
        number.map_err(|error| impossible!("{}/{file}: {error}", self.path.display()))
    }

    /// The number in a line that begins with `name`.
    fn find_number(&self, file: &str, name: &str) -> BenchResult<u64> {
        let text = self.read_file(file)?;
        let number = text.lines().find_map(|line| line.strip_prefix(name)?.parse().ok());
        number.ok_or_else(|| impossible!("{}/{file} has no line {name}", self.path.display()))
    }

    fn read_file(&self, file: &str) -> BenchResult<String> {
        let path = self.path.join(file);
        fs::read_to_string(&path).map_err(|error| impossible!("{}: {error}", path.display()))
    }

    /// A command that runs `program` in the cgroup.
    pub fn program_command_in_cgroup(&self, program: &Path, words: &str) -> Command {
        let mut command = Command::new(program);
        command.args(words.split_whitespace());
        self.wrap_command(&command)
    }

    /// Starts a workload, given as on the command line of `program`, in the cgroup.
    pub(super) fn start_workload(
        &self,
        program: &Path,
        words: &str,
    ) -> BenchResult<WorkloadProcess> {
        let mut command = self.program_command_in_cgroup(program, &format!("workload {words}"));
        unblock_signals_in_child(&mut command);
        // One that is stopped does not notice that its input has ended.
        signal_when_parent_thread_ends(&mut command, Signal::SIGKILL);
        Ok(WorkloadProcess::spawn_command(command)?)
    }

    /// A command that runs the given command in the cgroup. Environment variables of the given
    /// command are not passed on.
    pub fn wrap_command(&self, within: &Command) -> Command {
        let [shell, words @ ..] = self.launcher_words();
        let mut command = Command::new(shell);
        command.args(words).arg(within.get_program()).args(within.get_args());
        command
    }

    /// The first words of a command that runs the rest of it in the cgroup.
    pub fn launcher_words(&self) -> [OsString; 4] {
        let script = "echo $$ >\"$0/cgroup.procs\" && exec \"$@\"";
        ["sh".into(), "-c".into(), script.into(), self.path.as_os_str().to_owned()]
    }
}

/// Removes what a killed experiment left, so that its limit and its peak do not count. It stays
/// if a process is in it, and then the cgroup can't be created.
fn remove_leftover_cgroup(path: &Path) {
    for inner in folders_in(path) {
        let _ = fs::remove_dir(inner);
    }
    let _ = fs::remove_dir(path);
}

/// With this the names of all cgroups of experiments begin.
const NAME_PREFIX: &str = "hawkeye-bench-";

/// Removes all cgroups of experiments, and kills what is in them, for signal handlers after which
/// nothing is dropped. After `at_most` the rest stay.
pub(super) fn remove_cgroups_of_experiments(at_most: Duration) {
    if let Some((_, root)) = find_memory_hierarchy() {
        remove_cgroups_in(&root, at_most);
    }
}

fn remove_cgroups_in(root: &Path, at_most: Duration) {
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default();
        name.as_encoded_bytes().starts_with(NAME_PREFIX.as_bytes())
    };
    let deadline = Instant::now() + at_most;
    loop {
        let ours: Vec<_> = folders_in(root).filter(is_ours).collect();
        for path in &ours {
            folders_in(path).chain([path.clone()]).for_each(|path| kill_processes_in(&path));
            remove_leftover_cgroup(path);
        }
        // A process that was just killed takes a moment to leave the cgroup, and experiments may
        // start another one.
        if !ours.iter().any(|path| path.exists()) || Instant::now() >= deadline {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn folders_in(path: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir())
}

fn kill_processes_in(cgroup: &Path) {
    let pids = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    // 0 stands for a process that is not visible here; a signal to it would be for this one.
    for pid in pids.lines().filter_map(|pid| pid.parse().ok()).filter(|pid| *pid > 0) {
        let _ = send_signal(pid, Signal::SIGKILL);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    #[test]
    fn cgroups_of_experiments_are_emptied_and_removed_and_others_stay() {
        let root = tempfile::tempdir().expect("a folder");
        let make = |name: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(&path).expect("a folder");
            path
        };
        let (nested, other) = (make("hawkeye-bench-order/0"), make("system.slice/inner"));
        let used = make("hawkeye-bench-neighbour");
        let mut command = Command::new("sleep");
        let mut child = command.arg("30").stdin(Stdio::null()).spawn().expect("sleep runs");
        fs::write(used.join("cgroup.procs"), format!("0\n{}\n", child.id())).expect("a file");
        // In a plain folder that file stays, as if a process were left.
        remove_cgroups_in(root.path(), Duration::ZERO);
        assert!(!child.wait().expect("a child").success());
        assert!(!nested.exists() && !root.path().join("hawkeye-bench-order").exists());
        assert!(used.exists() && other.exists());
        fs::remove_file(used.join("cgroup.procs")).expect("a file");
        remove_cgroups_in(root.path(), Duration::ZERO);
        assert!(!used.exists() && other.exists());
    }
}
