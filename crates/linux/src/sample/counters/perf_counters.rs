//! Counts hardware events of other processes: `perf_event_open`.

use super::overhead_meter::{EventCounts, ThreadCounts};
use crate::error::{LinuxError, Result};
use crate::processes::process::{read_proc_entry, saturating_pid_t};
use crate::ring_buffer::decode_u64s;
use nix::errno::Errno;
use perf_event_open_sys::bindings::{
    PERF_FORMAT_GROUP, PERF_FORMAT_TOTAL_TIME_ENABLED, PERF_FORMAT_TOTAL_TIME_RUNNING,
    perf_event_attr,
};
use procfs::process::Process;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// One event: `type` and `config` of `perf_event_attr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerfEvent {
    /// `PERF_TYPE_*`.
    pub kind: u32,
    /// The event, as that type defines it.
    pub config: u64,
}

/// Counts up to three events of each thread of one process, together. An event misses the same
/// times as the others when the kernel multiplexes counters.
///
/// An inherited counter cannot be read in a group, so each read looks for new threads. Their events
/// before that are lost.
#[derive(Debug)]
pub struct PerfCounters {
    pid: u32,
    events: Vec<PerfEvent>,
    threads: BTreeMap<u32, ThreadEventGroup>,
}

/// The first event leads the group and is the one that is read.
#[derive(Debug)]
struct ThreadEventGroup {
    leader: File,
    _others: Vec<OwnedFd>,
}

/// Most threads of one process that are counted: each takes a descriptor per event. The other
/// threads are assumed to be like these.
const MOST_THREADS: usize = 64;

impl PerfCounters {
    /// Prepares to count `events` of process `pid`, in user mode only. Fails if not even one thread
    /// can be counted: the event does not exist here, a privilege is missing, or the process is
    /// gone.
    pub fn open(pid: u32, events: Vec<PerfEvent>) -> Result<Self> {
        let mut source = Self { pid, events, threads: BTreeMap::new() };
        source.open_groups_of_new_threads()?;
        Ok(source)
    }

    /// Counts of all threads. The events are loads, stores if they are counted separately, and
    /// cycles.
    pub fn read_counts(&mut self) -> Result<ThreadCounts> {
        self.open_groups_of_new_threads()?;
        let read = self.threads.iter_mut().filter_map(|(thread, group)| {
            let mut bytes = [0u8; 8 * 8];
            let length = group.leader.read(&mut bytes).ok()?;
            Some((*thread, parse_group_read(&bytes[..length])?))
        });
        Ok(read.collect())
    }

    fn open_groups_of_new_threads(&mut self) -> Result<()> {
        let tasks = read_proc_entry(self.pid, Process::tasks)?.flatten();
        let there: Vec<u32> = tasks.map(|task| task.tid.unsigned_abs()).collect();
        self.threads.retain(|thread, _| there.contains(thread));
        let mut refused = None;
        for thread in there {
            if self.threads.len() >= MOST_THREADS {
                break;
            }
            if self.threads.contains_key(&thread) {
                continue;
            }
            match self.open_event_group(thread) {
                Ok(group) => drop(self.threads.insert(thread, group)),
                // The thread has just ended.
                Err(Errno::ESRCH) => {}
                // Descriptors may have run out: the open counters continue.
                Err(errno) => refused = Some(errno),
            }
        }
        match refused.filter(|_| self.threads.is_empty()) {
            Some(errno) => Err(LinuxError::wrap_errno("counting hardware events")(errno)),
            None => Ok(()),
        }
    }

    fn open_event_group(&self, thread: u32) -> Result<ThreadEventGroup, Errno> {
        let (first, others) = self.events.split_first().ok_or(Errno::EINVAL)?;
        let leader = open_perf_event(*first, thread, -1)?;
        let follow = |event: &PerfEvent| open_perf_event(*event, thread, leader.as_raw_fd());
        Ok(ThreadEventGroup {
            _others: others.iter().map(follow).collect::<Result<_, _>>()?,
            leader: leader.into(),
        })
    }
}

fn open_perf_event(event: PerfEvent, thread: u32, group: i32) -> Result<OwnedFd, Errno> {
    let mut attributes = perf_event_attr {
        type_: event.kind,
        size: u32::try_from(size_of::<perf_event_attr>()).unwrap_or(u32::MAX),
        config: event.config,
        read_format: u64::from(PERF_FORMAT_GROUP)
            | u64::from(PERF_FORMAT_TOTAL_TIME_ENABLED)
            | u64::from(PERF_FORMAT_TOTAL_TIME_RUNNING),
        ..perf_event_attr::default()
    };
    attributes.set_exclude_kernel(1);
    attributes.set_exclude_hv(1);
    const CLOSE_ON_EXEC: u64 = 8;
    // SAFETY: `attributes` outlives the call, which only reads it.
    let fd = Errno::result(unsafe {
        let (thread, flags) = (saturating_pid_t(thread), CLOSE_ON_EXEC as _);
        perf_event_open_sys::perf_event_open(&raw mut attributes, thread, -1, group, flags)
    })?;
    // SAFETY: the call just made this descriptor, and nothing else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Counts from a read of a group of two or three events. `None`: the read was cut short, or has
/// another number of events.
fn parse_group_read(read: &[u8]) -> Option<EventCounts> {
    let words: Vec<u64> = decode_u64s(read).collect();
    // struct read_format of a group: nr, time_enabled, time_running, values.
    let (&[_, enabled_ns, running_ns], values) = words.split_first_chunk()?;
    let (loads, stores, cycles) = match *values {
        [loads, cycles] => (loads, 0, cycles),
        [loads, stores, cycles] => (loads, stores, cycles),
        _ => return None,
    };
    Some(EventCounts { loads, stores, cycles, enabled_ns, running_ns })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_test_support::this_test;
    use perf_event_open_sys::bindings::{PERF_COUNT_SW_TASK_CLOCK, PERF_TYPE_SOFTWARE};
    use std::sync::atomic::{AtomicBool, Ordering};

    fn clocks(events: usize) -> Vec<PerfEvent> {
        let clock =
            PerfEvent { kind: PERF_TYPE_SOFTWARE, config: u64::from(PERF_COUNT_SW_TASK_CLOCK) };
        vec![clock; events]
    }

    /// Test machines may lack hardware counters; the kernel counts its events by the same calls.
    #[test]
    fn threads_are_counted_as_they_come() {
        let mut source = match PerfCounters::open(std::process::id(), clocks(3)) {
            Ok(source) => source,
            Err(error) => {
                let why = format!("without hardware counters: {error}");
                return this_test!().skip(&why);
            }
        };
        let before = source.read_counts().expect("this process exists").len();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            while source.read_counts().expect("this process exists").len() <= before {
                std::thread::yield_now();
            }
            let first = source.read_counts().expect("this process exists");
            std::thread::sleep(std::time::Duration::from_millis(20));
            let second = source.read_counts().expect("this process exists");
            stop.store(true, Ordering::Relaxed);
            let ran = |counts: &ThreadCounts| counts.values().map(|c| c.cycles).sum::<u64>();
            assert!(ran(&second) > ran(&first));
            assert!(second.values().all(|c| c.running_ns <= c.enabled_ns));
        });
    }

    #[test]
    fn a_missing_process_is_reported_as_ended() {
        let gone = PerfCounters::open(u32::MAX / 2, clocks(2)).map(drop);
        assert!(matches!(gone, Err(LinuxError::NoSuchProcess(_))));
    }
}
