//! Reports where managed processes first touch memory, as BPF sees it in page faults.

use crate::arch::FIRST_TOUCH_PROGRAMS;
use crate::bpf_skeletons::fault_trace::{FaultTraceSkel, FaultTraceSkelBuilder};
use crate::error::{LinuxError, Result};
use crate::processes::own_pid_namespace::OwnPidNamespace;
use crate::ring_buffer::RingBufferReader;
use hawkeye_policy::prefault::StreamFaultReport;
use hawkeye_policy::{HUGE_PAGE_BYTES, RegionAddr};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};
use std::mem::MaybeUninit;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstTouchReport {
    pub pid: u32,
    pub report: StreamFaultReport,
}

/// Watches first touches until it is dropped.
pub struct FaultTrace {
    /// The programs run while these links exist. The skeleton does not attach anything itself: it
    /// would keep links of its own, which would outlive these.
    pub(super) links: Vec<Link>,
    pub(crate) reports: RingBufferReader<FirstTouchReport>,
    skel: FaultTraceSkel<'static>,
}

/// The watched processes. Any thread can change it.
pub struct FaultTraceWatchlist(MapHandle);

impl FaultTrace {
    /// Loads and attaches the programs. They watch no process yet. Fails where BPF is missing or
    /// forbidden, or this kernel shows BPF no page faults.
    pub fn attach() -> Result<(Self, FaultTraceWatchlist)> {
        let mut failed = LinuxError::Bpf("watching first touches: there is no program".into());
        for programs in FIRST_TOUCH_PROGRAMS {
            match Self::attach_programs(programs) {
                Ok(attached) => return Ok(attached),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// The same with the programs of these names.
    fn attach_programs(names: &[&str]) -> Result<(Self, FaultTraceWatchlist)> {
        // One per manager, like the page-table programs: detached when dropped, but never freed.
        let storage = Box::leak(Box::new(MaybeUninit::uninit()));
        let open = FaultTraceSkelBuilder::default().open(storage);
        let mut open = open.map_err(fault_trace_error)?;
        if let (Some(own), Some(told)) =
            (OwnPidNamespace::own_if_not_first(), &mut open.maps.rodata_data)
        {
            told.pidns_dev = own.dev;
            told.pidns_ino = own.ino;
        }
        for mut program in open.open_object_mut().progs_mut() {
            let wanted = names.iter().any(|name| program.name() == *name);
            program.set_autoload(wanted);
        }
        let skel = open.load().map_err(fault_trace_error)?;
        let reports = RingBufferReader::for_map(&skel.maps.advances, parse_report)
            .map_err(fault_trace_error)?;
        let watched = MapHandle::try_from(&skel.maps.watched).map_err(fault_trace_error)?;
        let mut trace = Self { links: Vec::new(), reports, skel };
        trace.resume_tracing()?;
        Ok((trace, FaultTraceWatchlist(watched)))
    }

    /// Reports only the regions of a process that it touches densely.
    pub fn suppress_sparse_touch_reports(&self, pid: u32) {
        let (key, value) = (pid.to_ne_bytes(), 1u32.to_ne_bytes());
        // The map has room for every watched process.
        let _ = self.skel.maps.muted.update(&key, &value, MapFlags::ANY);
    }

    /// Reports all first touches of a process again.
    pub fn resume_reports_of_process(&self, pid: u32) {
        // An error means that it was not suppressed, which is the same result.
        let _ = self.skel.maps.muted.delete(&pid.to_ne_bytes());
    }

    /// First touches at random of all watched processes so far.
    pub fn random_touches(&self) -> u64 {
        self.skel.maps.bss_data.as_deref().map_or(0, |bss| bss.at_random)
    }

    /// First touches of a process since it was watched or unpaused: those in order, and those at
    /// random. None of a process that is not watched.
    pub fn ordered_and_random_touches_of(&self, pid: u32) -> (u64, u64) {
        let watched = self.skel.maps.watched.lookup(&pid.to_ne_bytes(), MapFlags::ANY);
        let watched = watched.ok().flatten().unwrap_or_default();
        parse_touch_counts(&watched).unwrap_or_default()
    }

    /// Pauses the reports of a watched process, or lets it be watched anew.
    pub fn set_process_paused(&self, pid: u32, is_paused: bool) {
        let watched = &self.skel.maps.watched;
        let value = watched_value(watched.value_size() as usize, is_paused);
        // An error means that it is no longer watched.
        let _ = watched.update(&pid.to_ne_bytes(), &value, MapFlags::EXIST);
    }

    /// Reports again. Without `links` it reports nothing, at no cost to any program.
    pub fn resume_tracing(&mut self) -> Result<()> {
        let loaded = self.skel.object().progs_mut().filter(|program| program.autoload());
        let links = loaded.map(|program| program.attach());
        self.links = links.collect::<Result<_, _>>().map_err(fault_trace_error)?;
        Ok(())
    }

    pub fn lost_report_count(&self) -> u64 {
        self.skel.maps.bss_data.as_deref().map_or(0, |bss| bss.lost)
    }
}

impl FaultTraceWatchlist {
    /// Watches a process from now on. Fails if as many as possible are watched already.
    pub fn add_process(&self, pid: u32) -> Result<()> {
        let value = watched_value(self.0.value_size() as usize, false);
        let added = self.0.update(&pid.to_ne_bytes(), &value, MapFlags::ANY);
        added.map_err(fault_trace_error)
    }

    pub fn remove_process(&self, pid: u32) {
        // An error means that it was not watched, which is the same result.
        let _ = self.0.delete(&pid.to_ne_bytes());
    }
}

/// Bytes of a `struct touch_counts`, at the end of a `struct watched`.
const TOUCH_COUNTS_BYTES: usize = 24;
/// Where `paused` begins, from the end.
const PAUSED_FROM_END: usize = 8;

/// A `struct watched` of which nothing is known.
fn watched_value(bytes: usize, is_paused: bool) -> Vec<u8> {
    let mut value = vec![0u8; bytes];
    let paused = bytes.saturating_sub(PAUSED_FROM_END);
    if let Some(field) = value[paused..].first_chunk_mut() {
        *field = u32::from(is_paused).to_ne_bytes();
    }
    value
}

fn parse_touch_counts(watched: &[u8]) -> Option<(u64, u64)> {
    let counts: &[u8; TOUCH_COUNTS_BYTES] = watched.last_chunk()?;
    let (in_order, rest) = counts.split_first_chunk()?;
    Some((u64::from_ne_bytes(*in_order), u64::from_ne_bytes(*rest.first_chunk()?)))
}

/// One `struct advance`.
fn parse_report(bytes: &[u8]) -> Option<FirstTouchReport> {
    let (region, rest) = bytes.split_first_chunk()?;
    let (step, rest) = rest.split_first_chunk()?;
    let (pid, rest) = rest.split_first_chunk()?;
    let region = u64::from_ne_bytes(*region).checked_mul(HUGE_PAGE_BYTES)?;
    Some(FirstTouchReport {
        pid: u32::from_ne_bytes(*pid),
        report: StreamFaultReport {
            region: RegionAddr::containing(region),
            step: i32::try_from(i64::from_ne_bytes(*step)).ok()?,
            dense: u32::from_ne_bytes(*rest.first_chunk()?) != 0,
        },
    })
}

fn fault_trace_error(error: libbpf_rs::Error) -> LinuxError {
    LinuxError::Bpf(format!("watching first touches: {error:#}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::probe_child::{ChildCommand, ProbeChild};
    use hawkeye_test_support::this_test;
    use std::time::Duration;

    #[test]
    fn a_pause_of_one_process_leaves_the_reports_of_others() {
        if !nix::unistd::geteuid().is_root() {
            return this_test!().skip("it needs root");
        }
        let Ok((trace, watchlist)) = FaultTrace::attach() else {
            return this_test!().skip("this kernel shows BPF no page faults");
        };
        let children = [(); 3].map(|()| ProbeChild::spawn().expect("a child starts"));
        let [paused, resumed, other] = children.each_ref().map(|child| child.handle.id.pid);
        for pid in [paused, resumed, other] {
            watchlist.add_process(pid).expect("there is room");
        }
        for (pid, is_paused) in [(paused, true), (resumed, true), (resumed, false)] {
            trace.set_process_paused(pid, is_paused);
        }
        for child in &children {
            child.send_command_and_wait(ChildCommand::Touch).expect("the child answers");
        }
        let touches = |pid| trace.ordered_and_random_touches_of(pid);
        assert_eq!(touches(paused), (0, 0));
        assert!(touches(resumed).0 > 0 && touches(other).0 > 0);
        let reports = trace.reports.wait_for_reports(Duration::from_millis(100));
        let is_reported = |pid| reports.iter().any(|report| report.pid == pid);
        assert_eq!([paused, resumed, other].map(is_reported), [false, true, true]);
        // A pause does not watch a process again that is watched no longer.
        watchlist.remove_process(other);
        trace.set_process_paused(other, false);
        assert_eq!(touches(other), (0, 0));
    }
}
