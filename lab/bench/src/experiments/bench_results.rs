//! Results and their origin, one file each, and an index of them.

use super::ExperimentOutcome;
use crate::live::live_report::ManagerCpuUse;
use crate::run_origin::RunOrigin;
use serde::Serialize;

/// The folder of the results, next to the index.
pub const RESULTS_FOLDER: &str = "results";

/// Where and when experiments ran, and their outcomes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BenchResults {
    /// Machine, kernel, commit and date.
    #[serde(flatten)]
    pub origin: RunOrigin,
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
        let origin = &self.origin;
        let mut text = format!(
            "# {name}\n\nOn {}: {}, Linux {}, commit {}{}.\n\n```\n{outcome}```\n",
            origin.date,
            origin.machine,
            origin.kernel,
            origin.commit_name(),
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
        Self { origin: RunOrigin::of_this_machine(), quick, outcomes: Vec::new() }
    }
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
        let mut live = LiveReport::new("steady");
        live.add_row("CPU", 0.5, "%", "of a core");
        results.outcomes.push(ExperimentOutcome {
            name: "steady".into(),
            side: LiveOrSimulatedReport::Live(live),
            took_s: 3.0,
        });
        let section = results.outcome_to_markdown(&results.outcomes[0]);
        for part in ["short form", &results.origin.kernel, "# steady", "of a core"] {
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
