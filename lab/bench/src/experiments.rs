//! All experiments by name: measurements on this machine, and simulations beside published figures.

mod outcome;
mod results;

pub use outcome::{Outcome, Side};
pub use results::{FIGURES, Results, Written, index};

use crate::live::{self, EXPERIMENTS};
use crate::simulated::paper::{TABLES, Table};

/// One experiment. It has at least one side, live or simulated.
#[derive(Clone, Copy)]
pub struct Experiment {
    /// Name on the command line.
    pub name: &'static str,
    /// Its side on the running kernel.
    pub live: Option<&'static live::Experiment>,
    /// Its side on the simulated machine.
    pub simulated: Option<&'static Table>,
}

impl Experiment {
    /// What it shows, in one line.
    pub fn shows(&self) -> &'static str {
        let live = self.live.map(|experiment| experiment.shows);
        let simulated = self.simulated.map(|table| table.shows);
        live.or(simulated).unwrap_or_default()
    }

    /// Each of its sides as an experiment of its own, the live one first.
    pub fn sides(self) -> impl Iterator<Item = Self> {
        let live = self.live.map(|_| Self {
            simulated: None,
            ..self
        });
        let simulated = self.simulated.map(|_| Self { live: None, ..self });
        live.into_iter().chain(simulated)
    }

    /// The title of its first side's results.
    pub fn title(&self) -> String {
        match self.live {
            Some(_) => self.name.to_owned(),
            None => outcome::simulated_title(self.name),
        }
    }
}

/// All experiments: first those on the running kernel, ordered from short to long.
pub fn all() -> Vec<Experiment> {
    let live = EXPERIMENTS.iter().map(|live| Experiment {
        name: live.name,
        live: Some(live),
        simulated: TABLES.iter().find(|table| table.name == live.name),
    });
    let alone = |table: &&Table| EXPERIMENTS.iter().all(|live| live.name != table.name);
    let simulated = TABLES.iter().filter(alone).map(|table| Experiment {
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
    fn each_has_a_name_of_its_own_and_a_side() {
        let names: BTreeSet<_> = all().iter().map(|experiment| experiment.name).collect();
        assert_eq!(names.len(), all().len());
        for experiment in all() {
            assert!(experiment.live.is_some() || experiment.simulated.is_some());
            assert!(!experiment.shows().is_empty(), "{}", experiment.name);
        }
        let table_5 = all().into_iter().find(|e| e.name == "table-5");
        assert!(table_5.is_some_and(|e| e.live.is_some() && e.simulated.is_some()));
        let titles: Vec<_> = all()
            .into_iter()
            .flat_map(Experiment::sides)
            .map(|side| side.title())
            .collect();
        let different: BTreeSet<_> = titles.iter().collect();
        assert_eq!(titles.len(), different.len(), "{titles:?}");
    }
}
