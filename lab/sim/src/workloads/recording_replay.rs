//! A workload out of a recording: it repeats what was seen of processes, on any system.
//!
//! Coverage shows which pages were in use in each window and which of them were accessed, but not
//! how often. A replay therefore keeps these facts:
//! - when memory grew, and where;
//! - how much of each region is in use;
//! - which parts are hot, and when;
//! - how much the process computed.
//!
//! Shared memory becomes private memory of each process that maps it.
//!
//! The rest is chosen, the same for all recordings: `PAGE_NS`, `CYCLES`, and the distribution of
//! accesses. Accesses to a part are in proportion to its accessed pages, or to its page walks where
//! regions were probed for walks alone. A part with its accessed pages in few runs is read in
//! order, any other at random. Memory that was given back stays. What was seen in a window holds
//! until the next window.
//!
//! A recording of any length is reduced, as it is read, to `SLOTS` spans of time and `STRETCHES`
//! stretches of each process's memory.

use super::workload_spec::{
    AccessStream, Area, FillContent, Phase, Process, StreamPattern, WorkloadSpec,
};
use super::{ByteSize, WorkloadSpecError};
use hawkeye_policy::{HUGE_PAGE_BYTES, PAGES_PER_REGION, ProcessId};
use hawkeye_recording::{AccessSource, CoverageRow};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

const SLOTS: usize = 32;
/// Most streams of a process, apart from areas.
const STRETCHES: u64 = 64;
/// The program's own work for each base page that it fills, in nanoseconds: writing to it.
const PAGE_NS: f64 = 500.0;
/// The program's own work for a random access, in cycles.
const CYCLES: f64 = 100.0;
/// The program's own work for an access in order, in cycles.
const CYCLES_IN_ORDER: f64 = 10.0;
/// Mean number of accessed pages in a run from which a part is read in order.
const PAGES_IN_A_RUN: u64 = 16;

/// Reduces a recording to a workload.
#[derive(Debug, Default)]
pub struct RecordingReplay {
    processes: BTreeMap<ProcessId, RecordedProcess>,
    every: Duration,
}

#[derive(Debug)]
struct RecordedProcess {
    command: String,
    began: Duration,
    slots: BTreeMap<u64, TimeSlot>,
}

#[derive(Debug, Default)]
struct TimeSlot {
    last: Option<Duration>,
    windows: u32,
    cpu_cores: f64,
    overhead_percent: f64,
    regions: BTreeMap<u64, RegionSums>,
}

/// What was seen of a region in a span of time.
#[derive(Clone, Copy, Debug, Default)]
struct RegionSums {
    most_present: u16,
    accessed: u64,
    runs: u64,
}

/// How much a region was accessed in a window, and in how many runs. Page walks count instead where
/// only walks were sampled.
fn accessed_pages_and_runs(row: &CoverageRow) -> (u64, u64) {
    let region = &row.region;
    match row.source {
        AccessSource::Probed => (region.walks_per_s.into(), region.walks_per_s.into()),
        _ => (region.accessed.into(), region.runs.into()),
    }
}

impl TimeSlot {
    fn add_row(&mut self, row: &CoverageRow) {
        if self.last != Some(row.at) {
            self.last = Some(row.at);
            self.windows += 1;
            self.cpu_cores += row.cpu_cores;
            self.overhead_percent += row.overhead_percent.unwrap_or(0.0);
        }
        let region = &row.region;
        let number = region.region.start() / HUGE_PAGE_BYTES;
        let sums = self.regions.entry(number).or_default();
        sums.most_present = sums.most_present.max(region.present);
        let (accessed, runs) = accessed_pages_and_runs(row);
        sums.accessed += accessed;
        sums.runs += runs;
    }

    fn merge(&mut self, later: Self) {
        self.last = later.last.or(self.last);
        self.windows += later.windows;
        self.cpu_cores += later.cpu_cores;
        self.overhead_percent += later.overhead_percent;
        for (number, more) in later.regions {
            let sums = self.regions.entry(number).or_default();
            sums.most_present = sums.most_present.max(more.most_present);
            sums.accessed += more.accessed;
            sums.runs += more.runs;
        }
    }

    /// Share of time in which the process ran, as one thread, 0-1.
    fn running_share(&self) -> f64 {
        (self.cpu_cores / f64::from(self.windows.max(1))).clamp(0.0, 1.0)
    }

    /// Share of running time that was the program's own work, without address translation.
    fn own_work_share_of_running_time(&self) -> f64 {
        let overhead_percent = self.overhead_percent / f64::from(self.windows.max(1));
        1.0 - (overhead_percent / 100.0).clamp(0.0, 0.99)
    }
}

impl RecordingReplay {
    /// Adds a row; rows come in order of time.
    pub fn add_row(&mut self, row: &CoverageRow) {
        if self.every.is_zero() {
            self.every = Duration::from_secs(1);
        }
        while slot_number(row.at, self.every) >= SLOTS as u64 {
            self.every *= 2;
            for seen in self.processes.values_mut() {
                for (number, slot) in std::mem::take(&mut seen.slots) {
                    seen.slots.entry(number / 2).or_default().merge(slot);
                }
            }
        }
        let seen = self.processes.entry(row.process);
        let seen = seen.or_insert_with(|| RecordedProcess {
            command: row.command.to_string(),
            began: row.at,
            slots: BTreeMap::new(),
        });
        let slot = slot_number(row.at, self.every);
        seen.slots.entry(slot).or_default().add_row(row);
    }

    /// The workload.
    ///
    /// # Errors
    /// Nothing was recorded, or more than a workload can be.
    pub fn finish(self, name: &str) -> Result<WorkloadSpec, WorkloadSpecError> {
        let every = self.every;
        let processes = self.processes.into_values().map(|seen| seen.into_process(every));
        let workload = WorkloadSpec {
            name: name.to_owned(),
            source: "a recording; own work for accesses is chosen".to_owned(),
            processes: processes.collect(),
            guests: Vec::new(),
        };
        workload.check()?;
        Ok(workload)
    }
}

fn slot_number(at: Duration, every: Duration) -> u64 {
    (at.as_micros() / every.as_micros().max(1)) as u64
}

/// Number of spans of time that each of these (ascending) stands for: until the next one. The last
/// one stands for the smallest such distance, because the end of its process is unknown.
fn slot_lengths(numbers: &[u64]) -> Vec<u64> {
    let next = numbers.windows(2).map(|pair| pair[1] - pair[0]);
    let mut lengths: Vec<u64> = next.collect();
    lengths.push(lengths.iter().copied().min().unwrap_or(1));
    lengths
}

/// Neighbouring regions, by number.
fn contiguous_ranges(numbers: impl Iterator<Item = u64>) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some(range) if range.end == number => range.end += 1,
            _ => ranges.push(number..number + 1),
        }
    }
    ranges
}

impl RecordedProcess {
    fn into_process(self, every: Duration) -> Process {
        let mut most: BTreeMap<u64, u16> = BTreeMap::new();
        for slot in self.slots.values() {
            for (number, sums) in &slot.regions {
                let present = most.entry(*number).or_default();
                *present = sums.most_present.max(*present);
            }
        }
        most.retain(|_, present| *present > 0);
        let areas = contiguous_ranges(most.keys().copied());
        let total: u64 = areas.iter().map(|area| area.end - area.start).sum();
        let stretch = total.div_ceil(STRETCHES).max(1);
        let mut filled = BTreeSet::new();
        let mut phases = Vec::new();
        let numbers: Vec<u64> = self.slots.keys().copied().collect();
        for (slot, length) in self.slots.values().zip(slot_lengths(&numbers)) {
            for (area, held) in areas.iter().enumerate() {
                let new = slot.regions.range(held.clone()).map(|(number, _)| *number);
                let new = new.filter(|number| most.contains_key(number) && filled.insert(*number));
                for range in contiguous_ranges(new) {
                    phases.push(fill_phase(area, held, range, &most));
                }
            }
            let span_s = every.as_secs_f64() * length as f64;
            phases.extend(access_phases(slot, &areas, stretch, span_s));
        }
        let areas = areas.iter().enumerate().map(|(number, area)| Area {
            name: number.to_string(),
            size: ByteSize((area.end - area.start) * HUGE_PAGE_BYTES),
            start: None,
            pieces: None,
            file: None,
        });
        Process {
            start_s: self.began.as_secs_f64(),
            ..Process::new(self.command, areas.collect(), phases)
        }
    }
}

fn share_range_of_area(area: &Range<u64>, range: &Range<u64>) -> [f64; 2] {
    let share = |number: u64| (number - area.start) as f64 / (area.end - area.start) as f64;
    [share(range.start), share(range.end)]
}

fn fill_phase(
    area: usize,
    held: &Range<u64>,
    range: Range<u64>,
    most: &BTreeMap<u64, u16>,
) -> Phase {
    let present = most.range(range.clone()).map(|(_, present)| u64::from(*present));
    let pages = present.sum::<u64>() / (range.end - range.start).max(1);
    Phase::Fill {
        area: area.to_string(),
        part: share_range_of_area(held, &range),
        pages_per_region: pages.clamp(1, PAGES_PER_REGION.into()) as u16,
        pages_per_run: 1,
        page_ns: PAGE_NS,
        content: FillContent::Data,
        waited_percent: 100.0,
    }
}

/// Phases that access what was accessed in `span_s` seconds, and a pause for the rest of that time.
fn access_phases(slot: &TimeSlot, areas: &[Range<u64>], stretch: u64, span_s: f64) -> Vec<Phase> {
    let mut streams = Vec::new();
    for (area, held) in areas.iter().enumerate() {
        for start in held.clone().step_by(stretch as usize) {
            let range = start..(start + stretch).min(held.end);
            let sums = slot.regions.range(range.clone()).map(|(_, sums)| sums);
            let (accessed, runs) = sums.fold((0, 0), |(a, r), s| (a + s.accessed, r + s.runs));
            if accessed == 0 {
                continue;
            }
            let in_order = accessed >= runs * PAGES_IN_A_RUN;
            // Accesses, not pages: in-order access makes 64 accesses to a page.
            streams.push(AccessStream {
                area: area.to_string(),
                part: share_range_of_area(held, &range),
                pattern: if in_order { StreamPattern::Stride(64) } else { StreamPattern::Random },
                weight: accessed as f64 * if in_order { 64.0 } else { 1.0 },
                stores_percent: 0.0,
                cycles: if in_order { CYCLES_IN_ORDER } else { CYCLES },
                waited_percent: 100.0,
            });
        }
    }
    let running_s = span_s * slot.running_share();
    if streams.is_empty() || running_s <= 0.0 {
        return vec![Phase::Wait { seconds: span_s }];
    }
    let mut phases = vec![Phase::Access {
        ideal_s: Some(running_s * slot.own_work_share_of_running_time()),
        accesses: None,
        idle_ns: 0.0,
        streams,
    }];
    if running_s < span_s {
        let seconds = span_s - running_s;
        phases.push(Phase::Wait { seconds });
    }
    phases
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_policy::{RegionAddr, RegionSample};

    fn row(at_s: u64, region: u64, accessed: u16, runs: u16) -> CoverageRow {
        CoverageRow {
            at: Duration::from_secs(at_s),
            window: Duration::from_secs(1),
            source: AccessSource::AccessBits,
            process: ProcessId { pid: 7, start_ticks: 1 },
            command: "redis".into(),
            cpu_cores: 0.5,
            overhead_percent: Some(20.0),
            region: RegionSample {
                present: 400,
                accessed,
                runs,
                ..RegionSample::new_full_and_untouched(RegionAddr::containing(region << 21))
            },
        }
    }

    fn replay(rows: &[CoverageRow]) -> WorkloadSpec {
        let mut replay = RecordingReplay::default();
        rows.iter().for_each(|row| replay.add_row(row));
        replay.finish("test").unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn memory_grows_and_is_hot_where_it_was_seen() {
        let rows = [row(0, 10, 300, 290), row(0, 11, 10, 10), row(9, 10, 0, 0), row(9, 20, 400, 1)];
        let workload = replay(&rows);
        let process = &workload.processes[0];
        assert_eq!((process.name.as_str(), process.start_s), ("redis", 0.0));
        let sizes: Vec<u64> = process.areas.iter().map(|area| area.size.0 >> 21).collect();
        assert_eq!(sizes, [2, 1]);
        let [
            Phase::Fill { part, pages_per_region: 400, pages_per_run: 1, .. },
            first,
            Phase::Wait { seconds: 4.5 },
            Phase::Fill { area, .. },
            second,
            Phase::Wait { seconds: 4.5 },
        ] = &process.phases[..]
        else {
            panic!("{:?}", process.phases);
        };
        assert_eq!((part, area.as_str()), (&[0.0, 1.0], "1"));
        let streams = |phase: &Phase| match phase {
            Phase::Access { ideal_s, streams, .. } => (*ideal_s, streams.clone()),
            other => panic!("{other:?}"),
        };
        let (ideal_s, hot) = streams(first);
        assert_eq!((ideal_s, hot.len(), hot[0].weight, hot[1].weight), (Some(3.6), 2, 300.0, 10.0));
        assert_eq!(hot[0].pattern, StreamPattern::Random);
        let (_, in_order) = streams(second);
        assert_eq!((in_order.len(), in_order[0].pattern), (1, StreamPattern::Stride(64)));
    }

    fn spent_s(workload: &WorkloadSpec) -> (f64, f64) {
        let phases = workload.processes[0].phases.iter();
        phases.fold((0.0, 0.0), |(own, waited), phase| match phase {
            Phase::Access { ideal_s, .. } => (own + ideal_s.unwrap_or(0.0), waited),
            Phase::Wait { seconds } => (own, waited + seconds),
            _ => (own, waited),
        })
    }

    #[test]
    fn no_time_is_lost_between_windows_that_are_rare() {
        let mut rows: Vec<_> = (0..4).map(|n| row(n * 32, 10, 300, 290)).collect();
        rows.iter_mut().for_each(|row| row.overhead_percent = Some(0.0));
        assert_eq!(spent_s(&replay(&rows)), (64.0, 64.0));
        rows.iter_mut().for_each(|row| row.cpu_cores = 3.0);
        assert_eq!(spent_s(&replay(&rows)), (128.0, 0.0));
        rows.iter_mut().for_each(|row| row.cpu_cores = 0.0);
        assert_eq!(spent_s(&replay(&rows)), (0.0, 128.0));
    }

    #[test]
    fn where_walks_were_looked_for_they_say_what_is_hot() {
        let probed = |region, walks_per_s| {
            let mut row = row(0, region, 512, 1);
            row.source = AccessSource::Probed;
            row.region.walks_per_s = walks_per_s;
            row
        };
        let workload = replay(&[probed(10, 900), probed(11, 0), probed(12, 100)]);
        let accesses = workload.processes[0].phases.iter().find_map(|p| match p {
            Phase::Access { streams, .. } => Some(streams.clone()),
            _ => None,
        });
        let weights: Vec<f64> = accesses.iter().flatten().map(|s| s.weight).collect();
        assert_eq!(weights, [900.0, 100.0]);
    }

    #[test]
    fn history_of_any_length_is_summarised() {
        let rows: Vec<_> = (0..5000).map(|s| row(s, 10 + s % 200, 100, 100)).collect();
        let process = &replay(&rows).processes[0];
        let accesses = process.phases.iter().filter(|p| matches!(p, Phase::Access { .. }));
        assert!((SLOTS / 2..=SLOTS).contains(&accesses.count()));
        let most = process.phases.iter().map(|phase| match phase {
            Phase::Access { streams, .. } => streams.len(),
            _ => 0,
        });
        assert!(most.max() <= Some(STRETCHES as usize));
    }

    #[test]
    fn an_empty_recording_is_no_workload() {
        let error = RecordingReplay::default().finish("nothing.parquet").expect_err("refused");
        assert!(error.to_string().contains("nothing.parquet"), "{error}");
    }
}
