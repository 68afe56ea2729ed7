//! Where programs stand in the middle of a run.

use super::Engine;
use super::program::Life;

/// One program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standing {
    /// Resident memory now, in bytes; 0 before its start and after its end.
    pub rss_bytes: u64,
    /// Of it under huge pages.
    pub huge_bytes: u64,
    /// Cycles of its accesses so far.
    pub cycles: f64,
    /// Of these in page walks.
    pub walk_cycles: f64,
}

impl Engine {
    /// All programs, in the order in which they were given.
    pub fn standing(&self) -> Vec<Standing> {
        let standing = self.programs.iter().map(|program| {
            let there = program.life == Life::Alive;
            let memory = |bytes: u64| if there { bytes } else { 0 };
            Standing {
                rss_bytes: memory(program.last.rss_bytes),
                huge_bytes: memory(program.last.huge_bytes),
                cycles: program.total.cycles,
                walk_cycles: program.total.walk_cycles,
            }
        });
        standing.collect()
    }
}
