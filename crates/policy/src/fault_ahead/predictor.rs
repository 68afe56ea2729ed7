//! All streams of all processes, and whose turn it is.

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
    streams: BTreeMap<ProcessId, Vec<Stream>>,
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

/// A stream by its process and its place among that process's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Which {
    process: ProcessId,
    stream: usize,
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
            let streams = self.streams.entry(process).or_default();
            streams.push(Stream::down_from(now, last));
        }
    }

    /// Forgets streams that were not heard of for long.
    pub fn forget_ended(&mut self, now: Duration) {
        let (settings, unused) = (&self.settings, &mut self.unused);
        for streams in self.streams.values_mut() {
            streams.retain(|stream| {
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
        if streams.iter_mut().any(|s| s.hear(now, advance, &settings)) {
            return;
        }
        if streams.len() >= STREAMS_PER_PROCESS {
            let quietest = streams.iter().enumerate().min_by_key(|(_, s)| s.heard_at());
            if let Some((quietest, _)) = quietest {
                self.unused += streams.remove(quietest).surplus();
            }
        }
        let mut stream = Stream::new(now, advance, &settings);
        if self.warm.contains_key(&process) {
            stream.trust();
        }
        streams.push(stream);
    }

    /// What to fill next: for the stream with the least left ahead of it, and what was asked for after all that is
    /// touched just now. `around` tells what may be filled around
    /// a region; without an answer its stream is forgotten.
    pub fn next_fill(
        &mut self,
        now: Duration,
        mut around: impl FnMut(ProcessId, RegionAddr) -> Option<Surroundings>,
    ) -> Option<Task> {
        let mut wanting: Vec<((bool, u64), Which)> = Vec::new();
        for (process, streams) in &self.streams {
            let process = *process;
            let proven_only = self.proven_only(now, process);
            let here = streams.iter().enumerate();
            wanting.extend(
                here.filter(|(_, s)| s.wants() && (s.is_proven() || !proven_only))
                    .map(|(stream, s)| ((s.asked_for(), s.surplus()), Which { process, stream })),
            );
        }
        wanting.sort_by_key(|(urgency, _)| *urgency);
        wanting.into_iter().find_map(|(_, which)| {
            let stream = self.get(which)?;
            let region = stream.due(&around(which.process, stream.head())?)?;
            Some(Task {
                process: which.process,
                region,
                which,
            })
        })
    }

    /// Whether enough was filled for this process on suspicion.
    fn proven_only(&self, now: Duration, process: ProcessId) -> bool {
        let unproven = self.unproven.get(&process);
        unproven.is_some_and(|u| u.regions >= MOST_UNPROVEN && now < u.since + UNPROVEN_AGE)
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

    /// What came of it.
    pub fn filled(&mut self, now: Duration, task: Task, what: Filled) {
        match what {
            Filled::Refused => self.forget_stream(task.which),
            Filled::Done | Filled::Occupied => {
                if what == Filled::Done {
                    self.use_up_warm(task.process);
                    if self.get(task.which).is_some_and(|s| !s.is_proven()) {
                        self.note_unproven(now, task.process);
                    }
                }
                if let Some(stream) = self.get_mut(task.which) {
                    stream.dealt_with(what == Filled::Done);
                }
            }
        }
    }

    /// When to look next whether a program has come to a filled region, and at which.
    pub fn next_peek(&self) -> Option<(Duration, Task)> {
        let streams = self.streams.iter().flat_map(|(process, streams)| {
            streams.iter().enumerate().filter_map(|(stream, s)| {
                let (at, region) = s.peek()?;
                let process = *process;
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
            streams.iter().enumerate().find_map(|(stream, s)| {
                let process = *process;
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
    }

    /// Whether all streams of a process that were heard of just now were given up, and no other is known to use what
    /// is filled.
    pub fn given_up(&self, now: Duration, process: ProcessId) -> bool {
        let streams = self.streams.get(&process).map_or(&[][..], Vec::as_slice);
        let mut latest = streams.iter().filter(|s| now < s.heard_at() + JUST_NOW);
        let good = |s: &Stream| s.window() > 0 && s.is_proven();
        latest.next().is_some_and(|s| s.window() == 0)
            && latest.all(|s| s.window() == 0)
            && !streams.iter().any(good)
    }

    /// Streams of a process that were given up count no more: it may have changed.
    pub fn forget_given_up(&mut self, process: ProcessId) {
        let unused = &mut self.unused;
        if let Some(streams) = self.streams.get_mut(&process) {
            streams.retain(|stream| {
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
    }

    /// Nothing more of a process is filled on request: the request ends, and the streams that stand for its mappings.
    pub fn cool(&mut self, process: ProcessId) {
        self.warm.remove(&process);
        if let Some(streams) = self.streams.get_mut(&process) {
            streams.retain(|stream| !stream.asked_for());
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
        self.streams.values().flatten().map(Stream::surplus).sum()
    }

    /// Regions filled ahead of streams that ended before they came to them, at the most: those of processes that
    /// live on.
    pub fn unused(&self) -> u64 {
        self.unused
    }

    fn get(&self, which: Which) -> Option<&Stream> {
        self.streams.get(&which.process)?.get(which.stream)
    }

    fn get_mut(&mut self, which: Which) -> Option<&mut Stream> {
        self.streams.get_mut(&which.process)?.get_mut(which.stream)
    }

    fn forget_stream(&mut self, which: Which) {
        let streams = self.streams.get_mut(&which.process);
        if let Some(streams) = streams.filter(|all| which.stream < all.len()) {
            streams.remove(which.stream);
        }
    }
}

#[cfg(test)]
mod tests;
