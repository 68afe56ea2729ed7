//! What came of it: for people and for programs.

use crate::program::ProgramUse;
use crate::words;
use hawkeye_linux::page_sizes::SizesSeen;
use hawkeye_manager::{Event, FootprintPoint, Journal};
use hawkeye_policy::Errno;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Everything about one run of management. Units are in the names.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// What was managed.
    pub subject: String,
    /// By which policy.
    pub policy: &'static str,
    /// How accesses were seen.
    pub sampler: &'static str,
    /// How long management lasted.
    pub wall_s: f64,
    /// The program's exit status; none where it was attached to.
    pub exit_status: Option<u8>,
    /// Regions made huge.
    pub promoted: u64,
    /// Huge pages split.
    pub split: u64,
    /// Memory given back by recovery.
    pub recovered_bytes: u64,
    /// Memory filled before it was touched.
    pub filled_ahead_bytes: u64,
    /// CPU time that this took; not part of the manager's own.
    pub fill_cpu_s: f64,
    /// Candidates passed over because their owner was freeing them.
    pub freed_candidates: u64,
    /// Candidates passed over because other processes share their pages.
    pub shared_candidates: u64,
    /// Huge pages searched for zero pages.
    pub scanned: u64,
    /// Sampling windows.
    pub samples: u64,
    /// Refusals by error name.
    pub errors: BTreeMap<Errno, u64>,
    /// Pages by size, at the end or when the program was last seen; none where nobody is given other sizes than 4 KiB and 2 MiB.
    pub page_sizes: Option<SizesSeen>,
    /// The manager's own CPU time.
    pub manager_cpu_s: f64,
    /// The longest call into the program.
    pub longest_call_ms: f64,
    /// The program's resources.
    pub program: ProgramUse,
    /// Memory over time.
    pub footprints: Vec<FootprintPoint>,
    /// What a person should know, a sentence each.
    pub notes: Vec<String>,
}

impl Summary {
    /// Writes it as JSON.
    pub fn write_json(&self, path: &Path) -> anyhow::Result<()> {
        use anyhow::Context;
        let file = create_readable(path).with_context(|| format!("creating {}", path.display()))?;
        serde_json::to_writer_pretty(file, self)
            .with_context(|| format!("writing {}", path.display()))
    }
}

/// Creates a file of results, which the user who has called root reads: 0644 at most. It holds
/// sums, and no address of a process.
///
/// # Errors
/// It can't be made.
pub fn create_readable(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    options.mode(0o644).open(path)
}

/// Pages by size as one line.
pub fn sizes(seen: &SizesSeen) -> String {
    if seen.sizes.is_empty() {
        return "all of 4 KiB".into();
    }
    let sizes = seen.sizes.iter();
    let each: Vec<String> = sizes
        .clone()
        .map(|size| {
            let pages = words::count(size.pages);
            format!("{pages} of {}", words::bytes(size.page_bytes))
        })
        .collect();
    let given: u64 = sizes.filter_map(|size| size.given_on_machine).sum();
    let partial = if seen.complete {
        ""
    } else {
        " in the first 64 GiB"
    };
    format!(
        "{}, seen {:.1} s ago{partial}; {} given on this machine",
        each.join(", "),
        seen.age_s,
        words::count(given)
    )
}

/// Sentences for what the journal shows and the numbers don't.
pub fn notes(journal: &Journal) -> Vec<String> {
    let mut notes = Vec::new();
    let mut stretched = None;
    let mut held = None;
    let mut troubles = Vec::new();
    for entry in journal.entries() {
        match &entry.event {
            Event::Stretched { because } => stretched = Some(because),
            Event::Held { hold: Some(hold) } => held = Some(hold),
            Event::Trouble { message } if !troubles.contains(message) => {
                troubles.push(message.clone());
            }
            _ => {}
        }
    }
    if let Some(because) = stretched {
        notes.push(format!(
            "sampling windows were further apart than asked for: {because}"
        ));
    }
    if let Some(hold) = held {
        notes.push(format!("promotion was held back: {hold}"));
    }
    const SHOWN: usize = 3;
    notes.extend(troubles.into_iter().take(SHOWN));
    notes
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let program = &self.program;
        write!(f, "hawkeye: {}", self.subject)?;
        if let Some(status) = self.exit_status {
            write!(f, " ended with status {status}")?;
        }
        writeln!(f, " after {:.1} s, policy {}", self.wall_s, self.policy)?;
        writeln!(
            f,
            "  program     {:.1} s user, {:.1} s system, {} minor faults, {} resident at most",
            program.user_s,
            program.system_s,
            words::count(program.minor_faults),
            words::bytes(program.rss_peak_bytes),
        )?;
        writeln!(
            f,
            "  at the end  {} resident, {} of it huge",
            words::bytes(program.rss_end_bytes),
            words::bytes(program.huge_end_bytes),
        )?;
        let shares: Vec<f64> = self
            .footprints
            .iter()
            .map(|p| p.huge_bytes as f64 / p.rss_bytes.max(1) as f64)
            .collect();
        if shares.len() > 1 {
            writeln!(f, "  huge share  |{}| over time", words::bars(&shares, 60))?;
        }
        writeln!(
            f,
            "  promoted    {} regions; split {} and recovered {}",
            words::count(self.promoted),
            words::count(self.split),
            words::bytes(self.recovered_bytes),
        )?;
        if self.filled_ahead_bytes > 0 {
            writeln!(
                f,
                "  filled      {} before it was touched, in {:.2} s of CPU",
                words::bytes(self.filled_ahead_bytes),
                self.fill_cpu_s,
            )?;
        }
        if let Some(seen) = &self.page_sizes {
            writeln!(f, "  page sizes  {}", sizes(seen))?;
        }
        if !self.errors.is_empty() {
            let errors: Vec<String> = self
                .errors
                .iter()
                .map(|(errno, times)| format!("{errno} {times} times"))
                .collect();
            writeln!(f, "  refused     {}", errors.join(", "))?;
        }
        // Of less than a second no share can be told.
        let share = if self.wall_s >= 1.0 {
            format!(
                " ({:.1} % of a core)",
                self.manager_cpu_s * 100.0 / self.wall_s
            )
        } else {
            String::new()
        };
        writeln!(
            f,
            "  manager     {:.2} s CPU{share}, longest call {:.1} ms, {} windows by {}",
            self.manager_cpu_s, self.longest_call_ms, self.samples, self.sampler,
        )?;
        for note in &self.notes {
            writeln!(f, "  note        {note}")?;
        }
        Ok(())
    }
}
