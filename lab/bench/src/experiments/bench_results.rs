//! Results and their origin, one file each, and an index of them.

use super::ExperimentOutcome;
use crate::live::live_report::ManagerCpuUse;
use hawkeye_linux::name_value_lines::find_value_by_name;
use serde::Serialize;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

/// The folder of the results, next to the index.
pub const RESULTS_FOLDER: &str = "results";

/// Where and when experiments ran, and their outcomes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BenchResults {
    /// The processor's name, cores and memory.
    pub machine: String,
    /// The kernel's release.
    pub kernel: String,
    /// The commit that was built; `None` if it is not known.
    pub commit: Option<String>,
    /// The day as YYYY-MM-DD, in UTC.
    pub date: String,
    /// Whether the experiments ran in the short form.
    pub quick: bool,
    /// The outcome of each experiment.
    pub outcomes: Vec<ExperimentOutcome>,
}

/// The result file of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct ResultFile {
    /// The experiment's name and side.
    pub title: String,
    /// What it shows, in one line.
    pub shows: &'static str,
    /// The text of its file.
    pub text: String,
    /// CPU time that its managers took.
    pub managing: ManagerCpuUse,
}

impl BenchResults {
    /// Formats an outcome as a section in Markdown.
    pub fn outcome_to_markdown(&self, outcome: &ExperimentOutcome) -> String {
        let name = outcome.title();
        let commit = self.commit.as_deref().unwrap_or("unknown");
        let mut text = format!(
            "# {name}\n\nOn {}: {}, Linux {}, commit {commit}{}.\n\n```\n{outcome}```\n",
            self.date,
            self.machine,
            self.kernel,
            if self.quick { ", short form" } else { "" },
        );
        if let Some(line) = outcome.manager_cpu_use().cpu_use_sentence() {
            text += &format!("\n{line}\n");
        }
        if outcome.to_plot().is_some() {
            text += &format!("\n![{name}]({name}.svg)\n");
        }
        text
    }

    /// Results of this machine, today, without any outcome yet.
    pub fn empty_for_this_machine(quick: bool) -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let model = find_value_by_name(&cpuinfo, "model name").unwrap_or("unknown processor");
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let meminfo = read("/proc/meminfo");
        let kib = find_value_by_name(&meminfo, "MemTotal")
            .and_then(|text| text.split(' ').next()?.parse().ok());
        let gib = kib.map_or(0.0, |kib: f64| kib / f64::from(1 << 20));
        Self {
            machine: format!("{model}, {cores} cores, {gib:.1} GiB"),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            commit: last_commit_before_build(),
            date: run_for_nonempty_output("date", &["-u", "+%F"]).unwrap_or_default(),
            quick,
            outcomes: Vec::new(),
        }
    }
}

/// The last commit before this program was built: the tree may have changed since.
fn last_commit_before_build() -> Option<String> {
    let git = |args: &[&str]| {
        let all = ["-C", env!("CARGO_MANIFEST_DIR")];
        run_for_nonempty_output("git", &[&all[..], args].concat())
    };
    let built = fs::metadata(std::env::current_exe().ok()?).ok()?;
    let before = format!("--before=@{}", built.mtime());
    let last = git(&["log", "-1", "--format=%H", &before])?;
    // Only while the tree exists can that commit be distinguished from a change of it.
    if git(&["rev-parse", "HEAD"])? == last {
        git(&["describe", "--always", "--dirty"])
    } else {
        git(&["rev-parse", "--short", &last])
    }
}

fn run_for_nonempty_output(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    let said = String::from_utf8(output.stdout).ok()?;
    let said = said.trim();
    (output.status.success() && !said.is_empty()).then(|| said.to_owned())
}

impl ResultFile {
    fn date_in_text(&self) -> &str {
        let from = self.text.lines().find_map(|line| line.strip_prefix("On "));
        let date = from.and_then(|line| line.split_once(':'));
        date.map_or("", |(date, _)| date)
    }
}

/// The index: each experiment with a link to its file, and the CPU time of managers in all of them.
pub fn results_index_markdown(written: &[ResultFile]) -> String {
    let mut text = "# Results\n\n`hawkeye-lab bench --out FOLDER` writes one file for each experiment. A repeated experiment replaces\nits earlier result.\n\n| experiment | shows | date |\n|---|---|---|\n".to_owned();
    let mut managing = ManagerCpuUse::default();
    for one in written {
        let (title, shows, date) = (&one.title, one.shows, one.date_in_text());
        text += &format!("| [{title}]({RESULTS_FOLDER}/{title}.md) | {shows} | {date} |\n");
        managing.merge(&one.managing);
    }
    if let Some(line) = managing.cpu_use_sentence() {
        text += &format!("\n## All experiments\n\n{line}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::LiveOrSimulatedReport;
    use super::*;
    use crate::live::LiveReport;

    #[test]
    fn a_result_names_the_origin_of_its_figures() {
        let mut results = BenchResults::empty_for_this_machine(true);
        assert!(results.machine.contains("cores"), "{}", results.machine);
        assert!(!results.kernel.is_empty() && !results.date.is_empty());
        let mut live = LiveReport::new("steady");
        live.add_row("CPU", 0.5, "%", "of a core");
        results.outcomes.push(ExperimentOutcome {
            name: "steady".into(),
            side: LiveOrSimulatedReport::Live(live),
            took_s: 3.0,
        });
        let section = results.outcome_to_markdown(&results.outcomes[0]);
        for part in ["short form", &results.kernel, "# steady", "of a core"] {
            assert!(section.contains(part), "{section}");
        }
    }

    #[test]
    fn the_index_sums_up_the_cpu_time_of_managers() {
        let written = |cpu_s, worst_percent| ResultFile {
            title: "one".to_owned(),
            shows: "what it is",
            text: "# one\n\nOn 2026-11-25: here.\n\n```\none: what it is\n```\n".to_owned(),
            managing: ManagerCpuUse { cpu_s, wall_s: 100.0, worst_percent },
        };
        let text = results_index_markdown(&[written(1.0, 1.5), written(3.0, 4.5)]);
        assert!(text.contains("| [one](results/one.md) | what it is | 2026-11-25 |"), "{text}");
        let line = "2.00 % of a core on average over 200 s, and at most 4.50 % in one run";
        assert!(text.contains(line), "{text}");
        assert!(!results_index_markdown(&[]).contains("All experiments"));
    }
}
