//! Times at which a server or its client waited for a core. On a machine without spare cores, other
//! programs' work adds milliseconds to the tail of the latencies, independent of memory.

use hawkeye_linux::processes::schedstat::SchedStat;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use std::fs::{self, File};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

/// Shorter waits are the scheduler's own doing.
const LEAST: Duration = Duration::from_micros(100);
/// Least time between two reads of the threads' waits.
const DISTANCE: Duration = Duration::from_micros(500);
/// Threads are also read whenever an answer took longer than this.
const SLOW: Duration = Duration::from_micros(250);

/// The time in which a thread may have had no core, or been behind because of that. `waited` is the
/// increase of its waiting time between two reads.
///
/// The kernel counts a wait when it is over, so it may have begun before the first read. Requests
/// that came meanwhile take no longer than the wait where a server is not always busy.
fn possible_wait_interval(before: Duration, now: Duration, waited: Duration) -> Range<Duration> {
    before.min(now.saturating_sub(waited))..now + waited
}

/// Whether the ranges share a point in time, including their ends.
pub(super) fn ranges_overlap(a: &Range<Duration>, b: &Range<Duration>) -> bool {
    a.start <= b.end && b.start <= a.end
}

pub(super) struct RunQueueWaits {
    threads: Vec<(File, Duration)>,
    looked: Duration,
    pub(super) seen: Vec<Range<Duration>>,
}

impl RunQueueWaits {
    /// Observes the peer of a unix socket, and the calling thread. `None` where the kernel does not
    /// count the waits of threads (`CONFIG_SCHED_INFO`).
    pub(super) fn watch_peer_and_self(socket: &impl AsFd) -> Option<Self> {
        let peer = getsockopt(socket, PeerCredentials).ok()?.pid();
        let tasks = fs::read_dir(format!("/proc/{peer}/task")).ok()?;
        let tasks = tasks.filter_map(|task| Some(task.ok()?.path()));
        let all = tasks.chain(["/proc/thread-self".into()]);
        let open = |task: &Path| {
            let file = File::open(task.join("schedstat")).ok()?;
            let waited = thread_wait_time(&file)?;
            Some((file, waited))
        };
        let opened = all.filter_map(|task| match open(&task) {
            // It has ended since the threads were listed.
            None if !task.exists() => None,
            opened => Some(opened),
        });
        Some(Self {
            threads: opened.collect::<Option<_>>()?,
            looked: Duration::ZERO,
            seen: Vec::new(),
        })
    }

    pub(super) fn read_waits_if_due(&mut self, now: Duration, longest: Duration) {
        if now < self.looked + DISTANCE && longest < SLOW {
            return;
        }
        let mut most = Duration::ZERO;
        for (file, before) in &mut self.threads {
            // A thread that has ended waits no more.
            if let Some(waited) = thread_wait_time(file) {
                most = most.max(waited.saturating_sub(*before));
                *before = waited;
            }
        }
        if most >= LEAST {
            self.seen.push(possible_wait_interval(self.looked, now, most));
        }
        self.looked = now;
    }
}

/// Time for which a thread was ready to run and did not.
fn thread_wait_time(schedstat: &File) -> Option<Duration> {
    let mut line = [0; 96];
    let length = schedstat.read_at(&mut line, 0).ok()?;
    let line = std::str::from_utf8(&line[..length]).ok()?;
    Some(SchedStat::parse(line)?.waited)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core_set::CoreSet;
    use hawkeye_test_support::this_test;
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    const fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn a_wait_reaches_back_and_holds_up_what_follows() {
        assert_eq!(possible_wait_interval(ms(10), ms(11), ms(4)), ms(7)..ms(15));
        assert_eq!(possible_wait_interval(ms(10), ms(20), ms(4)), ms(10)..ms(24));
        assert_eq!(possible_wait_interval(ms(0), ms(1), ms(4)).start, ms(0));
    }

    #[test]
    fn a_wait_meets_what_overlaps_it() {
        let wait = possible_wait_interval(ms(10), ms(11), ms(4));
        let meets = |from, to| ranges_overlap(&wait, &(ms(from)..ms(to)));
        assert!(meets(15, 16) && meets(6, 7));
        assert!(meets(0, 20) && meets(8, 8));
        assert!(!meets(0, 6) && !meets(16, 20));
    }

    /// Two threads that want the same core wait for it.
    #[test]
    fn a_wait_for_a_core_is_seen() {
        const DEADLINE: Duration = Duration::from_secs(60);
        let first = *CoreSet::allowed_cores_of_thread().first().expect("it runs somewhere");
        let one = CoreSet::from_core_numbers(&[first]).expect("there is one");
        let over = &AtomicBool::new(false);
        let look_for_waits = || {
            let _stay = one.restrict_calling_thread();
            let (here, _there) = UnixStream::pair().expect("sockets");
            let mut waits = RunQueueWaits::watch_peer_and_self(&here)?;
            let begun = Instant::now();
            while waits.seen.is_empty() && begun.elapsed() < DEADLINE {
                waits.read_waits_if_due(begun.elapsed(), Duration::ZERO);
            }
            Some(!waits.seen.is_empty())
        };
        let seen = std::thread::scope(|scope| {
            scope.spawn(move || {
                let _stay = one.restrict_calling_thread();
                while !over.load(Ordering::Relaxed) {}
            });
            let seen = scope.spawn(look_for_waits).join();
            over.store(true, Ordering::Relaxed);
            seen
        });
        match seen.expect("it ends") {
            Some(seen) => assert!(seen, "no wait in {DEADLINE:?}"),
            None => this_test!().skip("this kernel does not count how long threads wait"),
        }
    }
}
