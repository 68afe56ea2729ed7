//! All streams of all processes, and whose turn it is.

use super::under_way::UnderWay;
use super::{Advance, FaultAheadSettings, Stream, Surroundings};
use crate::observation::ProcessId;
use crate::page::RegionAddr;
use std::collections::BTreeMap;
use std::time::Duration;

/// Streams of one process that are followed at the most: threads that touch memory in parallel have one each.
const STREAMS_PER_PROCESS: usize = 16;

/// What came of filling a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    /// It is a huge page now that nobody has touched.
    Done,
    /// Its program was there first, wholly or partly.
    Occupied,
    /// It can't be: whatever was mapped there is gone, or memory is short.
    Refused,
}

/// Follows streams and says what to fill next.
#[derive(Clone, Debug, Default)]
pub struct Predictor {
    settings: FaultAheadSettings,
    /// By when they began: an id is not used twice.
    streams: BTreeMap<ProcessId, BTreeMap<StreamId, Stream>>,
    next_id: StreamId,
    under_way: UnderWay,
    /// Regions that are still to be filled on request.
    warm: BTreeMap<ProcessId, u64>,
    unproven: BTreeMap<ProcessId, Unproven>,
    unused: u64,
}

/// Regions that were filled for streams of a process that had not shown yet that they use them.
#[derive(Clone, Copy, Debug)]
struct Unproven {
    regions: u32,
    since: Duration,
}

/// So many of them at the most (48 MiB) ...
const MOST_UNPROVEN: u32 = 24;
/// ... in this time, unless one is seen to be in use.
const UNPROVEN_AGE: Duration = Duration::from_secs(60);

/// Who was heard of within this time is at work.
const JUST_NOW: Duration = Duration::from_millis(100);

/// Tells streams apart; those of the same process too.
type StreamId = u64;

/// A stream of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Which {
    process: ProcessId,
    stream: StreamId,
}

/// A region to fill, or to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// Whose.
    pub process: ProcessId,
    /// Which region.
    pub region: RegionAddr,
    which: Which,
}

impl Predictor {
    /// For nobody yet.
    pub fn new(settings: FaultAheadSettings) -> Self {
        Self {
            settings,
            ..Self::default()
        }
    }

    /// So many regions of a process's memory are filled as soon as it is mapped, as its user asked: it is known to
    /// touch all of it. What it is heard in is filled without waiting for proof.
    pub fn warm(&mut self, process: ProcessId, regions: u64) {
        self.warm.insert(process, regions);
    }

    /// Regions of a process that are still to be filled on request.
    pub fn still_warm(&self, process: ProcessId) -> u64 {
        self.warm.get(&process).copied().unwrap_or(0)
    }

    /// Large memory was mapped, in a process of which something is still to be filled on request; it ends with the
    /// region `last`.
    pub fn mapped(&mut self, now: Duration, process: ProcessId, last: RegionAddr) {
        if self.still_warm(process) > 0 {
            self.add(process, Stream::down_from(now, last));
        }
    }

    fn add(&mut self, process: ProcessId, stream: Stream) {
        let streams = self.streams.entry(process).or_default();
        streams.insert(self.next_id, stream);
        self.next_id += 1;
    }

    /// Forgets streams that were not heard of for long.
    pub fn forget_ended(&mut self, now: Duration) {
        let (settings, unused) = (&self.settings, &mut self.unused);
        for streams in self.streams.values_mut() {
            streams.retain(|_, stream| {
                let ended = stream.has_ended(now, settings);
                *unused += if ended { stream.surplus() } else { 0 };
                !ended
            });
        }
    }

    /// A process was heard of.
    pub fn hear(&mut self, now: Duration, process: ProcessId, advance: Advance) {
        self.forget_ended(now);
        let settings = self.settings;
        let streams = self.streams.entry(process).or_default();
        let mut all = streams.values_mut();
        if all.any(|s| s.hear(now, advance, &settings)) {
            return;
        }
        if streams.len() >= STREAMS_PER_PROCESS {
            let quietest = streams.iter().min_by_key(|(_, s)| s.heard_at());
            if let Some(quietest) = quietest.map(|(id, _)| *id) {
                let removed = streams.remove(&quietest);
                self.unused += removed.map_or(0, |stream| stream.surplus());
            }
        }
        let mut stream = Stream::new(now, advance, &settings);
        if self.warm.contains_key(&process) {
            stream.trust();
        }
        self.add(process, stream);
    }

    /// What to fill next: for the stream with the least left ahead of it, and what was asked for after all that is
    /// touched just now. It is under way from now on, until [`Self::filled`] is told what came of it; any number may be,
    /// of which none is handed out twice. `around` tells what may be filled around a region, by how memory was when all
    /// that was filled so far was there; without an answer nothing is.
    pub fn next_fill(
        &mut self,
        now: Duration,
        mut around: impl FnMut(ProcessId, RegionAddr) -> Option<Surroundings>,
    ) -> Option<Task> {
        let mut wanting: Vec<((bool, u64), Which)> = Vec::new();
        for (process, streams) in &self.streams {
            let process = *process;
            let proven_only = self.proven_only(now, process);
            let warm = self.still_warm(process) > self.under_way.of(process);
            let may = |s: &Stream| (s.is_proven() || !proven_only) && (warm || !s.asked_for());
            let here = streams.iter().filter(|(_, s)| s.wants() && may(s));
            wanting.extend(here.map(|(stream, s)| {
                let stream = *stream;
                ((s.asked_for(), s.surplus()), Which { process, stream })
            }));
        }
        wanting.sort_by_key(|(urgency, _)| *urgency);
        let all_under_way = self.under_way.all();
        let task = wanting.into_iter().find_map(|(_, which)| {
            let stream = self.get(which)?;
            let mut around = around(which.process, stream.head())?;
            // Whoever else is filled for may fall under the same limit.
            around.room_regions = around.room_regions.saturating_sub(all_under_way);
            let process = which.process;
            let region = stream.due(&around)?;
            // Another stream may have come to the same one.
            (!self.under_way.contains(process, region)).then_some(Task {
                process,
                region,
                which,
            })
        })?;
        let stream = self.get_mut(task.which)?;
        stream.handed_out();
        let unproven = !stream.is_proven();
        self.under_way.begin(task.process, task.region, unproven);
        Some(task)
    }

    /// Whether enough was filled for this process on suspicion.
    fn proven_only(&self, now: Duration, process: ProcessId) -> bool {
        let noted = self.unproven.get(&process);
        let noted = noted.filter(|u| now < u.since + UNPROVEN_AGE);
        let noted = noted.map_or(0, |u| u.regions);
        noted + self.under_way.unproven(process) >= MOST_UNPROVEN
    }

    fn note_unproven(&mut self, now: Duration, process: ProcessId) {
        let first = Unproven {
            regions: 0,
            since: now,
        };
        let unproven = self.unproven.entry(process).or_insert(first);
        if now >= unproven.since + UNPROVEN_AGE {
            *unproven = first;
        }
        unproven.regions += 1;
    }

    /// What came of it; whether its stream ends with that.
    pub fn filled(&mut self, now: Duration, task: Task, what: Filled) -> bool {
        let fill = self.under_way.end(task.process, task.region);
        if what == Filled::Refused {
            return self.forget_stream(task.which);
        }
        // What was filled for a program that is gone counts for nobody.
        if let Some(fill) = fill.filter(|fill| what == Filled::Done && !fill.forgotten) {
            self.use_up_warm(task.process);
            let proven = self.get(task.which).is_some_and(Stream::is_proven);
            if fill.unproven && !proven {
                self.note_unproven(now, task.process);
            }
        }
        if let Some(stream) = self.get_mut(task.which) {
            stream.dealt_with(task.region, what == Filled::Done);
        }
        false
    }

    /// Regions that are being filled: handed out, and not yet heard of again.
    pub fn under_way(&self) -> u64 {
        self.under_way.all()
    }

    /// When to look next whether a program has come to a filled region, and at which.
    pub fn next_peek(&self) -> Option<(Duration, Task)> {
        let streams = self.streams.iter().flat_map(|(process, streams)| {
            streams.iter().filter_map(|(stream, s)| {
                let (at, region) = s.peek()?;
                let (process, stream) = (*process, *stream);
                let which = Which { process, stream };
                Some((
                    at,
                    Task {
                        process,
                        region,
                        which,
                    },
                ))
            })
        });
        streams.min_by_key(|(at, _)| *at)
    }

    /// Whether it has.
    pub fn peeked(&mut self, now: Duration, task: Task, halfway: bool) {
        let settings = self.settings;
        if let Some(stream) = self.get_mut(task.which) {
            stream.peeked(now, halfway, &settings);
        }
    }

    /// A region that was filled and that its program has passed: is it in use?
    pub fn next_look(&self) -> Option<Task> {
        self.streams.iter().find_map(|(process, streams)| {
            streams.iter().find_map(|(stream, s)| {
                let (process, stream) = (*process, *stream);
                Some(Task {
                    process,
                    region: s.passed_witness()?,
                    which: Which { process, stream },
                })
            })
        })
    }

    /// The answer.
    pub fn looked_at(&mut self, task: Task, in_use: bool) {
        if in_use {
            self.unproven.remove(&task.process);
        }
        if let Some(stream) = self.get_mut(task.which) {
            stream.looked_at(in_use);
        }
    }

    /// A process is gone, or no longer managed.
    pub fn forget(&mut self, process: ProcessId) {
        self.streams.remove(&process);
        self.warm.remove(&process);
        self.unproven.remove(&process);
        self.under_way.forget(|whose| whose == process);
    }

    /// Whether all streams of a process that were heard of just now were given up, and no other is known to use what
    /// is filled.
    pub fn given_up(&self, now: Duration, process: ProcessId) -> bool {
        let streams = || {
            self.streams
                .get(&process)
                .into_iter()
                .flat_map(|s| s.values())
        };
        let mut latest = streams().filter(|s| now < s.heard_at() + JUST_NOW);
        let good = |s: &Stream| s.window() > 0 && s.is_proven();
        latest.next().is_some_and(|s| s.window() == 0)
            && latest.all(|s| s.window() == 0)
            && !streams().any(good)
    }

    /// Streams of a process that were given up count no more: it may have changed.
    pub fn forget_given_up(&mut self, process: ProcessId) {
        let unused = &mut self.unused;
        if let Some(streams) = self.streams.get_mut(&process) {
            streams.retain(|_, stream| {
                let given_up = stream.window() == 0;
                *unused += if given_up { stream.surplus() } else { 0 };
                !given_up
            });
        }
    }

    /// Only these processes are there still.
    pub fn retain(&mut self, is_there: impl Fn(ProcessId) -> bool) {
        self.streams.retain(|process, _| is_there(*process));
        self.warm.retain(|process, _| is_there(*process));
        self.unproven.retain(|process, _| is_there(*process));
        self.under_way.forget(|process| !is_there(process));
    }

    /// Nothing more of a process is filled on request: the request ends, and the streams that stand for its mappings.
    pub fn cool(&mut self, process: ProcessId) {
        self.warm.remove(&process);
        if let Some(streams) = self.streams.get_mut(&process) {
            streams.retain(|_, stream| !stream.asked_for());
        }
    }

    /// What was filled is no huge page any more, or can't be looked at: its stream is followed no further.
    pub fn lost(&mut self, task: Task) {
        if let Some(stream) = self.get(task.which) {
            self.unused += stream.surplus();
            self.forget_stream(task.which);
        }
    }

    /// One region less of what was asked for.
    fn use_up_warm(&mut self, process: ProcessId) {
        let Some(left) = self.warm.get_mut(&process) else {
            return;
        };
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.cool(process);
        }
    }

    /// Regions filled ahead of streams that were not heard of there yet, at the most.
    pub fn ahead(&self) -> u64 {
        let streams = self.streams.values().flat_map(BTreeMap::values);
        streams.map(Stream::surplus).sum()
    }

    /// Regions filled ahead of streams that ended before they came to them, at the most: those of processes that
    /// live on.
    pub fn unused(&self) -> u64 {
        self.unused
    }

    fn get(&self, which: Which) -> Option<&Stream> {
        self.streams.get(&which.process)?.get(&which.stream)
    }

    fn get_mut(&mut self, which: Which) -> Option<&mut Stream> {
        let streams = self.streams.get_mut(&which.process)?;
        streams.get_mut(&which.stream)
    }

    /// Whether it was there.
    fn forget_stream(&mut self, which: Which) -> bool {
        let streams = self.streams.get_mut(&which.process);
        streams.is_some_and(|streams| streams.remove(&which.stream).is_some())
    }
}

#[cfg(test)]
mod tests;
