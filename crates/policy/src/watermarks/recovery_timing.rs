//! Starting recovery early enough: how fast memory fills up, how fast it can be recovered, and how
//! often its use is read.

use super::Watermarks;
use crate::budget::TokenBucket;
use crate::observation::MemoryUse;
use std::time::Duration;

/// Smoothed growth of memory use. It follows a rise within a tenth of a second and forgets it over
/// seconds, because being late costs more. What the manager itself takes is no growth.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MemoryGrowth {
    bytes_per_s: f64,
    /// Growth between the last two readings; 0 where use shrank.
    newest_bytes_per_s: f64,
    /// When a reading last showed growth.
    grew_at: Option<Duration>,
    /// When use was last read, and what it would be by now from the manager's own changes alone.
    last: Option<(Duration, f64)>,
    /// All growth so far, in bytes; decreases are not subtracted.
    total_bytes: f64,
}

/// Time constant of the average while growth rises, and while it falls.
const RISE_S: f64 = 0.1;
const FALL_S: f64 = 3.0;
/// Growth of less than this share of the average counts as none. A fill is up to twenty times
/// slower where the host must back memory first.
const GOES_ON: f64 = 0.03;
/// Growth has ended when readings have shown none for this time. A container with a CPU limit may
/// stand still for nearly 0.1 s.
const STOPPED_AFTER: Duration = Duration::from_millis(200);
/// Bytes per second. Slower growth counts as none: it never fills memory in time.
const STILL: f64 = 4096.0;

impl MemoryGrowth {
    /// When the clock stands still or went back, the call only sets the new starting point.
    pub(super) fn record_use(&mut self, now: Duration, used_bytes: u64) {
        let used = used_bytes as f64;
        let Some((then, before)) = self.last.replace((now, used)) else { return };
        let seconds = now.saturating_sub(then).as_secs_f64();
        if seconds <= 0.0 {
            self.last = Some((then.max(now), before));
            return;
        }
        let newest = (used - before) / seconds;
        let constant_s = if newest > self.bytes_per_s { RISE_S } else { FALL_S };
        let weight = 1.0 - (-seconds / constant_s).exp();
        self.bytes_per_s += weight * (newest - self.bytes_per_s);
        self.newest_bytes_per_s = newest.max(0.0);
        if newest > GOES_ON * self.bytes_per_s {
            self.grew_at = Some(now);
        }
        self.total_bytes += (used - before).max(0.0);
    }

    /// The manager took this much, in bytes, or gave it back (below 0).
    pub(super) fn record_manager_use(&mut self, taken_bytes: i64) {
        if let Some((_, used)) = &mut self.last {
            *used += taken_bytes as f64;
        }
    }

    /// Growth in bytes per second; 0 where use stands still or shrinks.
    pub(super) fn bytes_per_s(&self) -> f64 {
        if self.bytes_per_s > STILL { self.bytes_per_s } else { 0.0 }
    }

    /// Growth between the last two readings, in bytes per second.
    pub(super) fn newest_bytes_per_s(&self) -> f64 {
        self.newest_bytes_per_s
    }

    /// Whether readings have shown growth lately.
    pub(super) fn goes_on(&self) -> bool {
        let read_at = self.last.map(|(at, _)| at);
        let grew_at = self.grew_at.zip(read_at);
        grew_at.is_some_and(|(grew_at, at)| at.saturating_sub(grew_at) < STOPPED_AFTER)
    }

    pub(super) fn total_growth_bytes(&self) -> f64 {
        self.total_bytes
    }
}

/// Smoothed over the work of searching and splitting. Searches that find nothing don't count,
/// because this is not a measure of how much there is to find.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecoverySpeed {
    /// Over 0.
    pub(super) bytes_per_s: f64,
}

/// Assumed before any recovery: half of a huge page in about 0.6 ms, with some margin.
const DEFAULT_SPEED: f64 = (1u64 << 30) as f64;
/// Weight of the newest split.
const NEWEST: f64 = 0.05;

impl Default for RecoverySpeed {
    fn default() -> Self {
        Self { bytes_per_s: DEFAULT_SPEED }
    }
}

impl RecoverySpeed {
    pub(super) fn record_recovery(&mut self, bytes: u64, took: Duration) {
        let seconds = took.as_secs_f64();
        if bytes > 0 && seconds > 0.0 {
            self.bytes_per_s += NEWEST * (bytes as f64 / seconds - self.bytes_per_s);
        }
    }
}

/// Margin for recovery, which starts with a delay and shares the CPU with programs.
const SAFETY_S: f64 = 0.5;
/// Recovery ends at least this share of the way between the two marks below its start. Otherwise it
/// would start and end all the time.
const LEAST_RECOVERED: f64 = 0.25;

/// The share in use, in per cent, above which recovery starts.
///
/// Let `L` be the total, `low` the low mark, `g` the growth, `r` the recovery speed and `s` the
/// margin. Recovery starts where memory would be full before it is back at the low mark:
///
/// ```text
/// (L - used) / g  <  (used - low) / r + s      that is      used > (r L + g low - s g r) / (r + g)
/// ```
///
/// It starts at the high mark at the latest, and at `earliest_percent` at the earliest. Without
/// growth the result is the high mark; it falls as growth rises.
pub(super) fn recovery_start_percent(
    marks: Watermarks,
    earliest_percent: f64,
    total_bytes: u64,
    growth_bytes_per_s: f64,
    recovery_bytes_per_s: f64,
) -> f64 {
    let (high, low) = (marks.high_percent(), marks.low_percent());
    let (g, r) = (growth_bytes_per_s.max(0.0), recovery_bytes_per_s);
    if g == 0.0 {
        return high;
    }
    let total = total_bytes.max(1) as f64;
    let start = (r * total + g * total * low / 100.0 - SAFETY_S * g * r) / (r + g);
    (start / total * 100.0).clamp(earliest_percent, high)
}

/// The earliest start of recovery in the whole machine, however fast its memory fills.
pub(super) fn earliest_start_of_machine(marks: Watermarks) -> f64 {
    marks.low_percent() + LEAST_RECOVERED * (marks.high_percent() - marks.low_percent())
}

/// The same in a cgroup that recovery keeps up with: as far below the low mark as that is below the
/// high one, but not under half of it. Cgroups are small, and a program in a full one is killed at
/// once.
pub(super) fn earliest_start_of_group(marks: Watermarks) -> f64 {
    let low = marks.low_percent();
    (low - (marks.high_percent() - low)).max(low / 2.0)
}

/// The start in a cgroup that fills faster than it can be recovered. It is full at some time, and
/// the later recovery starts, the less its programs can take until then.
pub(super) fn start_if_outrun(marks: Watermarks) -> f64 {
    marks.low_percent() / 2.0
}

/// The share in use, in per cent, under which recovery ends that starts at `start_percent`: the low
/// mark, or less where it starts early.
pub(super) fn recovery_end_percent(marks: Watermarks, start_percent: f64) -> f64 {
    let (high, low) = (marks.high_percent(), marks.low_percent());
    (start_percent - LEAST_RECOVERED * (high - low)).max(start_percent / 2.0).min(low)
}

/// Time until memory is full at this growth; `None`: never.
pub(super) fn time_to_full(usage: MemoryUse, growth_bytes_per_s: f64) -> Option<Duration> {
    let room = usage.total_bytes.saturating_sub(usage.used_bytes) as f64;
    (growth_bytes_per_s > 0.0)
        .then(|| Duration::try_from_secs_f64(room / growth_bytes_per_s).unwrap_or(Duration::MAX))
}

/// CPU time for groups in danger, in which neither budgets nor pauses count. Without a limit, a
/// program that fills huge pages faster than they are split would take a core for ever. All groups
/// together have a limit too, because one user can make many groups, and new ones at any time.
#[derive(Clone, Copy, Debug)]
pub(super) struct UrgentWorkLimit {
    cpu_s: TokenBucket,
    rests_until: Option<Duration>,
}

/// CPU time for urgent work, in cores: of one group, of all together, and of the reserve.
const URGENT_CORES: f64 = 0.25;
const URGENT_CORES_OF_ALL: f64 = 0.5;
const URGENT_CORES_OF_RESERVE: f64 = 0.1;
/// CPU seconds that may be used at once, of one group and of all. It is more for large memory, so
/// that this may be recovered once as a whole.
const URGENT_AT_ONCE_S: f64 = 5.0;
const URGENT_AT_ONCE_OF_ALL_S: f64 = 10.0;
const URGENT_AT_ONCE_OF_RESERVE_S: f64 = 5.0;
/// CPU seconds that must be there again before work goes on. Until then sampling windows find the
/// time that they need.
const URGENT_AFTER_REST_S: f64 = 1.0;
/// A group may use the reserve until its urgent work took 1 s, and again after this time.
const RESERVE_AGAIN_AFTER_S: f64 = 600.0;

impl UrgentWorkLimit {
    /// For a group with this limit of memory.
    pub(super) fn of_group(total_bytes: u64) -> Self {
        Self::new(URGENT_CORES, URGENT_AT_ONCE_S, total_bytes)
    }

    /// Up to which a group may use the reserve of all groups.
    pub(super) fn of_recent_work() -> Self {
        Self::new(URGENT_AFTER_REST_S / RESERVE_AGAIN_AFTER_S, URGENT_AFTER_REST_S, 0)
    }

    fn new(cores: f64, least_at_once_s: f64, total_bytes: u64) -> Self {
        let at_once_s = seconds_at_once(least_at_once_s, total_bytes);
        Self { cpu_s: TokenBucket::new_full(cores, at_once_s), rests_until: None }
    }

    /// The group's limit of memory has changed. What it has used up still counts.
    pub(super) fn set_group_limit(&mut self, now: Duration, total_bytes: u64) {
        self.cpu_s.set_capacity(now, seconds_at_once(URGENT_AT_ONCE_S, total_bytes));
        if self.rests_until.is_some() {
            self.rests_until = Some(self.cpu_s.time_when_level_reached(now, URGENT_AFTER_REST_S));
        }
    }

    pub(super) fn record_work(&mut self, now: Duration, cpu: Duration) {
        self.cpu_s.draw_tokens_into_debt(now, cpu.as_secs_f64());
        if self.cpu_s.time_when_level_reached(now, 0.0) > now {
            let rested = self.cpu_s.time_when_level_reached(now, URGENT_AFTER_REST_S);
            self.rests_until = Some(rested);
        }
    }

    pub(super) fn update(&mut self, now: Duration) {
        self.rests_until = self.rests_until.filter(|until| now < *until);
    }

    /// When work goes on, if it is used up by the last update.
    pub(super) fn rests_until(&self) -> Option<Duration> {
        self.rests_until
    }
}

fn seconds_at_once(least_s: f64, total_bytes: u64) -> f64 {
    least_s.max(total_bytes as f64 / DEFAULT_SPEED)
}

/// CPU time for urgent work of all groups together. A few groups that are always in danger keep it
/// used up. So groups that had hardly any urgent work have a small reserve besides. The reserve is
/// shared too, because a group with a new name counts as one of these.
#[derive(Clone, Copy, Debug)]
pub(super) struct SharedUrgentWorkLimit {
    common: UrgentWorkLimit,
    reserve: UrgentWorkLimit,
}

impl SharedUrgentWorkLimit {
    /// On a machine with this much memory.
    pub(super) fn new(machine_bytes: u64) -> Self {
        let (cores, at_once_s) = (URGENT_CORES_OF_RESERVE, URGENT_AT_ONCE_OF_RESERVE_S);
        Self {
            common: UrgentWorkLimit::new(
                URGENT_CORES_OF_ALL,
                URGENT_AT_ONCE_OF_ALL_S,
                machine_bytes,
            ),
            reserve: UrgentWorkLimit::new(cores, at_once_s, 0),
        }
    }

    pub(super) fn update(&mut self, now: Duration) {
        self.common.update(now);
        self.reserve.update(now);
    }

    pub(super) fn record_work(&mut self, now: Duration, cpu: Duration) {
        let common_rests = self.common.rests_until().is_some();
        let paying = if common_rests { &mut self.reserve } else { &mut self.common };
        paying.record_work(now, cpu);
    }

    /// When work goes on for a group, if it is used up for it. `may_use_reserve`: the group had
    /// hardly any urgent work.
    pub(super) fn rests_until(&self, may_use_reserve: bool) -> Option<Duration> {
        let common = self.common.rests_until()?;
        if may_use_reserve {
            return self.reserve.rests_until().map(|reserve| reserve.min(common));
        }
        Some(common)
    }
}

/// The longest and the shortest interval between reads of memory use.
const SELDOM: Duration = Duration::from_secs(1);
pub(super) const OFTEN: Duration = Duration::from_millis(40);
/// The most that one thread can fill: clearing huge pages, in bytes per second.
const FASTEST_FILL: f64 = 4e9;
/// Reading takes at most this share of one core.
const SHARE_OF_A_CORE: f64 = 0.0025;
/// The same while the use of no cgroup changes, where many are read: the first growth of one of
/// hundreds is seen at the next assessment, which growth of the machine's use brings.
const SHARE_WHILE_QUIET: f64 = 0.0005;
/// Reads that cost less than this, in seconds, are of few cgroups. These are read as often as
/// where their use changes. A program can fill its cgroup within half a second.
const FEW_READS_S: f64 = 250e-6;
/// Weight of the newest read in the average cost.
const NEWEST_READ: f64 = 0.2;

/// Half of the time in which memory could be full, at its growth or at the speed of page faults.
pub(super) fn wanted_read_interval(usage: MemoryUse, growth_bytes_per_s: f64) -> Duration {
    let fastest = growth_bytes_per_s.max(FASTEST_FILL);
    let full = time_to_full(usage, fastest).unwrap_or(Duration::MAX);
    (full / 2).clamp(OFTEN, SELDOM)
}

/// CPU seconds that reads in fast fills may take at once beyond `SHARE_OF_A_CORE`: 50 reads of
/// 1 ms. They come back at that share.
const FAST_FILL_READS_S: f64 = 0.05;

/// Keeps reads of memory within their share of a core. After reads that cost much, all pause. So it
/// makes no difference how many are due at once. Reads in a fast fill need not pause, as long as
/// few were made.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryReadRateLimit {
    cost_s: f64,
    read_at: Duration,
    /// Whether the use of a cgroup had changed when memory was last read.
    changed_before: bool,
    changed_since: bool,
    /// CPU seconds left for reads that do not pause, and when such a read last came.
    fast_fill_reads_s: TokenBucket,
    fast_fill_read_at: Duration,
}

impl Default for MemoryReadRateLimit {
    fn default() -> Self {
        Self {
            cost_s: 0.0,
            read_at: Duration::ZERO,
            changed_before: false,
            changed_since: false,
            fast_fill_reads_s: TokenBucket::new_full(SHARE_OF_A_CORE, FAST_FILL_READS_S),
            fast_fill_read_at: Duration::ZERO,
        }
    }
}

impl MemoryReadRateLimit {
    /// Takes in the CPU time of reads in a fast fill, before the end of the pause. They do not
    /// prolong it, because others wait for it.
    pub(super) fn record_cost_in_pause(&mut self, now: Duration, cost: Duration) {
        self.fast_fill_reads_s.draw_tokens_into_debt(now, cost.as_secs_f64());
        self.fast_fill_read_at = now;
    }

    /// Takes in the CPU time of the reads that were due at `now`.
    pub(super) fn record_cost(&mut self, now: Duration, cost: Duration) {
        self.cost_s += NEWEST_READ * (cost.as_secs_f64() - self.cost_s);
        self.read_at = now;
        self.changed_before = std::mem::take(&mut self.changed_since);
    }

    /// The use of a cgroup has changed.
    pub(super) fn record_change(&mut self) {
        self.changed_since = true;
    }

    /// When the next read of memory that fills fast is affordable.
    pub(super) fn ready_at_in_fast_fill(self) -> Duration {
        let last = self.read_at.max(self.fast_fill_read_at);
        self.fast_fill_reads_s.time_when_level_reached(last, 0.0).min(self.ready_at())
    }

    /// When the next read is affordable.
    pub(super) fn ready_at(self) -> Duration {
        let changes = self.changed_before || self.changed_since;
        let share = match changes || self.cost_s < FEW_READS_S {
            true => SHARE_OF_A_CORE,
            false => SHARE_WHILE_QUIET,
        };
        let pause = Duration::try_from_secs_f64(self.cost_s / share);
        self.read_at.saturating_add(pause.unwrap_or(Duration::MAX))
    }
}

#[cfg(test)]
mod tests;
