//! The state of free memory in which an experiment starts a program.

use super::prelude::*;

/// State of free memory when a program starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FreeMemory {
    /// A filler has touched as much as the program needs, and has exited right before. Free memory
    /// is not reported to the hypervisor.
    Backed,
    /// Nothing has touched it for [`LONG_FREE`], and the kernel reports it to the hypervisor, which
    /// may take it back.
    LongFree,
}

/// Free page reporting begins two seconds after memory was freed (mm/page_reporting.c) and takes
/// some rounds.
const LONG_FREE: Duration = Duration::from_secs(30);
/// Memory that is touched for the first time, and timed, in each state.
const TIMED_BYTES: u64 = 512 << 20;
/// Memory that is touched, and then held, to find out whether the host has taken free memory back.
const PROBED_BYTES: u64 = 64 << 20;
/// Waits of [`LONG_FREE`] until the host has taken free memory back.
const MOST_WAITS: usize = 4;
/// Longest time for the next event of the program that is timed.
const AT_MOST: Duration = Duration::from_secs(60);
/// The host takes free memory back if the first touch of long-free memory takes at least this many
/// times as long as that of backed memory.
const TAKEN_BACK_FROM: f64 = 2.0;

impl FreeMemory {
    pub(super) const ALL: [Self; 2] = [Self::Backed, Self::LongFree];

    /// Its name in results.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Backed => "memory backed",
            Self::LongFree => "memory long free",
        }
    }

    /// Brings free memory into this state, for a program that needs `bytes`.
    pub(super) fn prepare(self, host: &mut BenchHost, bytes: u64) -> BenchResult<()> {
        match self {
            Self::Backed => {
                host.stop_free_page_reporting()?;
                host.touch_memory_once(bytes)
            }
            Self::LongFree => {
                host.restore_free_page_reporting()?;
                std::thread::sleep(LONG_FREE);
                Ok(())
            }
        }
    }

    /// How it is brought about, for a note.
    pub(super) fn describe(self) -> String {
        match self {
            Self::Backed => {
                "Before each start a filler touches as much memory as the program needs, and exits. The kernel does not report free memory to the hypervisor, so that a manager finds it backed, too, however long it takes to start."
                    .into()
            }
            Self::LongFree => format!(
                "Before each start nothing touches memory for {} s, in which the kernel reports free memory to the hypervisor, where there is one that takes it back.",
                LONG_FREE.as_secs()
            ),
        }
    }
}

/// Mean times of the first touch of 2 MiB in both states of free memory. They show whether the host
/// takes free memory back, without which long-free memory is as good as backed memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct FreeMemoryTouchTimes {
    backed_us: f64,
    long_free_us: f64,
}

impl FreeMemoryTouchTimes {
    /// Times first touches in both states, and reports them.
    pub(super) fn measure_and_report(
        host: &mut BenchHost,
        report: &mut LiveReport,
    ) -> BenchResult<Self> {
        let [backed_us, long_free_us] = FreeMemory::ALL.map(|memory| -> BenchResult<f64> {
            memory.prepare(host, 2 * TIMED_BYTES)?;
            Ok(time_first_touches(host, TIMED_BYTES)?.mean_us)
        });
        let times = Self { backed_us: backed_us?, long_free_us: long_free_us? };
        times.add_to_report(report);
        Ok(times)
    }

    /// A goal for this state of free memory, or that it cannot be decided on this host.
    pub(super) fn goal_or_not_decided(self, memory: FreeMemory, goal: &str) -> String {
        match memory {
            FreeMemory::LongFree if !self.host_takes_memory_back() => {
                "this host does not take memory back: not decided".to_owned()
            }
            _ => format!("goal {goal}"),
        }
    }

    /// Waits until first touches take as long as in memory that the host took back. `None` if it
    /// does not take memory back, or did not in [`MOST_WAITS`] waits. What was touched to find out
    /// is backed; no other program gets it until the result is dropped.
    pub(super) fn wait_until_taken_back(
        self,
        host: &mut BenchHost,
    ) -> BenchResult<Option<TouchedMemory>> {
        let waits = if self.host_takes_memory_back() { MOST_WAITS } else { 1 };
        for _ in 0..waits {
            FreeMemory::LongFree.prepare(host, PROBED_BYTES)?;
            let touched = time_first_touches(host, PROBED_BYTES)?;
            if touched.mean_us >= TAKEN_BACK_FROM * self.backed_us {
                return Ok(Some(touched));
            }
        }
        Ok(None)
    }

    pub(super) fn host_takes_memory_back(self) -> bool {
        self.ratio() >= TAKEN_BACK_FROM
    }

    fn ratio(self) -> f64 {
        self.long_free_us / self.backed_us
    }

    fn add_to_report(self, report: &mut LiveReport) {
        let touches = TIMED_BYTES / HUGE_PAGE_BYTES;
        let beside = [
            format!("mean of {touches}"),
            format!("mean of {touches}; {:.1} times that of backed memory", self.ratio()),
        ];
        let figures = [self.backed_us, self.long_free_us];
        for ((memory, us), beside) in FreeMemory::ALL.into_iter().zip(figures).zip(beside) {
            report.add_row(format!("{}: first touch of 2 MiB", memory.name()), us, "us", beside);
        }
        report.add_note(format!(
            "The host takes free memory back if the first touch of 2 MiB takes at least {TAKEN_BACK_FROM} times as long in long-free memory as in backed memory. Otherwise goals for long-free memory are not decided. Both are timed before all else."
        ));
    }
}

/// Memory that was touched for the first time, and is held.
pub(super) struct TouchedMemory {
    /// Mean time of the first touch of 2 MiB.
    mean_us: f64,
    _program: WorkloadProcess,
}

fn time_first_touches(host: &BenchHost, bytes: u64) -> BenchResult<TouchedMemory> {
    let mib = bytes >> 20;
    let words = format!("touch --mib {mib} --pages huge --pages-per-region 1 --latencies --now");
    let mut program = host.start_workload(&words)?;
    loop {
        match program.next_event(AT_MOST)? {
            WorkloadEvent::Touched { mean_ns, .. } => {
                return Ok(TouchedMemory { mean_us: mean_ns / 1e3, _program: program });
            }
            WorkloadEvent::Error { message } => bail!("timing first touches failed: {message}"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_leaves_memory_backed_decides_no_goal_of_long_free_memory() {
        for (long_free_us, decided) in [(199.0, false), (200.0, true), (5000.0, true)] {
            let times = FreeMemoryTouchTimes { backed_us: 100.0, long_free_us };
            let goal = |memory| times.goal_or_not_decided(memory, "at most 0.125");
            assert_eq!(goal(FreeMemory::Backed), "goal at most 0.125");
            let long_free = goal(FreeMemory::LongFree);
            assert_eq!(long_free == "goal at most 0.125", decided, "{long_free}");
            assert_eq!(long_free.ends_with("not decided"), !decided, "{long_free}");
        }
    }

    #[test]
    fn both_times_are_reported() {
        let mut report = LiveReport::new("reserve");
        let times = FreeMemoryTouchTimes { backed_us: 100.0, long_free_us: 5000.0 };
        times.add_to_report(&mut report);
        assert_eq!(report.row("memory backed: first touch of 2 MiB").value, 100.0);
        let long_free = report.row("memory long free: first touch of 2 MiB");
        assert_eq!(long_free.value, 5000.0);
        assert!(long_free.beside.contains("50.0 times"), "{}", long_free.beside);
    }
}
