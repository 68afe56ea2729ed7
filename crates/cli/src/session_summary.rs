//! The summary of a session, for people and for programs.

use crate::allocator_env_plan::AllocatorEnvPlan;
use crate::commands::prefault_session::PrefaultStartOutcome;
use crate::program_resource_use::ProgramResourceUse;
use crate::text_format::{
    format_bytes, format_count, format_errno_counts, format_short_duration, sparkline_of_shares,
};
use hawkeye_linux::page_sizes::ObservedPageSizes;
use hawkeye_manager::{Event, ExhaustedBudget, FootprintAtTime, Journal, Machine, Manager};
use hawkeye_policy::{Errno, SettingsProfile};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Clone, Debug, Serialize)]
pub struct SessionSummary {
    /// What was managed: the command or the process ids.
    pub subject: String,
    pub profile: SettingsProfile,
    pub policy: &'static str,
    pub sampler: &'static str,
    pub wall_s: f64,
    /// Exit status of the program; none after `attach`.
    pub exit_status: Option<u8>,
    pub promoted: u64,
    pub first_promotion_s: Option<f64>,
    pub split: u64,
    pub recovered_bytes: u64,
    /// What was set in the program's environment, so that its allocator requests huge pages.
    pub first_touch: AllocatorEnvPlan,
    pub filled_ahead_bytes: u64,
    /// CPU time of prefault; not included in the manager's own.
    pub fill_cpu_s: f64,
    /// Whether memory was prefaulted, and why; none with the mode off.
    pub prefault: Option<PrefaultStartOutcome>,
    /// How often a prefault thread paused because other programs wanted every CPU, or all of them
    /// because a call took long.
    pub prefault_pauses: u64,
    /// Candidates passed over because their program was freeing them.
    pub freed_candidates: u64,
    /// Candidates passed over because other processes share their pages.
    pub shared_candidates: u64,
    pub scanned: u64,
    pub samples: u64,
    pub errors: BTreeMap<Errno, u64>,
    /// Pages by size, at the end or when the program was last seen. None where no program gets
    /// sizes other than 4 KiB and 2 MiB.
    pub page_sizes: Option<ObservedPageSizes>,
    pub manager_cpu_s: f64,
    pub longest_call_ms: f64,
    pub program: ProgramResourceUse,
    pub footprints: Vec<FootprintAtTime>,
    /// Remarks for people, a sentence each.
    pub notes: Vec<String>,
}

impl SessionSummary {
    /// The summary for people.
    pub fn summary_text(&self) -> String {
        let program = &self.program;
        let mut out = format!("hawkeye: {}", self.subject);
        if let Some(status) = self.exit_status {
            out += &format!(" ended with status {status}");
        }
        let (wall_s, profile, policy) = (self.wall_s, self.profile, self.policy);
        out += &format!(" after {wall_s:.1} s, profile {profile}, policy {policy}\n");
        let mut line = |name: &str, text: String| out += &format!("  {name:12}{text}\n");
        let (user_s, system_s) = (program.user_s, program.system_s);
        let [peak, rss] = [program.rss_peak_bytes, program.rss_end_bytes].map(format_bytes);
        let huge = format_bytes(program.huge_end_bytes);
        let faults = format_count(program.minor_faults);
        let cpu = format!("{user_s:.1} s user, {system_s:.1} s system");
        line("program", format!("{cpu}, {faults} minor faults, at most {peak} resident"));
        line("at the end", format!("{rss} resident, {huge} of it huge"));
        let share = |at: &FootprintAtTime| at.huge_bytes as f64 / at.rss_bytes.max(1) as f64;
        let shares: Vec<f64> = self.footprints.iter().map(share).collect();
        if shares.len() > 1 {
            let bars = sparkline_of_shares(&shares, 60);
            line("huge share", format!("|{bars}| over time"));
        }
        for variable in &self.first_touch.set {
            let (name, value) = (&variable.name, &variable.value);
            line("first touch", format!("{name}={value}"));
        }
        let first = self.first_promotion_s.map(|s| format!(", the first after {s:.1} s"));
        let promoted = format_count(self.promoted) + " regions" + &first.unwrap_or_default();
        let (split, recovered) = (format_count(self.split), format_bytes(self.recovered_bytes));
        line("promoted", format!("{promoted}; split {split} huge pages, recovered {recovered}"));
        if let Some(outcome) = &self.prefault {
            line("prefault", self.prefault_text(outcome));
        }
        if let Some(seen) = &self.page_sizes {
            line("page sizes", observed_sizes_text(seen));
        }
        if !self.errors.is_empty() {
            line("refused", format_errno_counts(&self.errors));
        }
        let (cpu_s, longest_ms) = (self.manager_cpu_s, self.longest_call_ms);
        // Less than a second is too short for a share.
        let share = match wall_s >= 1.0 {
            true => format!(" ({:.1} % of a core)", cpu_s * 100.0 / wall_s),
            false => String::new(),
        };
        let calls = format!("longest call {longest_ms:.1} ms");
        let samples = format!("{} samples by {}", self.samples, self.sampler);
        line("manager", format!("{cpu_s:.2} s of CPU time{share}, {calls}, {samples}"));
        for note in &self.notes {
            line("note", note.clone());
        }
        out
    }

    fn prefault_text(&self, outcome: &PrefaultStartOutcome) -> String {
        let reason = &outcome.reason;
        if !outcome.on {
            return format!("off: {reason}");
        }
        let (filled, cpu_s) = (format_bytes(self.filled_ahead_bytes), self.fill_cpu_s);
        let pauses = match self.prefault_pauses {
            0 => String::new(),
            n => format!("; paused {n} times, as no CPU was spare or a call took long"),
        };
        format!("{filled}, in {cpu_s:.2} s of CPU time, {reason}{pauses}")
    }
}

pub fn observed_sizes_text(seen: &ObservedPageSizes) -> String {
    if seen.sizes.is_empty() {
        return "only 4 KiB pages".into();
    }
    let sizes = seen.sizes.iter();
    let given = format_count(sizes.clone().filter_map(|size| size.given_on_machine).sum());
    let counts = sizes.map(|size| (format_count(size.pages), format_bytes(size.page_bytes)));
    let each = counts.map(|(pages, bytes)| format!("{pages} of {bytes}"));
    let each = each.collect::<Vec<_>>().join(", ");
    let partial = if seen.complete { "" } else { " (first 64 GiB only)" };
    let counted = format!("counted {:.1} s ago{partial}", seen.age_s);
    format!("{each}, {counted}; {given} given at first touches on this machine")
}

/// Remarks about what only the journal shows, not the figures.
pub fn notes_from_journal(journal: &Journal) -> Vec<String> {
    let (mut held, mut errors) = (None, Vec::new());
    for entry in journal.entries() {
        match &entry.event {
            Event::Held { hold: Some(hold) } => held = Some(hold),
            Event::Trouble { message } if !errors.contains(message) => errors.push(message.clone()),
            _ => {}
        }
    }
    const MOST_ERRORS: usize = 3;
    errors.truncate(MOST_ERRORS);
    let held = held.map(|hold| format!("promotion was held back: {hold}"));
    held.into_iter().chain(errors).collect()
}

/// What budgets held back, a sentence for each kind of work.
pub fn budget_wait_notes(manager: &Manager<impl Machine>) -> Vec<String> {
    let now = manager.machine().now();
    let note = |(waited, budget): (Duration, ExhaustedBudget)| {
        let (work, waited) = (budget.work(), format_short_duration(waited.as_secs_f64()));
        let note = format!("{work} waited {waited} in all for a budget: {budget}");
        let current = manager.budget_waits().find(|wait| wait.budget.work() == work);
        let Some(until) = current.and_then(|wait| wait.until) else { return note };
        let left = format_short_duration(until.saturating_sub(now).as_secs_f64());
        format!("{note}; it would have continued in {left}")
    };
    manager.limits().waits.total_waits(now).map(note).collect()
}
