//! All experiments by name: measurements on this machine, and simulations beside published figures.

mod bench_results;
mod experiment_outcome;

pub use crate::experiment_name::ExperimentName;
pub use crate::run_origin::RunOrigin;
pub use bench_results::{BenchResults, RESULTS_FOLDER, ResultFile, results_index_markdown};
pub use experiment_outcome::{ExperimentOutcome, LiveOrSimulatedReport};

use crate::live::{self, EXPERIMENTS};
use crate::simulated::paper::{PaperTable, TABLES};

/// One experiment. It has at least one side, live or simulated.
#[derive(Clone, Copy)]
pub struct ExperimentEntry {
    /// Name on the command line.
    pub name: ExperimentName,
    /// Its side on the running kernel.
    pub live: Option<&'static live::LiveExperiment>,
    /// Its side on the simulated machine.
    pub simulated: Option<&'static PaperTable>,
}

impl ExperimentEntry {
    /// What it shows, in one line.
    pub fn summary_line(&self) -> &'static str {
        let live = self.live.map(|experiment| experiment.shows);
        let simulated = self.simulated.map(|table| table.shows);
        live.or(simulated).unwrap_or_default()
    }

    /// Each of its sides as an experiment of its own, the live one first.
    pub fn split_live_and_simulated(self) -> impl Iterator<Item = Self> {
        let live = self.live.map(|_| Self { simulated: None, ..self });
        let simulated = self.simulated.map(|_| Self { live: None, ..self });
        live.into_iter().chain(simulated)
    }

    /// The title of its first results: the live ones if it has any.
    pub fn first_result_title(&self) -> String {
        experiment_outcome::result_title(self.name, self.live.is_some())
    }
}

/// All experiments: first those on the running kernel, ordered from short to long.
pub fn all_experiments() -> Vec<ExperimentEntry> {
    let live = EXPERIMENTS.iter().map(|live| ExperimentEntry {
        name: live.name,
        live: Some(live),
        simulated: TABLES.iter().find(|table| table.name == live.name),
    });
    let alone = |table: &&PaperTable| EXPERIMENTS.iter().all(|live| live.name != table.name);
    let simulated = TABLES.iter().filter(alone).map(|table| ExperimentEntry {
        name: table.name,
        live: None,
        simulated: Some(table),
    });
    live.chain(simulated).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_has_a_unique_name_and_a_side() {
        let all = all_experiments();
        let names = all.iter().flat_map(|e| [e.name.name, e.name.alias]);
        let names: Vec<_> = names.filter(|name| !name.is_empty()).collect();
        assert_eq!(names.len(), BTreeSet::from_iter(&names).len(), "{names:?}");
        for experiment in &all {
            assert!(experiment.live.is_some() || experiment.simulated.is_some());
            assert!(!experiment.summary_line().is_empty(), "{}", experiment.name);
        }
        for name in ["fairness", "table-5", "table_5"] {
            let found = all.iter().find(|e| e.name.matches_name_or_alias(name));
            assert!(found.is_some_and(|e| e.live.is_some() && e.simulated.is_some()));
        }
        let sides = all.into_iter().flat_map(ExperimentEntry::split_live_and_simulated);
        let titles: Vec<_> = sides.map(|side| side.first_result_title()).collect();
        assert_eq!(titles.len(), BTreeSet::from_iter(&titles).len(), "{titles:?}");
    }

    #[test]
    fn the_book_has_a_row_for_each() {
        let live = ("experiments.md", include_str!("../../../docs/research/experiments.md"));
        let simulated = ("published.md", include_str!("../../../docs/research/published.md"));
        for experiment in all_experiments() {
            let name = experiment.name.name;
            let (file, book) = if experiment.live.is_some() { live } else { simulated };
            let texts = [format!("`{name}`"), format!("results/{name}.md)")];
            let mut rows = book.lines().filter(|line| line.starts_with('|'));
            let is_there = rows.any(|row| texts.iter().any(|text| row.contains(text)));
            assert!(is_there, "{name} is not in docs/research/{file}");
        }
    }
}
