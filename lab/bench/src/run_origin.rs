//! Where, when and with which build experiments ran.

use hawkeye_linux::memory::system_memory::machine_memory_use;
use hawkeye_linux::name_value_lines::find_value_by_name;
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

/// Where, when and with which build experiments ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunOrigin {
    /// The processor's name, cores and memory.
    pub machine: String,
    /// The kernel's release.
    pub kernel: String,
    /// The commit that was built, with `-dirty` where more than the documents had changed; `None`
    /// if it is not known.
    pub commit: Option<String>,
    /// The day as YYYY-MM-DD, in UTC.
    pub date: String,
}

const DIRTY: &str = "-dirty";

impl RunOrigin {
    /// This machine and build, today.
    pub fn of_this_machine() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let model = find_value_by_name(&cpuinfo, "model name").unwrap_or("unknown processor");
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let bytes = machine_memory_use().map_or(0, |memory| memory.total_bytes);
        let gib = bytes as f64 / f64::from(1 << 30);
        Self {
            machine: format!("{model}, {cores} cores, {gib:.1} GiB"),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            commit: last_commit_before_build(),
            date: today(),
        }
    }

    /// The same machine and build, today.
    pub(crate) fn dated_today(&self) -> Self {
        Self { date: today(), ..self.clone() }
    }

    /// The commit as results name it.
    pub fn commit_name(&self) -> &str {
        self.commit.as_deref().unwrap_or("unknown")
    }

    /// Whether figures of both may be summed up. Whether the tree had changed is not compared: it
    /// is found out when the program runs, and may differ from run to run of one build.
    pub(crate) fn is_same_machine_and_build(&self, other: &Self) -> bool {
        let commit = |origin: &Self| origin.commit_name().trim_end_matches(DIRTY).to_owned();
        self.is_same_machine(other) && commit(self) == commit(other)
    }

    pub(crate) fn is_same_machine(&self, other: &Self) -> bool {
        (&self.machine, &self.kernel) == (&other.machine, &other.kernel)
    }
}

fn today() -> String {
    run_for_nonempty_output("date", &["-u", "+%F"]).unwrap_or_default()
}

/// The last commit before this program was built: the tree may have changed since.
fn last_commit_before_build() -> Option<String> {
    let git = |args: &[&str]| {
        let all = ["-C", env!("CARGO_MANIFEST_DIR")];
        run_for_nonempty_output("git", &[&all[..], args].concat())
    };
    let built = fs::metadata(std::env::current_exe().ok()?).ok()?;
    let before = format!("--before=@{}", built.mtime());
    let last = git(&["log", "-1", "--format=%h", &before])?;
    // Only while the tree exists can that commit be distinguished from a change of it. Results are
    // documents, so writing them is no such change.
    let changed = || git(&["diff", "--name-only", "HEAD", "--", ":/", ":(top,exclude)docs"]);
    let is_dirty = git(&["log", "-1", "--format=%h"])? == last && changed().is_some();
    Some(last + if is_dirty { DIRTY } else { "" })
}

fn run_for_nonempty_output(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    let said = String::from_utf8(output.stdout).ok()?;
    let said = said.trim();
    (output.status.success() && !said.is_empty()).then(|| said.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_one_machine_and_build_may_be_summed_up() {
        let here = RunOrigin::of_this_machine();
        assert!(here.machine.contains("cores"), "{}", here.machine);
        assert!(!here.kernel.is_empty() && !here.date.is_empty());
        let built = |commit: &str| RunOrigin { commit: Some(commit.to_owned()), ..here.clone() };
        let clean = built("bf449092");
        let later = RunOrigin { date: "2026-12-01".to_owned(), ..built("bf449092-dirty") };
        assert!(clean.is_same_machine_and_build(&later));
        assert!(!clean.is_same_machine_and_build(&built("be581ec2")));
        let elsewhere = RunOrigin { kernel: "7.2.0".to_owned(), ..clean.clone() };
        assert!(!clean.is_same_machine_and_build(&elsewhere));
    }
}
