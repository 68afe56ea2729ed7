//! Programs over time.

use crate::engine::Engine;
use hawkeye_manager::Machine;
use serde::Serialize;
use std::time::Duration;

/// Where a program stands at some time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimelinePoint {
    /// When, in seconds since the machine started.
    pub time_s: f64,
    /// Which of the run's programs, from 0.
    pub program: usize,
    /// Resident memory, in bytes.
    pub rss_bytes: u64,
    /// Of it under huge pages.
    pub huge_bytes: u64,
    /// Share of its cycles in page walks since the point before, in per cent; 0 where it made no accesses.
    pub overhead_percent: f64,
}

/// Points of a run up to which all are kept: then every second one goes, and points are twice as far apart.
const MOST_TIMES: usize = 512;

/// Collects points, some hundred of them however long a run takes.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    /// Points of one time together.
    times: Vec<Vec<TimelinePoint>>,
    /// From one time to the next.
    every: Duration,
    next: Duration,
    /// Cycles, and those in walks, of each program, at the last point.
    before: Vec<(f64, f64)>,
}

impl Timeline {
    /// Adds a point if it is time for one, or if it is the last.
    pub(crate) fn note(&mut self, engine: &Engine, last: bool) {
        let now = engine.now();
        if now < self.next && !last {
            return;
        }
        self.next = now + self.every;
        let standing = engine.standing();
        self.before.resize(standing.len(), (0.0, 0.0));
        let mut points = Vec::new();
        for (program, (stands, before)) in standing.iter().zip(&mut self.before).enumerate() {
            let (cycles, walks) = (stands.cycles - before.0, stands.walk_cycles - before.1);
            *before = (stands.cycles, stands.walk_cycles);
            let percent = if cycles > 0.0 {
                walks / cycles * 100.0
            } else {
                0.0
            };
            points.push(TimelinePoint {
                time_s: now.as_secs_f64(),
                program,
                rss_bytes: stands.rss_bytes,
                huge_bytes: stands.huge_bytes,
                overhead_percent: percent.min(100.0),
            });
        }
        self.times.push(points);
        if self.times.len() >= MOST_TIMES {
            let mut number = 0;
            self.times.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.every = (self.every * 2).max(Duration::from_secs(2));
        }
    }

    pub(crate) fn into_points(self) -> Vec<TimelinePoint> {
        self.times.into_iter().flatten().collect()
    }
}
