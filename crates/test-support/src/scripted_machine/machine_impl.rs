//! The scripted machine as the manager sees it.

use super::scripted_program::{ScriptedProgram, ScriptedRegion};
use super::{ScriptedMachine, costs, pages_to_bytes, take_one_failure};
use hawkeye_manager::machine::{CallResult, ResumableCallResult};
use hawkeye_manager::{
    Explain, FaultPageSizes, HugePageReserveControl, LoopWakeReason, Machine, MachineError,
    ManagementCosts, Prefault, ProcessFootprint, PromotionResult, RecoveryResult, Sampling,
    SliceProgress, ZeroScanResult,
};
use hawkeye_policy::{
    CgroupMemory, CoverageSource, Errno, HUGE_PAGE_BYTES, MAX_SHARED_PAGES, MemoryScope,
    MemoryState, MemoryUse, PAGES_PER_REGION, PageOrder, ProcessId, ProcessSample, RegionAddr,
    RegionSample, ReserveState, ReserveTarget, SampleKinds, TranslationOverhead,
    TranslationOverheadSource,
};
use std::time::Duration;

impl ScriptedMachine {
    fn alive_program(&self, id: ProcessId) -> CallResult<&ScriptedProgram> {
        let program = self.program_of_process(id).filter(|program| program.is_alive());
        program.ok_or(MachineError::Gone(id))
    }

    fn machine_memory_use(&self) -> MemoryUse {
        MemoryUse { used_bytes: self.used_bytes(), total_bytes: self.total_bytes }
    }

    fn group_memory_use(&self, name: &str, limit: u64) -> MemoryUse {
        MemoryUse { used_bytes: self.group_used_bytes(name), total_bytes: limit }
    }

    fn alive_processes_where(&self, which: impl Fn(&ScriptedProgram) -> bool) -> Vec<ProcessId> {
        let mut there: Vec<&ScriptedProgram> =
            self.programs.iter().filter(|p| p.is_alive()).collect();
        there.sort_by_key(|program| program.spec.arrives);
        let members = there.into_iter().filter(|program| which(program));
        members.map(|program| program.id).collect()
    }

    /// Until `until`, or longer where a call takes longer. Returns whether all is done.
    fn work_in_calls(&mut self, kind: &'static str, process: ProcessId, until: Duration) -> bool {
        // Only huge pages are counted, which is far cheaper than reading all.
        let part = if kind == "measure" { 100 } else { 1 };
        let left = self.work_left.entry((kind, process));
        let left = left.or_insert(self.work / part);
        if !left.is_zero() {
            let time = until.saturating_sub(self.now).min(*left).as_nanos();
            let calls = time.div_ceil(costs::CALL.as_nanos()).max(1) as u32;
            let spent = (costs::CALL * calls).min(*left);
            *left -= spent;
            let done = left.is_zero();
            self.longest_call = self.longest_call.max(costs::CALL);
            self.advance_to(self.now + spent, false);
            if !done {
                return false;
            }
        }
        self.work_left.remove(&(kind, process));
        true
    }

    /// Whether there is memory for a huge page, or the error of its promotion.
    fn check_memory_for_huge_page(&self, id: ProcessId) -> Result<(), Errno> {
        let group = self.program_of_process(id).and_then(|p| p.spec.group.as_deref());
        if self.memory_left_bytes(None) < HUGE_PAGE_BYTES {
            Err(Errno::ENOMEM)
        } else if self.memory_left_bytes(group) < HUGE_PAGE_BYTES {
            Err(Errno::EBUSY)
        } else {
            Ok(())
        }
    }
}

fn cost_times(cost: Duration, count: usize) -> Duration {
    cost * u32::try_from(count).expect("a small machine")
}

impl Machine for ScriptedMachine {
    fn now(&self) -> Duration {
        self.now
    }

    fn wait_until(&mut self, deadline: Duration) -> LoopWakeReason {
        self.advance_to(deadline, true);
        match self.have_all_programs_ended() {
            true => LoopWakeReason::Stop,
            false => LoopWakeReason::Deadline,
        }
    }

    fn admit_and_list_processes(&mut self, until: Duration) -> SliceProgress<Vec<ProcessId>> {
        let all = self.alive_processes_where(|_| true);
        while self.joined < all.len() {
            self.advance_to(self.now + self.joining, false);
            self.joined += 1;
            if !self.joining.is_zero() && self.now >= until && self.joined < all.len() {
                return SliceProgress::Unfinished(Duration::ZERO);
            }
        }
        SliceProgress::Done(all)
    }

    fn read_memory_state(&mut self) -> CallResult<MemoryState> {
        self.looks.push(self.now);
        if take_one_failure(&mut self.failures.memory) {
            return Err(MachineError::Other("memory can't be read".to_owned()));
        }
        let groups = self.groups.iter().map(|(name, limit)| CgroupMemory {
            name: name.clone(),
            usage: self.group_memory_use(name, *limit),
            pressure_percent: None,
            members: self.alive_processes_where(|program| program.is_in_group(name)),
        });
        let groups = groups.filter(|group| !group.members.is_empty()).collect();
        Ok(MemoryState {
            machine: self.machine_memory_use(),
            groups,
            pressure_percent: Some(self.pressure_percent),
            fmfi: self.fmfi,
        })
    }

    fn read_memory_use(&mut self, scope: &MemoryScope) -> CallResult<MemoryUse> {
        self.looks.push(self.now);
        match scope {
            MemoryScope::Machine => Ok(self.machine_memory_use()),
            MemoryScope::Group(name) => match self.groups.get(name) {
                Some(limit) => Ok(self.group_memory_use(name, *limit)),
                None => Err(MachineError::Other(format!("there is no group {name}"))),
            },
        }
    }

    fn footprint(
        &mut self,
        process: ProcessId,
        until: Duration,
    ) -> ResumableCallResult<ProcessFootprint> {
        if !self.work_in_calls("measure", process, until) {
            return Ok(SliceProgress::Unfinished(Duration::ZERO));
        }
        let program = self.alive_program(process)?;
        Ok(SliceProgress::Done(ProcessFootprint {
            rss_bytes: program.rss_bytes(),
            huge_bytes: program.huge_bytes(),
        }))
    }

    fn promote(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
        order: PageOrder,
        expected_present: u16,
    ) -> CallResult<PromotionResult> {
        if order != PageOrder::HUGE {
            return Err(MachineError::PageSize(order));
        }
        let refused = |errno| MachineError::Refused { call: "collapse", process, errno };
        let waiting = match take_one_failure(&mut self.failures.slow) {
            true => self.failures.slow_by,
            false => Duration::ZERO,
        };
        self.alive_program(process)?;
        if take_one_failure(&mut self.failures.promotions) {
            self.spend_manager_time(costs::READ, waiting);
            return Err(refused(self.failures.promotion_errno.unwrap_or(Errno::Other)));
        }
        self.fill_reserve_until_now();
        let fill = if self.reserve.held > 0 {
            self.reserve.held -= 1;
            self.reserve.served += 1;
            self.begin_reserve_fill();
            Duration::ZERO
        } else {
            self.fill_cost
        };
        let took = self.spend_manager_time(costs::PROMOTE + fill, waiting);
        // The state at the time of the work counts, not that at the time of the call.
        let program = self.alive_program_mut(process)?;
        let Some((found, _)) = program.region_and_used_pages_mut(region).filter(|(r, _)| !r.huge)
        else {
            return Ok(PromotionResult::NotCandidate);
        };
        if found.present < expected_present {
            return Ok(PromotionResult::Freed);
        }
        let shared = self.shared.get(&(process, region));
        if let Some(pages) = shared.map(|it| it.shared).filter(|n| *n > MAX_SHARED_PAGES) {
            return Ok(PromotionResult::Shared { pages });
        }
        self.check_memory_for_huge_page(process).map_err(refused)?;
        if let Some((found, _)) = self.alive_program_mut(process)?.region_and_used_pages_mut(region)
        {
            found.collapse();
        }
        Ok(PromotionResult::Done(took))
    }

    fn count_zero_pages_in_huge_page(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
        enough: u16,
    ) -> CallResult<ZeroScanResult> {
        let took = self.spend_manager_time(costs::SCAN, Duration::ZERO);
        let program = self.alive_program_mut(process)?;
        let huge = program.region_and_used_pages_mut(region).filter(|(r, _)| r.huge);
        let zero_pages = huge.map_or(0, |(_, used)| (PAGES_PER_REGION - used).min(enough));
        Ok(ZeroScanResult { zero_pages, took })
    }

    fn recover_bloat(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
    ) -> CallResult<RecoveryResult> {
        self.alive_program(process)?;
        if take_one_failure(&mut self.failures.recoveries) {
            return Err(MachineError::Refused {
                call: "split",
                process,
                errno: self.failures.recovery_errno.unwrap_or(Errno::Other),
            });
        }
        let took = self.spend_manager_time(costs::SPLIT, Duration::ZERO);
        let program = self.alive_program_mut(process)?;
        let split = |(region, used): (&mut ScriptedRegion, u16)| {
            (region.split_and_free_unused(used), region.present)
        };
        let (freed, left_present) = program.region_and_used_pages_mut(region).map_or((0, 0), split);
        Ok(RecoveryResult {
            bytes: pages_to_bytes(u64::from(freed)),
            left_present,
            took,
            longest_call: took,
        })
    }

    fn management_costs(&self) -> ManagementCosts {
        ManagementCosts { cpu: self.manager_cpu, longest_call: self.longest_call }
    }
}

impl Sampling for ScriptedMachine {
    fn start_window(
        &mut self,
        process: ProcessId,
        _: SampleKinds,
        until: Duration,
    ) -> ResumableCallResult<()> {
        if !self.work_in_calls("clear", process, until) {
            return Ok(SliceProgress::Unfinished(Duration::ZERO));
        }
        let program = self.alive_program_mut(process)?;
        program.clear_access_bits();
        let base = program.list_region_samples().iter().filter(|r| !r.is_huge()).count();
        self.spend_manager_time(cost_times(costs::CLEAR, base), Duration::ZERO);
        Ok(SliceProgress::Done(()))
    }

    fn sample(
        &mut self,
        process: ProcessId,
        until: Duration,
    ) -> ResumableCallResult<ProcessSample> {
        if take_one_failure(&mut self.failures.late_samples) {
            return Err(MachineError::NotAnswering(process));
        }
        if take_one_failure(&mut self.failures.samples) {
            return Err(MachineError::Other("nothing can be sampled".to_owned()));
        }
        if !self.work_in_calls("read", process, until) {
            return Ok(SliceProgress::Unfinished(Duration::ZERO));
        }
        let program = self.alive_program(process)?;
        let mut regions = program.list_region_samples();
        for region in &mut regions {
            let pages = self.shared.get(&(process, region.region));
            region.maybe_shared = pages.map_or(0, |pages| pages.maybe_shared);
        }
        let (source, first_touches) = match program.cleared {
            true => (CoverageSource::AccessBits, count_touches(&regions)),
            false => (CoverageSource::Population, 0),
        };
        let overhead = program.overhead_percent();
        let sample = ProcessSample {
            source,
            first_touches,
            overhead: overhead.map(|it| {
                TranslationOverhead::new_without_error(it, TranslationOverheadSource::Counters)
            }),
            age: self.now.saturating_sub(program.spec.arrives),
            terms: program.spec.terms,
            ..ProcessSample::from_present_pages(process, regions)
        };
        let huge = sample.regions.iter().filter(|r| r.is_huge()).count();
        let base = sample.regions.len() - huge;
        let cpu = cost_times(costs::READ, base) + cost_times(costs::READ_HUGE, huge);
        // Done in short slices, so not one long call.
        let longest = self.longest_call;
        self.spend_manager_time(cpu, Duration::ZERO);
        self.longest_call = longest;
        Ok(SliceProgress::Done(sample))
    }

    fn list_huge_pages(
        &mut self,
        process: ProcessId,
        until: Duration,
    ) -> ResumableCallResult<Vec<RegionSample>> {
        self.last_listing = self.now;
        if !self.work_in_calls("list", process, until) {
            return Ok(SliceProgress::Unfinished(Duration::ZERO));
        }
        let mut huge = self.alive_program(process)?.list_region_samples();
        huge.retain(RegionSample::is_huge);
        self.spend_manager_time(cost_times(costs::READ_HUGE, huge.len()), Duration::ZERO);
        Ok(SliceProgress::Done(huge))
    }

    fn abandon_all_windows(&mut self) {
        self.abandoned = true;
    }

    fn first_touch_cost(&self) -> Duration {
        costs::FIRST_TOUCH
    }
}

/// Touches that set an access bit: one for each base page, one for a huge page.
fn count_touches(regions: &[RegionSample]) -> u64 {
    let of = |region: &RegionSample| match region.is_huge() {
        true => u64::from(region.accessed > 0),
        false => u64::from(region.accessed),
    };
    regions.iter().map(of).sum()
}

impl FaultPageSizes for ScriptedMachine {}

impl HugePageReserveControl for ScriptedMachine {
    fn reserve_state(&self) -> ReserveState {
        self.reserve
    }

    fn set_reserve_target(&mut self, target: ReserveTarget, most: u32) -> CallResult<()> {
        assert!(target.pages <= most, "{target:?} of {most}");
        self.fill_reserve_until_now();
        self.reserve_target = target;
        self.reserve.held = self.reserve.held.min(target.pages);
        self.begin_reserve_fill();
        Ok(())
    }
}

impl Prefault for ScriptedMachine {}

impl Explain for ScriptedMachine {}
