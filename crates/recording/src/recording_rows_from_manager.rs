//! Turns what a manager observed and did since the last call into rows.

use crate::{AccessSource, CoverageRow, DecisionRow, MemoryRow, ProcessRow, RecordingRow};
use hawkeye_manager::{Event, Machine, Manager};
use hawkeye_policy::ProcessId;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The shortest interval between rows of footprints and memory.
const FIGURES_EVERY: Duration = Duration::from_secs(1);
/// And at most this many processes per second.
const PROCESSES_A_SECOND: u32 = 10;

/// Remembers what was already taken.
#[derive(Debug, Default)]
pub struct RecordingRowsFromManager {
    shown: Duration,
    entries_seen: u64,
    next_figures: Duration,
    commands: HashMap<ProcessId, Arc<str>>,
}

impl RecordingRowsFromManager {
    /// The new rows, in order of time since management began. `bloat` is the known bloat by
    /// process, in bytes.
    pub fn take_new_rows<M: Machine>(
        &mut self,
        manager: &Manager<M>,
        bloat: impl Fn(ProcessId) -> Option<u64>,
    ) -> Vec<RecordingRow> {
        let now = manager.machine().now();
        let mut rows = Vec::new();
        self.add_decision_rows(manager, &mut rows);
        self.add_sample_rows(manager, &mut rows);
        if now >= self.next_figures {
            self.add_process_and_memory_rows(now, manager, bloat, &mut rows);
        }
        rows.sort_by_key(RecordingRow::time_since_start);
        rows
    }

    fn command_of_process<M: Machine>(&mut self, process: ProcessId, machine: &M) -> Arc<str> {
        let known = self.commands.entry(process);
        Arc::clone(known.or_insert_with(|| machine.describe(process).name.into()))
    }

    fn add_sample_rows<M: Machine>(&mut self, manager: &Manager<M>, rows: &mut Vec<RecordingRow>) {
        let window = manager.settings().window;
        let all_cleared = manager.policy().sample_kinds().includes_coverage();
        let mut last = self.shown;
        for (at, sample) in manager.last_samples().samples_after(self.shown) {
            let command = self.command_of_process(sample.process, manager.machine());
            let source = AccessSource::from_coverage_source(sample.source, all_cleared);
            let regions = CoverageRow::rows_of_sample(at, window, source, &command, sample);
            rows.extend(regions.map(RecordingRow::Region));
            last = last.max(at);
        }
        self.shown = last;
    }

    fn add_decision_rows<M: Machine>(
        &mut self,
        manager: &Manager<M>,
        rows: &mut Vec<RecordingRow>,
    ) {
        let journal = manager.journal();
        let measure_only = manager.settings().measure_only;
        let new = journal.entries_after_count(self.entries_seen);
        for entry in new.filter(|entry| !needs_no_decision_row(&entry.event, measure_only)) {
            let process = entry
                .event
                .process()
                .map(|process| (process, self.command_of_process(process, manager.machine())));
            rows.push(RecordingRow::Decision(DecisionRow {
                at: entry.at,
                process,
                region: entry.event.region(),
                event: entry.event.kind().into(),
                reason: entry.event.to_string().into(),
            }));
        }
        self.entries_seen = journal.written_entries;
    }

    fn add_process_and_memory_rows<M: Machine>(
        &mut self,
        now: Duration,
        manager: &Manager<M>,
        bloat: impl Fn(ProcessId) -> Option<u64>,
        rows: &mut Vec<RecordingRow>,
    ) {
        let footprints = manager.last_samples().footprints();
        let there = footprints.len() as u32;
        self.next_figures = now + FIGURES_EVERY * there.div_ceil(PROCESSES_A_SECOND).max(1);
        self.commands.retain(|process, _| manager.last_samples().footprint(*process).is_some());
        for (process, footprint) in footprints {
            let command = self.command_of_process(process, manager.machine());
            let figures = manager.last_samples().figures(process);
            rows.push(RecordingRow::Process(ProcessRow {
                at: now,
                process,
                command,
                cpu_cores: figures.map(|figures| figures.cpu_cores),
                overhead_percent: figures.and_then(|it| it.overhead).map(|it| it.percent),
                rss_bytes: footprint.rss_bytes,
                huge_bytes: footprint.huge_bytes,
                bloat_bytes: bloat(process),
            }));
        }
        rows.extend(manager.memory().state.as_ref().map(|memory| {
            RecordingRow::Memory(MemoryRow {
                at: now,
                used_bytes: memory.machine.used_bytes,
                total_bytes: memory.machine.total_bytes,
                pressure_percent: memory.pressure_percent,
                fmfi: memory.fmfi,
                manager_cpu_percent: Some(manager.limits().all_cpu.percent_of_core(now)),
            })
        }));
    }
}

/// Samples are rows of their own, and with measurement only, nothing is held back.
fn needs_no_decision_row(event: &Event, measure_only: bool) -> bool {
    matches!(event, Event::Sampled { .. }) || measure_only && matches!(event, Event::Held { .. })
}
