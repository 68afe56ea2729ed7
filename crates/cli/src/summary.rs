//! The summary of a session, for people and for programs.

use crate::commands::prefault_session::PrefaultChoice;
use crate::first_touch::FirstTouchPlan;
use crate::program_use::ProgramUse;
use crate::text_format;
use hawkeye_linux::page_sizes::ObservedSizes;
use hawkeye_manager::{Event, FootprintPoint, Journal, Machine, Manager};
use hawkeye_policy::{Errno, Profile};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The figures of one session. Units are in the names.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// What was managed: the command or the process ids.
    pub subject: String,
    pub profile: Profile,
    pub policy: &'static str,
    pub sampler: &'static str,
    pub wall_s: f64,
    /// Exit status of the program; none after `attach`.
    pub exit_status: Option<u8>,
    pub promoted: u64,
    /// Time from the start of management to the first promotion.
    pub first_promotion_s: Option<f64>,
    pub split: u64,
    pub recovered_bytes: u64,
    /// What was set in the program's environment, so that its allocator requests huge pages.
    pub first_touch: FirstTouchPlan,
    pub filled_ahead_bytes: u64,
    /// CPU time of prefault; not included in the manager's own.
    pub fill_cpu_s: f64,
    /// Whether memory was prefaulted, and why; none with the mode off.
    pub prefault: Option<PrefaultChoice>,
    /// How often a prefault thread paused because other programs wanted every CPU.
    pub prefault_pauses: u64,
    /// Candidates passed over because their program was freeing them.
    pub freed_candidates: u64,
    /// Candidates passed over because other processes share their pages.
    pub shared_candidates: u64,
    /// Huge pages searched for zero pages.
    pub scanned: u64,
    /// Number of sampling windows.
    pub samples: u64,
    /// Refusals, by error.
    pub errors: BTreeMap<Errno, u64>,
    /// Pages by size, at the end or when the program was last seen. None where no program gets
    /// sizes other than 4 KiB and 2 MiB.
    pub page_sizes: Option<ObservedSizes>,
    pub manager_cpu_s: f64,
    /// The longest call into the program.
    pub longest_call_ms: f64,
    pub program: ProgramUse,
    pub footprints: Vec<FootprintPoint>,
    /// Remarks for people, a sentence each.
    pub notes: Vec<String>,
}

impl Summary {
    fn prefault_text(&self, choice: &PrefaultChoice) -> String {
        let reason = &choice.reason;
        if !choice.on {
            return format!("off: {reason}");
        }
        let (filled, cpu_s) = (text_format::bytes(self.filled_ahead_bytes), self.fill_cpu_s);
        let pauses = match self.prefault_pauses {
            0 => String::new(),
            n => format!("; paused {n} times, as no CPU was spare"),
        };
        format!("{filled}, in {cpu_s:.2} s of CPU time, {reason}{pauses}")
    }

    pub fn write_json(&self, path: &Path) -> anyhow::Result<()> {
        use anyhow::Context;
        let file =
            create_readable(path).with_context(|| format!("can't create {}", path.display()))?;
        serde_json::to_writer_pretty(file, self)
            .with_context(|| format!("can't write {}", path.display()))
    }
}

/// Creates a file of results with mode 0644 at most: root owns it, and the user that called root
/// reads it. It holds sums, and no address of a process.
pub fn create_readable(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    options.mode(0o644).open(path)
}

pub fn page_sizes_text(seen: &ObservedSizes) -> String {
    if seen.sizes.is_empty() {
        return "only 4 KiB pages".into();
    }
    let sizes = seen.sizes.iter();
    let each = sizes.clone().map(|size| {
        let pages = text_format::count(size.pages);
        format!("{pages} of {}", text_format::bytes(size.page_bytes))
    });
    let each = each.collect::<Vec<_>>().join(", ");
    let given = text_format::count(sizes.filter_map(|size| size.given_on_machine).sum());
    let partial = match seen.complete {
        true => "",
        false => " (first 64 GiB only)",
    };
    let age_s = seen.age_s;
    format!(
        "{each}, counted {age_s:.1} s ago{partial}; {given} given at first touches on this machine"
    )
}

/// Remarks about what only the journal shows, not the figures.
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
    let further = "sampling windows were further apart than asked for";
    notes.extend(stretched.map(|because| format!("{further}: {because}")));
    notes.extend(held.map(|hold| format!("promotion was held back: {hold}")));
    const SHOWN: usize = 3;
    notes.extend(troubles.into_iter().take(SHOWN));
    notes
}

/// How long promotion waited for its budget, and when it would have continued.
pub fn budget_waits(manager: &Manager<impl Machine>) -> Option<String> {
    let now = manager.machine().now();
    let waits = &manager.promotion_pacing().waits;
    let (waited, budget) = waits.total_wait(now)?;
    let waited = text_format::short_duration(waited.as_secs_f64());
    let mut note = format!("promotion waited {waited} in all for a budget: {budget}");
    if let Some(wait) = waits.current(now) {
        let left = text_format::short_duration(wait.until.saturating_sub(now).as_secs_f64());
        note += &format!("; it would have continued in {left}");
    }
    Some(note)
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let program = &self.program;
        write!(f, "hawkeye: {}", self.subject)?;
        if let Some(status) = self.exit_status {
            write!(f, " ended with status {status}")?;
        }
        let Self {
            wall_s,
            profile,
            policy,
            ..
        } = self;
        writeln!(
            f,
            " after {wall_s:.1} s, profile {profile}, policy {policy}"
        )?;
        writeln!(
            f,
            "  program     {:.1} s user, {:.1} s system, {} minor faults, at most {} resident",
            program.user_s,
            program.system_s,
            text_format::count(program.minor_faults),
            text_format::bytes(program.rss_peak_bytes),
        )?;
        let [rss, huge] = [program.rss_end_bytes, program.huge_end_bytes].map(text_format::bytes);
        writeln!(f, "  at the end  {rss} resident, {huge} of it huge")?;
        let shares: Vec<f64> = self
            .footprints
            .iter()
            .map(|p| p.huge_bytes as f64 / p.rss_bytes.max(1) as f64)
            .collect();
        if shares.len() > 1 {
            writeln!(
                f,
                "  huge share  |{}| over time",
                text_format::bar_line(&shares, 60)
            )?;
        }
        let [promoted, split] = [self.promoted, self.split].map(text_format::count);
        for variable in &self.first_touch.set {
            writeln!(f, "  first touch {}={}", variable.name, variable.value)?;
        }
        let recovered = text_format::bytes(self.recovered_bytes);
        let first = self
            .first_promotion_s
            .map(|s| format!(", the first after {s:.1} s"));
        let first = first.unwrap_or_default();
        writeln!(
            f,
            "  promoted    {promoted} regions{first}; split {split} huge pages, recovered {recovered}"
        )?;
        if let Some(choice) = &self.prefault {
            writeln!(f, "  prefault    {}", self.prefault_text(choice))?;
        }
        if let Some(seen) = &self.page_sizes {
            writeln!(f, "  page sizes  {}", page_sizes_text(seen))?;
        }
        if !self.errors.is_empty() {
            writeln!(f, "  refused     {}", text_format::errors(&self.errors))?;
        }
        let percent = self.manager_cpu_s * 100.0 / self.wall_s;
        // Less than a second is too short for a share.
        let share = match self.wall_s >= 1.0 {
            true => format!(" ({percent:.1} % of a core)"),
            false => String::new(),
        };
        writeln!(
            f,
            "  manager     {:.2} s of CPU time{share}, longest call {:.1} ms, {} windows by {}",
            self.manager_cpu_s, self.longest_call_ms, self.samples, self.sampler,
        )?;
        for note in &self.notes {
            writeln!(f, "  note        {note}")?;
        }
        Ok(())
    }
}
