//! When a server or its client waited for a core: on a machine without cores to spare other programs' work is in the tail of what
//! they answer, by milliseconds, whatever memory does.

use hawkeye_linux::processes::scheduled::Scheduled;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Shorter waits are the scheduler's own doing.
const LEAST: Duration = Duration::from_micros(100);
/// Threads are looked at so often at most.
const DISTANCE: Duration = Duration::from_micros(500);
/// And whenever an answer took longer than this.
const SLOW: Duration = Duration::from_micros(250);

/// A time, since the first question was due, in which somebody had no core, or was behind for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    pub(super) from: Duration,
    pub(super) to: Duration,
}

impl Wait {
    /// Threads were looked at twice, and one has waited for so long between.
    ///
    /// The kernel counts a wait when it is over, so that it may have begun before the first look. What came in meanwhile is done
    /// after it, which takes no longer where a server is not at work all the time.
    fn seen(before: Duration, now: Duration, waited: Duration) -> Self {
        Self {
            from: before.min(now.saturating_sub(waited)),
            to: now + waited,
        }
    }

    /// Whether any of it was between these times.
    pub(super) fn meets(&self, from: Duration, to: Duration) -> bool {
        self.from <= to && from <= self.to
    }
}

/// The waits of a server's threads and of the thread that asks it.
pub(super) struct Waits {
    threads: Vec<(File, Duration)>,
    looked: Duration,
    seen: Vec<Wait>,
}

impl Waits {
    /// Of who has the other end of a unix socket, and of the calling thread. `None` where the kernel does not count how long
    /// threads wait (`CONFIG_SCHED_INFO`).
    pub(super) fn of_peer(socket: &impl AsFd) -> Option<Self> {
        let peer = getsockopt(socket, PeerCredentials).ok()?.pid();
        let tasks = fs::read_dir(format!("/proc/{peer}/task")).ok()?;
        let tasks = tasks.filter_map(|task| Some(task.ok()?.path()));
        let all = tasks.chain(["/proc/thread-self".into()]);
        let opened = all.map(|task| {
            let file = File::open(task.join("schedstat")).ok()?;
            let waited = waited(&file)?;
            Some((file, waited))
        });
        Some(Self {
            threads: opened.collect::<Option<_>>()?,
            looked: Duration::ZERO,
            seen: Vec::new(),
        })
    }

    /// Looks whether anybody waited, if it is time to.
    pub(super) fn look(&mut self, now: Duration, longest: Duration) {
        if now < self.looked + DISTANCE && longest < SLOW {
            return;
        }
        let mut most = Duration::ZERO;
        for (file, before) in &mut self.threads {
            // A thread that has ended waits no more.
            if let Some(waited) = waited(file) {
                most = most.max(waited.saturating_sub(*before));
                *before = waited;
            }
        }
        if most >= LEAST {
            self.seen.push(Wait::seen(self.looked, now, most));
        }
        self.looked = now;
    }

    /// All that were seen, in their order.
    pub(super) fn into_seen(self) -> Vec<Wait> {
        self.seen
    }
}

/// How long a thread was ready to run and did not.
fn waited(schedstat: &File) -> Option<Duration> {
    let mut line = [0; 96];
    let length = schedstat.read_at(&mut line, 0).ok()?;
    let line = std::str::from_utf8(&line[..length]).ok()?;
    Some(Scheduled::parse(line)?.waited)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core_set::CoreSet;
    use hawkeye_test_support::this_test;
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    const fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn a_wait_reaches_back_and_holds_up_what_follows() {
        let long = Wait::seen(ms(10), ms(11), ms(4));
        assert_eq!((long.from, long.to), (ms(7), ms(15)));
        let short = Wait::seen(ms(10), ms(20), ms(4));
        assert_eq!((short.from, short.to), (ms(10), ms(24)));
        assert_eq!(Wait::seen(ms(0), ms(1), ms(4)).from, ms(0));
    }

    #[test]
    fn a_wait_meets_what_overlaps_it() {
        let wait = Wait::seen(ms(10), ms(11), ms(4));
        assert!(wait.meets(ms(15), ms(16)) && wait.meets(ms(6), ms(7)));
        assert!(wait.meets(ms(0), ms(20)) && wait.meets(ms(8), ms(8)));
        assert!(!wait.meets(ms(0), ms(6)) && !wait.meets(ms(16), ms(20)));
    }

    /// Two threads that want the same core wait for it.
    #[test]
    fn who_waits_for_a_core_is_seen() {
        let first = *CoreSet::allowed().first().expect("it runs somewhere");
        let one = CoreSet::of(&[first]).expect("there is one");
        let begun = Instant::now();
        let looking = std::thread::spawn(move || {
            let _stay = one.stay();
            let (here, _there) = UnixStream::pair().expect("sockets");
            let Some(mut waits) = Waits::of_peer(&here) else {
                return this_test!().skip("this kernel does not count how long threads wait");
            };
            while begun.elapsed() < ms(200) {
                waits.look(begun.elapsed(), Duration::ZERO);
            }
            assert!(!waits.into_seen().is_empty());
        });
        let busy = std::thread::spawn(move || {
            let _stay = one.stay();
            while begun.elapsed() < ms(200) {}
        });
        busy.join().expect("ends");
        looking.join().expect("has seen it");
    }
}
