//! First touches of programs' memory: the input of prefault. The live manager gets it from its BPF
//! program (`crates/linux/src/bpf/fault_trace.bpf.c`). The rules and figures here are those of that
//! program (`fault_trace.h`).
//!
//! Differences: the kernel has no clock of its own, and also reports a program that steps too fast
//! to be filled ahead of. No program is suppressed, and nothing is lost between threads.

use super::address_space::RegionId;
use super::{SimulatedKernel, SpaceId};
use hawkeye_policy::RegionAddr;
use hawkeye_policy::prefault::StreamFaultReport;
use std::collections::BTreeMap;

/// Streams that are followed in one address space.
const TRACKS: usize = 8;
/// Largest distance between two regions of one stream, in regions.
const LARGEST_STEP: i64 = 16;
/// Most steps that may have been filled ahead.
const LARGEST_WINDOW: i64 = 128;
/// First touches in a region that make it dense.
const DENSE_TOUCHES: u64 = 64;
/// Steps after which a stream is reported.
const PROVEN: u32 = 2;
/// Limits of the score: touches that continue others, minus touches that don't.
const SCORES: (i32, i32) = (-64, 64);
/// Touches in a burst. Only some bursts of a program with a score below 0 are examined.
const BURST: u32 = 256;
/// One burst in this many is examined then.
const SKIPPED: u32 = 16;

#[derive(Clone, Copy, Debug, Default)]
struct StreamTrack {
    region: i64,
    step: i64,
    touches: u64,
    advances: u32,
}

impl StreamTrack {
    /// Whether a distance continues the stream: one step, or several across filled regions.
    fn continues_stream(&self, distance: i64) -> bool {
        if self.step == 0 || (distance < 0) != (self.step < 0) {
            return false;
        }
        let (far, step) = (distance.abs(), self.step.abs());
        far == step || self.advances >= PROVEN && far <= LARGEST_WINDOW * step && far % step == 0
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct SpaceStreamWatch {
    tracks: Vec<StreamTrack>,
    turn: usize,
    score: i32,
    skipped: u32,
}

impl SpaceStreamWatch {
    fn change_space_score(&mut self, by: i32) {
        self.score = (self.score + by).clamp(SCORES.0, SCORES.1);
    }

    /// Records one first touch; returns the advance that it makes, if it makes one.
    fn record_first_touch(&mut self, region: i64) -> Option<StreamFaultReport> {
        if self.score < 0 {
            let burst = self.skipped / BURST;
            self.skipped = self.skipped.wrapping_add(1);
            if burst % SKIPPED != 0 {
                return None;
            }
        }
        let mut tracks = self.tracks.iter_mut();
        if let Some(track) = tracks.find(|t| t.region == region) {
            track.touches += 1;
            self.change_space_score(1);
            return None;
        }
        let mut tracks = self.tracks.iter_mut();
        if let Some(track) = tracks.find(|t| t.continues_stream(region - t.region)) {
            let dense = track.touches >= DENSE_TOUCHES;
            let exact = region - track.region == track.step;
            (track.region, track.touches) = (region, 1);
            track.advances += 1;
            let (step, proven) = (track.step as i32, track.advances >= PROVEN);
            // A leap may cross filled memory, or be chance.
            if exact {
                self.change_space_score(1);
            }
            return (proven && self.score >= 0).then(|| StreamFaultReport {
                region: RegionAddr::containing((region as u64) << 21),
                step,
                dense,
            });
        }
        self.change_space_score(-1);
        let near =
            |t: &&mut StreamTrack| t.advances < PROVEN && (region - t.region).abs() <= LARGEST_STEP;
        if let Some(track) = self.tracks.iter_mut().find(near) {
            (track.step, track.region) = (region - track.region, region);
            (track.touches, track.advances) = (1, 1);
            return None;
        }
        let track = StreamTrack { region, touches: 1, ..StreamTrack::default() };
        if self.tracks.len() < TRACKS {
            self.tracks.push(track);
        } else if let Some(oldest) = self.tracks.get_mut(self.turn % TRACKS) {
            *oldest = track;
            self.turn += 1;
        }
        None
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct FirstTouchStreamDetector {
    pub(super) watched: BTreeMap<SpaceId, SpaceStreamWatch>,
    advances: Vec<(SpaceId, StreamFaultReport)>,
}

impl FirstTouchStreamDetector {
    pub(crate) fn record_first_touches(&mut self, at: RegionId, pages: u16) {
        let Some(watched) = self.watched.get_mut(&at.space) else {
            return;
        };
        for _ in 0..pages {
            let advance = watched.record_first_touch(at.region as i64);
            self.advances.extend(advance.map(|advance| (at.space, advance)));
        }
    }
}

impl SimulatedKernel {
    /// Starts to watch first touches in an address space.
    pub fn watch_first_touches(&mut self, space: SpaceId) {
        self.reports.first_touch_streams.watched.entry(space).or_default();
    }

    /// The advances from region to region since the last call.
    pub fn take_stream_advances(&mut self) -> Vec<(SpaceId, StreamFaultReport)> {
        std::mem::take(&mut self.reports.first_touch_streams.advances)
    }
}
