//! All streams of all processes, and which of them is filled next.

use super::{FaultStream, PrefaultableMemory, RegionTouch, StreamFaultReport};
use crate::observation::ProcessId;
use crate::page::RegionAddr;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

/// Threads that touch memory in parallel have one stream each. As many mappings can be filled on
/// request.
const STREAMS_PER_PROCESS: usize = 16;

/// The result of filling a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefaultResult {
    /// The region is a huge page now, and it was not one before.
    Done,
    /// The program was there first, wholly or partly.
    Occupied,
    /// The region cannot be filled: its mapping is gone, or memory is short.
    Refused,
}

/// Follows streams and decides what to fill next.
#[derive(Clone, Debug, Default)]
pub struct PrefaultPredictor {
    /// Those of a process are ordered by start: an id is not used twice.
    streams: BTreeMap<StreamKey, FaultStream>,
    next_id: u64,
    /// Regions that were handed out and have no result yet.
    under_way: BTreeMap<(ProcessId, RegionAddr), PrefaultUnderWay>,
    warm: BTreeMap<ProcessId, u64>,
    unproven: BTreeMap<ProcessId, UnprovenPrefaults>,
    unused: u64,
}

/// Regions filled for streams of a process that had not yet shown that they use them.
#[derive(Clone, Copy, Debug)]
struct UnprovenPrefaults {
    regions: u32,
    since: Duration,
}

#[derive(Clone, Copy, Debug)]
struct PrefaultUnderWay {
    /// For a stream that had not yet shown that it uses what is filled.
    unproven: bool,
    /// For a program that is gone or was replaced by another one.
    forgotten: bool,
}

/// At most this many of them (48 MiB) ...
const MOST_UNPROVEN: usize = 24;
/// ... in this time, unless one is seen to be in use.
const UNPROVEN_AGE: Duration = Duration::from_secs(60);

/// A process with a report within this time is at work.
const JUST_NOW: Duration = Duration::from_millis(100);

type StreamKey = (ProcessId, u64);

/// A region to fill, or to check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefaultTask {
    /// The process.
    pub process: ProcessId,
    /// The region.
    pub region: RegionAddr,
    /// What its program has done there.
    pub touch: RegionTouch,
    stream: u64,
}

impl PrefaultPredictor {
    /// Fills `regions` regions of the process's memory as soon as it is mapped, as its user asked.
    /// The program is known to touch all of it, so its reports need no proof.
    pub fn request_warm_start(&mut self, process: ProcessId, regions: u64) {
        self.warm.insert(process, regions);
    }

    /// Regions of a process that are still to be filled on request.
    pub fn warm_start_regions_left(&self, process: ProcessId) -> u64 {
        self.warm.get(&process).copied().unwrap_or(0)
    }

    /// A large mapping appeared in a process with a fill request still open. It ends with the
    /// region `last`.
    pub fn on_new_mapping(&mut self, now: Duration, process: ProcessId, last: RegionAddr) {
        if self.warm_start_regions_left(process) > 0 {
            self.add_stream(process, FaultStream::from_mapping_end(now, last));
        }
    }

    /// Adds a stream. If there are too many of its kind, it replaces the quietest one.
    fn add_stream(&mut self, process: ProcessId, stream: FaultStream) {
        let same_kind = |(_, other): &(_, &FaultStream)| other.asked_for == stream.asked_for;
        if self.streams_of_process(process).filter(same_kind).count() >= STREAMS_PER_PROCESS {
            // Of mappings seen at once, the smallest was added last.
            let own = self.streams_of_process(process).filter(same_kind);
            let quietest = own.max_by_key(|(_, other)| Reverse(other.heard_at));
            if let Some(quietest) = quietest.map(|(key, _)| *key) {
                let removed = self.streams.remove(&quietest);
                self.unused += removed.map_or(0, |stream| stream.count_unreached_regions());
            }
        }
        self.streams.insert((process, self.next_id), stream);
        self.next_id += 1;
    }

    fn streams_of_process(
        &self,
        process: ProcessId,
    ) -> impl Iterator<Item = (&StreamKey, &FaultStream)> {
        self.streams.range((process, 0)..=(process, u64::MAX))
    }

    /// Forgets streams without a report for a long time.
    pub fn forget_ended_streams(&mut self, now: Duration) {
        self.forget_streams_where(|_, stream| stream.has_ended(now));
    }

    /// Forgets streams of a process for which `ended` is true. What was filled for them is unused.
    fn forget_streams_where(&mut self, ended: impl Fn(ProcessId, &FaultStream) -> bool) {
        self.streams.retain(|(process, _), stream| {
            let ended = ended(*process, stream);
            self.unused += if ended { stream.count_unreached_regions() } else { 0 };
            !ended
        });
    }

    /// Takes in a report of first touches in a process.
    pub fn on_fault_report(
        &mut self,
        now: Duration,
        process: ProcessId,
        report: StreamFaultReport,
    ) {
        self.forget_ended_streams(now);
        let mut own = self.streams.range_mut((process, 0)..=(process, u64::MAX));
        if own.any(|(_, stream)| stream.accept_fault_report(now, report)) {
            return;
        }
        let mut stream = FaultStream::new(now, report);
        if self.warm.contains_key(&process) {
            stream.proven = true;
        }
        self.add_stream(process, stream);
    }

    /// The next region to fill. The stream with the least left ahead of it comes first. Memory
    /// filled on request comes after all that is being touched. The region is under way until
    /// [`Self::on_prefault_result`] reports the result; any number may be, and none is handed out
    /// twice. `around` returns what may be filled around a region, given the state of memory after
    /// all fills so far. Where it returns `None` nothing is filled.
    pub fn hand_out_next_prefault(
        &mut self,
        now: Duration,
        mut around: impl FnMut(ProcessId, RegionAddr) -> Option<PrefaultableMemory>,
    ) -> Option<PrefaultTask> {
        let warm = |process| {
            self.warm_start_regions_left(process)
                > self.prefaults_under_way_of_process(process).count() as u64
        };
        let wanting = self.streams.iter().filter(|((process, _), s)| {
            s.has_room_to_prefault()
                && (s.proven || !self.has_reached_unproven_limit(now, *process))
                && (!s.asked_for || warm(*process))
        });
        let mut wanting: Vec<_> =
            wanting.map(|(key, s)| (s.asked_for, s.count_unreached_regions(), *key)).collect();
        wanting.sort_unstable();
        let all_under_way = self.count_prefaults_under_way();
        let task = wanting.into_iter().find_map(|(_, _, key)| {
            let stream = self.streams.get_mut(&key)?;
            let mut around = around(key.0, stream.last_reported_region())?;
            // Other processes with fills under way may fall under the same limit.
            around.room_regions = around.room_regions.saturating_sub(all_under_way);
            let region = stream.region_to_prefault(&around)?;
            // Another stream may have come to the same one.
            (!self.under_way.contains_key(&(key.0, region)))
                .then_some(task_for(&key, stream, region))
        })?;
        let stream = self.stream_of_task_mut(task)?;
        stream.on_prefault_handed_out(task.region, task.touch);
        let fill = PrefaultUnderWay { unproven: !stream.proven, forgotten: false };
        self.under_way.insert((task.process, task.region), fill);
        Some(task)
    }

    fn has_reached_unproven_limit(&self, now: Duration, process: ProcessId) -> bool {
        let noted = self.unproven.get(&process).filter(|u| now < u.since + UNPROVEN_AGE);
        let noted = noted.map_or(0, |u| u.regions as usize);
        let under_way = self.prefaults_under_way_of_process(process).filter(|fill| fill.unproven);
        noted + under_way.count() >= MOST_UNPROVEN
    }

    fn prefaults_under_way_of_process(
        &self,
        process: ProcessId,
    ) -> impl Iterator<Item = &PrefaultUnderWay> {
        let of_process = self.under_way.iter().filter(move |((owner, _), _)| *owner == process);
        of_process.map(|(_, fill)| fill).filter(|f| !f.forgotten)
    }

    fn record_unproven_prefault(&mut self, now: Duration, process: ProcessId) {
        let first = UnprovenPrefaults { regions: 0, since: now };
        let unproven = self.unproven.entry(process).or_insert(first);
        if now >= unproven.since + UNPROVEN_AGE {
            *unproven = first;
        }
        unproven.regions += 1;
    }

    /// Takes in the result of a fill; returns whether its stream ends with it.
    pub fn on_prefault_result(
        &mut self,
        now: Duration,
        task: PrefaultTask,
        what: PrefaultResult,
    ) -> bool {
        let fill = self.under_way.remove(&(task.process, task.region));
        if what == PrefaultResult::Refused {
            return self.streams.remove(&(task.process, task.stream)).is_some();
        }
        // A region filled for a program that is gone counts for no process.
        if let Some(fill) = fill.filter(|fill| what == PrefaultResult::Done && !fill.forgotten) {
            self.count_down_warm_start(task.process);
            let stream = self.streams.get(&(task.process, task.stream));
            let proven = stream.is_some_and(|stream| stream.proven);
            if fill.unproven && !proven {
                self.record_unproven_prefault(now, task.process);
            }
        }
        if let Some(stream) = self.stream_of_task_mut(task) {
            stream.on_prefault_result(task.region, what == PrefaultResult::Done);
        }
        false
    }

    /// Regions that are being filled: handed out, and without a result yet.
    pub fn count_prefaults_under_way(&self) -> u64 {
        self.under_way.len() as u64
    }

    /// When to check next whether a program has reached a filled region, and which one.
    pub fn next_progress_check(&self) -> Option<(Duration, PrefaultTask)> {
        let peeks = self.streams.iter().filter_map(|(key, stream)| {
            let (at, region) = stream.planned_progress_check()?;
            Some((at, task_for(key, stream, region)))
        });
        peeks.min_by_key(|(at, _)| *at)
    }

    /// Takes in the result of that check.
    pub fn on_progress_check_result(&mut self, now: Duration, task: PrefaultTask, halfway: bool) {
        if let Some(stream) = self.stream_of_task_mut(task) {
            stream.on_progress_check_result(now, halfway);
        }
    }

    /// A filled region that its program has passed, to check whether it is in use.
    pub fn next_use_check(&self) -> Option<PrefaultTask> {
        let mut all = self.streams.iter();
        all.find_map(|(key, stream)| Some(task_for(key, stream, stream.region_to_check_use()?)))
    }

    /// Takes in the result of that check.
    pub fn on_use_check_result(&mut self, task: PrefaultTask, in_use: bool) {
        if in_use {
            self.unproven.remove(&task.process);
        }
        if let Some(stream) = self.stream_of_task_mut(task) {
            stream.on_use_check_result(in_use);
        }
    }

    /// A process is gone, or no longer managed.
    pub fn forget_process(&mut self, process: ProcessId) {
        self.retain_processes(|other| other != process);
    }

    /// Whether all streams of a process with a recent report were given up, and no other stream is
    /// known to use what is filled.
    pub fn has_given_up_on_process(&self, now: Duration, process: ProcessId) -> bool {
        let streams = || self.streams_of_process(process).map(|(_, stream)| stream);
        let mut latest = streams().filter(|s| now < s.heard_at + JUST_NOW);
        let good = |s: &FaultStream| s.window > 0 && s.proven;
        latest.next().is_some_and(|s| s.window == 0)
            && latest.all(|s| s.window == 0)
            && !streams().any(good)
    }

    /// Forgets that streams of a process were given up, because the process may have changed.
    pub fn forget_given_up_streams(&mut self, process: ProcessId) {
        self.forget_streams_where(|of, stream| of == process && stream.window == 0);
    }

    /// Keeps only the processes for which `is_there` is true.
    pub fn retain_processes(&mut self, is_there: impl Fn(ProcessId) -> bool) {
        self.streams.retain(|(process, _), _| is_there(*process));
        self.warm.retain(|process, _| is_there(*process));
        self.unproven.retain(|process, _| is_there(*process));
        for ((process, _), fill) in &mut self.under_way {
            fill.forgotten |= !is_there(*process);
        }
    }

    /// Ends the request to fill memory of a process, and the streams that stand for its mappings.
    pub fn cancel_warm_start(&mut self, process: ProcessId) {
        self.warm.remove(&process);
        self.streams.retain(|(owner, _), stream| *owner != process || !stream.asked_for);
    }

    /// A filled region is no huge page any more, or cannot be checked. Its stream is followed no
    /// further.
    pub fn on_prefaulted_region_gone(&mut self, task: PrefaultTask) {
        if let Some(stream) = self.streams.remove(&(task.process, task.stream)) {
            self.unused += stream.count_unreached_regions();
        }
    }

    fn count_down_warm_start(&mut self, process: ProcessId) {
        let Some(left) = self.warm.get_mut(&process) else { return };
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.cancel_warm_start(process);
        }
    }

    /// Regions filled ahead of streams that have not been reported there yet, at most.
    pub fn count_regions_prefaulted_ahead(&self) -> u64 {
        self.streams.values().map(FaultStream::count_unreached_regions).sum()
    }

    /// Regions, at most, filled ahead of streams that ended before they reached them. Only
    /// processes that still run count.
    pub fn count_unused_regions(&self) -> u64 {
        self.unused
    }

    fn stream_of_task_mut(&mut self, task: PrefaultTask) -> Option<&mut FaultStream> {
        self.streams.get_mut(&(task.process, task.stream))
    }
}

fn task_for(
    &(process, stream_id): &StreamKey,
    stream: &FaultStream,
    region: RegionAddr,
) -> PrefaultTask {
    PrefaultTask { process, region, touch: stream.touch_of_region(region), stream: stream_id }
}

#[cfg(test)]
mod tests;
