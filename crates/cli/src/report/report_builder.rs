//! The second reading: sums all rows up on grids over the extent that the first reading found.

use super::decisions::DecisionCollector;
use super::heat_map::HeatMapBuilder;
use super::memory_by_kind::{LastSharedRegions, LastWindowMemory, MemoryByKindBuilder};
use super::recording_extent::{MOST_MAPS, RecordingExtent};
use super::recording_report::{MachineFigures, ProcessFigures, RecordingReport};
use super::time_series::TimeSeries;
use hawkeye_policy::{PAGES_PER_REGION, ProcessId};
use hawkeye_recording::{
    CoverageRow, DecisionRow, MemoryRow, ProcessRow, RecordingMetadata, RecordingRow,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Number of processes without figures up to which they are counted.
const MOST_LEFT_OUT: usize = 1 << 16;

pub struct ReportBuilder {
    length: Duration,
    /// Processes that have figures, and the others that occur.
    with_figures: BTreeSet<ProcessId>,
    left_out: BTreeSet<ProcessId>,
    maps: BTreeMap<ProcessId, HeatMapBuilder>,
    processes: BTreeMap<ProcessId, ProcessFiguresBuilder>,
    shared_regions: LastSharedRegions,
    machine: MachineFigures,
    decisions: DecisionCollector,
    /// When processes were last looked at. One that had ended by then has no row of that time.
    last_footprints: Option<Duration>,
}

#[derive(Debug, Default)]
struct ProcessFiguresBuilder {
    figures: ProcessFigures,
    last_window: Option<Duration>,
    last_window_memory: LastWindowMemory,
    last_footprint: Option<Duration>,
    accessed: u64,
    regions: u64,
    /// Sum over all windows, and the number of windows in which it was known.
    overhead: (f64, u64),
    cpu_cores: f64,
}

impl ProcessFiguresBuilder {
    fn add_window(&mut self, row: &CoverageRow) {
        self.last_window = Some(row.at);
        self.last_window_memory = LastWindowMemory::default();
        let figures = &mut self.figures;
        figures.windows += 1;
        row.source.name().clone_into(&mut figures.source);
        self.cpu_cores += row.cpu_cores;
        if let Some(percent) = row.overhead_percent {
            self.overhead = (self.overhead.0 + percent, self.overhead.1 + 1);
            let most = figures.overhead_max_percent.unwrap_or(0.0).max(percent);
            figures.overhead_max_percent = Some(most);
            figures.overhead_percent.add_value(row.at, percent);
        }
    }

    fn add_footprint(&mut self, row: &ProcessRow) {
        self.last_footprint = Some(row.at);
        let figures = &mut self.figures;
        figures.to_s = row.at.as_secs_f64();
        figures.rss_end_bytes = row.rss_bytes;
        figures.rss_peak_bytes = figures.rss_peak_bytes.max(row.rss_bytes);
        figures.huge_end_bytes = row.huge_bytes;
        figures.rss_bytes.add_value(row.at, row.rss_bytes as f64);
        figures.huge_bytes.add_value(row.at, row.huge_bytes as f64);
        figures.bloat_end_bytes = row.bloat_bytes.or(figures.bloat_end_bytes);
        let bloat_bytes = row.bloat_bytes.map(|bytes| bytes as f64);
        figures.bloat_bytes.add_value(row.at, bloat_bytes);
    }

    fn finish(self, map: Option<HeatMapBuilder>) -> ProcessFigures {
        let mean = |sum: f64, count: u64| (count > 0).then(|| sum / count as f64);
        let pages = self.regions * u64::from(PAGES_PER_REGION);
        let shared = self.last_window_memory.shared;
        ProcessFigures {
            shared_end_bytes: shared.resident_bytes,
            shared_huge_end_bytes: shared.huge_bytes,
            overhead_mean_percent: mean(self.overhead.0, self.overhead.1),
            cpu_cores_mean: mean(self.cpu_cores, self.figures.windows),
            coverage_mean_percent: mean(self.accessed as f64 * 100.0, pages),
            map: map.map(HeatMapBuilder::finish),
            ..self.figures
        }
    }
}

impl ReportBuilder {
    pub fn for_recording_extent(extent: RecordingExtent) -> Self {
        Self::with_max_shared_regions(extent, LastSharedRegions::MOST_REGIONS)
    }

    pub(super) fn with_max_shared_regions(extent: RecordingExtent, most_regions: usize) -> Self {
        let length = extent.length;
        let series = || TimeSeries::for_recording_length(length);
        let filling = |(id, seen)| (id, HeatMapBuilder::new(&seen));
        let (with_map, with_figures) = extent.into_processes_to_show();
        Self {
            length,
            with_figures,
            left_out: BTreeSet::new(),
            maps: with_map.into_iter().map(filling).collect(),
            processes: BTreeMap::new(),
            shared_regions: LastSharedRegions::with_max_regions(most_regions),
            machine: MachineFigures {
                total_bytes: 0,
                used_bytes: series(),
                pressure_percent: series(),
                fmfi: series(),
                manager_cpu_percent: series(),
            },
            decisions: DecisionCollector::for_recording_length(length.as_secs_f64()),
            last_footprints: None,
        }
    }

    /// Adds a row; rows must come in order of time.
    pub fn add_row(&mut self, row: &RecordingRow) {
        match row {
            RecordingRow::Region(row) => self.add_coverage_row(row),
            RecordingRow::Process(row) => {
                if self.last_footprints != Some(row.at) {
                    self.drop_regions_of_ended_processes();
                    self.last_footprints = Some(row.at);
                }
                let process = self.get_or_create_process_builder(row.process, &row.command, row.at);
                if let Some(process) = process {
                    process.add_footprint(row);
                }
            }
            RecordingRow::Memory(row) => self.add_machine_memory(row),
            RecordingRow::Decision(row) => self.add_decision(row),
        }
    }

    /// Drops the shared memory of processes that are missing from the last round of footprints. The
    /// round must be complete.
    fn drop_regions_of_ended_processes(&mut self) {
        let (processes, round) = (&self.processes, self.last_footprints);
        let has_ended = |process: &ProcessFiguresBuilder| {
            // A new process may have no footprint yet.
            process.last_footprint.is_some()
                && process.last_footprint < round
                && process.last_window < round
        };
        self.shared_regions.retain_processes(|id| !processes.get(&id).is_some_and(has_ended));
    }

    /// `None` for a process that is left out.
    fn get_or_create_process_builder(
        &mut self,
        id: ProcessId,
        command: &str,
        at: Duration,
    ) -> Option<&mut ProcessFiguresBuilder> {
        if !self.with_figures.contains(&id) {
            if self.left_out.len() < MOST_LEFT_OUT {
                self.left_out.insert(id);
            }
            return None;
        }
        // If nothing was sampled, the first processes get lines nevertheless.
        let few = self.maps.is_empty() && self.processes.len() < MOST_MAPS;
        let shown = self.maps.contains_key(&id) || few;
        let series = match shown {
            true => TimeSeries::for_recording_length(self.length),
            false => TimeSeries::default(),
        };
        Some(self.processes.entry(id).or_insert_with(|| ProcessFiguresBuilder {
            figures: ProcessFigures {
                pid: id.pid,
                command: command.to_owned(),
                from_s: at.as_secs_f64(),
                overhead_percent: series.clone(),
                rss_bytes: series.clone(),
                huge_bytes: series.clone(),
                bloat_bytes: series,
                ..ProcessFigures::default()
            },
            ..ProcessFiguresBuilder::default()
        }))
    }

    fn add_coverage_row(&mut self, row: &CoverageRow) {
        if let Some(map) = self.maps.get_mut(&row.process) {
            map.add_coverage_row(row);
        }
        let process = self.get_or_create_process_builder(row.process, &row.command, row.at);
        let Some(process) = process else { return };
        let is_new_window = process.last_window != Some(row.at);
        if is_new_window {
            process.add_window(row);
        }
        process.last_window_memory.add_region(&row.region);
        process.accessed += u64::from(row.region.accessed);
        process.regions += 1;
        process.figures.to_s = row.at.as_secs_f64();
        if is_new_window {
            self.shared_regions.remove_process(row.process);
        }
        self.shared_regions.add_region(row.process, &row.region);
    }

    fn add_machine_memory(&mut self, row: &MemoryRow) {
        let machine = &mut self.machine;
        machine.total_bytes = row.total_bytes;
        machine.used_bytes.add_value(row.at, row.used_bytes as f64);
        machine.pressure_percent.add_value(row.at, row.pressure_percent);
        machine.fmfi.add_value(row.at, row.fmfi);
        let manager_cpu = &mut machine.manager_cpu_percent;
        manager_cpu.add_value(row.at, row.manager_cpu_percent);
    }

    fn add_decision(&mut self, row: &DecisionRow) {
        // The page shows the marks of a process beside its map.
        let (mut place, mut has_mark) = (None, true);
        if let Some((id, command)) = &row.process {
            if let Some(process) = self.get_or_create_process_builder(*id, command, row.at) {
                match &*row.event {
                    "promoted" => process.figures.promoted += 1,
                    "recovered" => process.figures.recovered += 1,
                    "refused" => process.figures.refused += 1,
                    _ => {}
                }
            }
            let map = self.maps.get(id);
            has_mark = map.is_some() || self.maps.is_empty();
            let region = map.zip(row.region);
            place = region.and_then(|(map, region)| map.row_of_address(region.start()));
        }
        self.decisions.add_decision(row);
        if has_mark {
            self.decisions.add_mark(row, place);
        }
    }

    pub fn finish(
        mut self,
        about: &RecordingMetadata,
        unfinished: bool,
        bad_rows: u64,
    ) -> RecordingReport {
        let mut memory = MemoryByKindBuilder::default();
        for (id, process) in &self.processes {
            if process.last_footprint == self.last_footprints {
                memory.add_process(*id, &process.last_window_memory, &self.shared_regions);
            }
        }
        let processes = std::mem::take(&mut self.processes).into_iter();
        let finished = processes.map(|(id, process)| (id, process.finish(self.maps.remove(&id))));
        let mut processes: Vec<(ProcessId, ProcessFigures)> = finished.collect();
        processes.sort_by_key(|(id, p)| (p.map.is_none(), Reverse(p.rss_peak_bytes), *id));
        let (ids, processes): (Vec<_>, Vec<_>) = processes.into_iter().unzip();
        RecordingReport {
            host: about.host.clone(),
            kernel: about.kernel.clone(),
            policy: about.policy.clone(),
            began_unix_s: about.began.map(|began| began.as_secs_f64()),
            length_s: self.length.as_secs_f64(),
            unfinished,
            bad_rows,
            processes,
            processes_left_out: self.left_out.len(),
            memory: memory.finish(),
            machine: self.machine,
            decisions: self.decisions.finish(&ids),
        }
    }
}
