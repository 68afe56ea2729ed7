//! Cached mappings of the processes that are filled ahead of: a read walks over all mappings.

use super::prefault_region::PrefaultMethod;
use crate::machine_lease::thp_settings::{enabled_file, read_setting, uses_huge_zero_page};
use crate::promote::target_call::CallHelperPool;
use crate::sample::page_table_reader::{PageTableReader, ProcessBpfLinks};
use hawkeye_policy::{ProcessId, RegionAddr};
use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

/// A process's mappings are read again after this time, or when a stream leaves them.
const MAPPINGS_AGE: Duration = Duration::from_millis(500);

/// What is known of a process while it has streams.
pub(super) struct CachedMappings {
    pub(super) target: ProcessBpfLinks,
    /// Mappings with memory that may be huge.
    mapped: Vec<(Range<u64>, PrefaultMethod)>,
    at: Duration,
    /// Regions outside all of them, and when that was seen.
    outside: HashMap<RegionAddr, Duration>,
}

impl CachedMappings {
    pub(super) fn mapped_ranges(&self) -> Vec<Range<u64>> {
        self.mapped.iter().map(|(range, _)| range.clone()).collect()
    }

    pub(super) fn find_mapping_of_region(
        &self,
        region: RegionAddr,
    ) -> Option<&(Range<u64>, PrefaultMethod)> {
        let mut mapped = self.mapped.iter();
        mapped.find(|(range, _)| range.contains(&region.start()))
    }
}

/// Returns what is known of a process. It reads the mappings again if they are too old, do not
/// cover `region`, or no region is given.
pub(super) fn get_or_refresh_mappings<'a>(
    all: &'a mut HashMap<ProcessId, CachedMappings>,
    tables: &PageTableReader,
    calls: &mut CallHelperPool,
    process: ProcessId,
    region: Option<RegionAddr>,
    now: Duration,
) -> Option<&'a CachedMappings> {
    let recent = |at: Duration| now < at + MAPPINGS_AGE;
    let fresh = |known: &CachedMappings| {
        let outside = |region| known.outside.get(&region).is_some_and(|at| recent(*at));
        let covers = |region| known.find_mapping_of_region(region).is_some() || outside(region);
        recent(known.at) && region.is_some_and(covers)
    };
    if !all.get(&process).is_some_and(fresh) {
        if calls.has_unanswered_call(process) {
            return None;
        }
        let mut known = match all.remove(&process) {
            Some(known) => known,
            None => CachedMappings {
                target: tables.bind_to_process(process.pid).ok()?,
                mapped: Vec::new(),
                at: now,
                outside: HashMap::new(),
            },
        };
        let enabled = read_setting(&enabled_file()).unwrap_or_default();
        let zero_page = uses_huge_zero_page();
        let mappings = calls.list_mappings(process, &known.target).ok()?;
        let mapped = mappings.iter().filter_map(|mapping| {
            let method = PrefaultMethod::for_mapping(mapping.flags, &enabled, zero_page)?;
            Some((mapping.eligible_range().ok()?, method))
        });
        known.mapped = mapped.collect();
        known.at = now;
        known.outside.retain(|_, at| recent(*at));
        if let Some(region) =
            region.filter(|region| known.find_mapping_of_region(*region).is_none())
        {
            known.outside.insert(region, now);
        }
        all.insert(process, known);
    }
    all.get(&process)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::LinuxError;
    use crate::processes::process::ProcessHandle;
    use crate::promote::stuck_target::StuckTarget;
    use crate::promote::target_call::TargetRequest;
    use std::sync::mpsc;

    #[test]
    fn mappings_of_a_target_that_holds_its_lock_are_not_waited_for() {
        // It requires root and FUSE.
        let Some(stuck) = StuckTarget::start() else {
            return;
        };
        let (process, region) = (stuck.handle.id, stuck.untouched_region());
        // This writer waits for the lock, and all later callers wait behind it.
        let mut writer = CallHelperPool::default();
        let request = TargetRequest::for_collapse(&stuck.handle, region);
        let collapsed = writer
            .map_page_by_reading(&stuck.handle, region.start(), false)
            .and_then(|()| writer.call_target(process, &request));
        assert!(matches!(collapsed, Err(LinuxError::NotAnswering(_))));
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            let tables = PageTableReader::load_bpf_programs().expect("the BPF programs load");
            let (mut calls, mut all) = (CallHelperPool::default(), HashMap::new());
            let own = ProcessHandle::open(std::process::id());
            let own = own.expect("this process exists").id;
            let mut is_known = |process| {
                let now = Duration::ZERO;
                get_or_refresh_mappings(&mut all, &tables, &mut calls, process, None, now).is_some()
            };
            let _ = tell.send([process, own, process].map(&mut is_known));
        });
        let known = told.recv_timeout(Duration::from_secs(60));
        let expected = Ok([false, true, false]);
        assert_eq!(known, expected, "the lock is not waited for");
    }
}
