//! Results of a run.

use serde::Serialize;

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProgramOutcome {
    /// It completed all of its phases.
    Done,
    /// Memory ran out, and it was the largest program.
    Killed,
    /// Time ran out.
    Unfinished,
}

/// One phase of a program, as it ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PhaseFigures {
    /// Its number in the workload, from 0.
    pub phase: usize,
    /// When it began, in seconds since the machine started.
    pub start_s: f64,
    /// When it ended.
    pub end_s: f64,
    /// Accesses made in it.
    pub accesses: f64,
    /// Share of its cycles that went into page walks, in per cent.
    pub overhead_percent: f64,
    /// Resident memory at its end, in bytes.
    pub rss_bytes: u64,
    /// The part of it under huge pages, in bytes.
    pub huge_bytes: u64,
}

/// A program's state at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProgramMoment {
    /// Seconds since the machine started.
    pub at_s: f64,
    /// Share of its cycles in page walks, in per cent; `None` while it fills, frees or waits.
    pub overhead_percent: Option<f64>,
    /// Resident memory, in bytes.
    pub rss_bytes: u64,
    /// The part of it under huge pages, in bytes.
    pub huge_bytes: u64,
}

/// Pages of one size in a program's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PageSizeFigures {
    /// The size, in bytes.
    pub page_bytes: u64,
    /// First touches that mapped a page of this size.
    pub faults: u64,
    /// First touches that should have mapped one, but got less because no memory for it was free.
    pub fallbacks: u64,
    /// Memory mapped by such pages at the end, in bytes.
    pub mapped_end_bytes: u64,
    /// The same on average over the program's time, in bytes.
    pub mapped_mean_bytes: u64,
}

/// One program.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProgramFigures {
    /// Its name.
    pub name: String,
    /// How it ended.
    pub outcome: ProgramOutcome,
    /// From its start to its end, in seconds.
    pub wall_s: f64,
    /// Accesses made after memory was filled.
    pub accesses: f64,
    /// Share of cycles of these that went into page walks, in per cent (paper, Table 4).
    pub overhead_percent: f64,
    /// Page faults.
    pub faults: u64,
    /// Its pages by size, the smallest first. Lists sizes that it ever had or should have had.
    pub sizes: Vec<PageSizeFigures>,
    /// Time in page faults while it filled memory, in seconds.
    pub fault_s: f64,
    /// Time for which it waited for the kernel, in seconds.
    pub system_s: f64,
    /// Largest resident memory, in bytes. What it shares with other programs counts in each.
    pub rss_peak_bytes: u64,
    /// Largest memory under huge pages, in bytes.
    pub huge_peak_bytes: u64,
    /// Memory that held something other than zeros when it ended, in bytes.
    pub useful_end_bytes: u64,
    /// Its phases.
    pub phases: Vec<PhaseFigures>,
    /// Its state over time, in at most 512 moments.
    pub course: Vec<ProgramMoment>,
}

/// One virtual machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GuestFigures {
    /// Its name.
    pub name: String,
    /// The most memory that the host gave it, in bytes.
    pub rss_peak_bytes: u64,
    /// The part of its memory that is in the host's swap at the end, in bytes.
    pub swapped_bytes: u64,
    /// Its pages that the host read back from swap.
    pub swapped_in: u64,
    /// Results inside the guest.
    pub inside: EngineFigures,
}

/// All results of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EngineFigures {
    /// Time until the last program ended, in seconds.
    pub wall_s: f64,
    /// Programs, in the order of the workload.
    pub programs: Vec<ProgramFigures>,
    /// Virtual machines.
    pub guests: Vec<GuestFigures>,
    /// Largest memory of shared files, each page counted once, in bytes. Virtual machines have
    /// files of their own.
    pub shared_file_peak_bytes: u64,
    /// CPU time of the manager, in seconds.
    pub manager_cpu_s: f64,
    /// Memory that was prefaulted for programs, in bytes.
    pub filled_ahead_bytes: u64,
    /// CPU time of the filler, in seconds.
    pub filling_cpu_s: f64,
    /// CPU time of the thread that zeroes free memory, in seconds.
    pub zeroing_cpu_s: f64,
    /// CPU time of kswapd, in seconds.
    pub kswapd_cpu_s: f64,
    /// CPU time of same-page merging, in seconds.
    pub merging_cpu_s: f64,
}

impl EngineFigures {
    /// Its programs, and then those of its virtual machines.
    pub fn all_programs(&self) -> impl Iterator<Item = &ProgramFigures> {
        let inside = self.guests.iter().flat_map(|guest| &guest.inside.programs);
        self.programs.iter().chain(inside)
    }

    /// Share of cycles in page walks over all programs, weighted by their accesses, in per cent.
    pub fn overhead_percent(&self) -> f64 {
        let accesses: f64 = self.all_programs().map(|p| p.accesses).sum();
        let sum: f64 = self.all_programs().map(|p| p.accesses * p.overhead_percent).sum();
        if accesses > 0.0 { sum / accesses } else { 0.0 }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct AccessTally {
    pub(super) accesses: f64,
    pub(super) cycles: f64,
    pub(super) walk_cycles: f64,
}

impl AccessTally {
    pub(super) fn overhead_percent(&self) -> f64 {
        if self.cycles > 0.0 { (self.walk_cycles / self.cycles * 100.0).min(100.0) } else { 0.0 }
    }

    pub(super) fn add(&mut self, more: Self) {
        self.accesses += more.accesses;
        self.cycles += more.cycles;
        self.walk_cycles += more.walk_cycles;
    }
}
