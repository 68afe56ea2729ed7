//! The scripted machine as the manager sees it.

use super::{ScriptedMachine, costs};
use hawkeye_manager::machine::{CallResult, ResumableCallResult};
use hawkeye_manager::{
    BudgetWait, Explain, FaultPageSizes, HugePageReserveControl, LoopWakeReason, Machine,
    MachineError, ManagementCosts, Prefault, ProcessFootprint, PromotionResult, RecoveryResult,
    Sampling, SliceProgress, ZeroScanResult,
};
use hawkeye_policy::{
    BASE_PAGE_BYTES, BloatKind, CgroupMemory, CoverageSource, Errno, HUGE_PAGE_BYTES,
    MAX_SHARED_PAGES, MachinePageProperties, MemoryScope, MemoryState, MemoryUse, PAGES_PER_REGION,
    PageOrder, ProcessId, ProcessSample, ProcessSettings, Promotion, RegionAddr, RegionSample,
    ReserveState, ReserveTarget, SampleKinds,
};
use std::mem;
use std::time::Duration;

impl ScriptedMachine {
    fn freed_pages(&self, process: ProcessId, region: RegionAddr) -> u16 {
        self.freed_parts.get(&(process, region)).copied().unwrap_or(0)
    }

    /// Works in short calls until `until`, or on to the end of the call, and then finishes.
    fn work_in_calls<T>(
        &mut self,
        name: &'static str,
        process: ProcessId,
        until: Duration,
        finish: impl FnOnce(&mut Self) -> CallResult<T>,
    ) -> ResumableCallResult<T> {
        // Only huge pages are counted for a footprint, which is far cheaper than reading all.
        let all = if name == "footprint" { self.call_duration / 100 } else { self.call_duration };
        let left = self.work_left.remove(&(name, process)).unwrap_or(all);
        let spent = left.min(until.saturating_sub(self.now) + costs::CALL);
        self.advance_to(self.now + spent);
        if spent < left {
            self.work_left.insert((name, process), left - spent);
            return Ok(SliceProgress::Unfinished(self.call_pause));
        }
        finish(self).map(SliceProgress::Done)
    }

    fn check_helpers(&self) -> CallResult<()> {
        match self.without_helpers {
            true => Err(MachineError::NoHelper("a helper can't be started".to_owned())),
            false => Ok(()),
        }
    }

    fn split_region(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
        kind: BloatKind,
    ) -> CallResult<RecoveryResult> {
        self.calls.push(("recover", self.now));
        self.check_helpers()?;
        if self.recovery_impossible {
            return Err(MachineError::Other("recovery is impossible".to_owned()));
        }
        if self.without_swap.contains(&process) {
            return Err(MachineError::NoSwap(process));
        }
        if let Some(errno) = self.recovery_errors.pop_front() {
            return Err(MachineError::Refused { call: "split", process, errno });
        }
        let took = self.spend(costs::SPLIT);
        if kind == BloatKind::FreedPart {
            let (call, errno) = ("split", Errno::EAGAIN);
            let freed = self.freed_parts.remove(&(process, region));
            let freed = freed.ok_or(MachineError::Refused { call, process, errno })?;
            let (bytes, left_present) =
                (u64::from(freed) * BASE_PAGE_BYTES, PAGES_PER_REGION - freed);
            return Ok(RecoveryResult { bytes, left_present, took, longest_call: took });
        }
        let region = self.program_mut(process)?.region_mut(region);
        let freed =
            region.map_or(
                0,
                |(huge, used_pages)| {
                    if std::mem::take(huge) { PAGES_PER_REGION - used_pages } else { 0 }
                },
            );
        let (bytes, left_present) = (u64::from(freed) * BASE_PAGE_BYTES, PAGES_PER_REGION - freed);
        Ok(RecoveryResult { bytes, left_present, took, longest_call: took })
    }
}

impl Machine for ScriptedMachine {
    fn page_properties(&self) -> MachinePageProperties {
        let splits_per_call = self.splits_per_call.max(1);
        MachinePageProperties { splits_per_call, ..MachinePageProperties::default() }
    }

    fn now(&self) -> Duration {
        self.now
    }

    fn wait_until(&mut self, deadline: Duration) -> LoopWakeReason {
        self.advance_to(deadline);
        if self.is_over() { LoopWakeReason::Stop } else { LoopWakeReason::Deadline }
    }

    fn admit_and_list_processes(&mut self, until: Duration) -> SliceProgress<Vec<ProcessId>> {
        let all: Vec<ProcessId> = self.programs.iter().map(|(id, _)| *id).collect();
        while self.admitted < all.len() && self.now < until {
            self.advance_to(self.now + self.admission_duration);
            self.admitted += 1;
        }
        let done = self.admitted >= all.len();
        if done { SliceProgress::Done(all) } else { SliceProgress::Unfinished(Duration::ZERO) }
    }

    fn read_memory_state(&mut self) -> CallResult<MemoryState> {
        self.calls.push(("memory", self.now));
        if self.memory_unreadable {
            return Err(MachineError::Other("memory can't be read".to_owned()));
        }
        let groups = self.groups.keys().map(|&name| {
            let members = self.programs.iter().filter(|(_, it)| it.group == Some(name));
            CgroupMemory {
                name: name.to_owned(),
                usage: self.memory_use(Some(name)),
                pressure_percent: None,
                members: members.map(|(id, _)| *id).collect(),
            }
        });
        Ok(MemoryState {
            machine: self.memory_use(None),
            groups: groups.filter(|group| !group.members.is_empty()).collect(),
            limits_unknown: Vec::new(),
            pressure_percent: Some(self.pressure_percent),
            fmfi: self.fmfi,
        })
    }

    fn read_memory_use(&mut self, scope: &MemoryScope) -> CallResult<MemoryUse> {
        self.calls.push(("memory", self.now));
        Ok(match scope {
            MemoryScope::Machine => self.memory_use(None),
            MemoryScope::Group(name) => self.memory_use(Some(name)),
        })
    }

    fn footprint(
        &mut self,
        process: ProcessId,
        until: Duration,
    ) -> ResumableCallResult<ProcessFootprint> {
        self.work_in_calls("footprint", process, until, |machine| {
            machine.calls.push(("footprint", machine.now));
            machine.spend(machine.footprint_cpu);
            let program = machine.program_mut(process)?;
            let (rss_bytes, huge_bytes) = (program.rss_bytes(), program.huge_bytes());
            let has_lost_huge_pages = machine.lost_huge_pages.contains(&process);
            Ok(ProcessFootprint { rss_bytes, huge_bytes, has_lost_huge_pages })
        })
    }

    fn promote(&mut self, promotion: &Promotion) -> CallResult<PromotionResult> {
        let Promotion { process, region, order, expected_present, .. } = *promotion;
        assert_eq!(order, PageOrder::HUGE);
        self.program_mut(process)?;
        self.check_helpers()?;
        let (longer, errno) = self.promotion_answers.pop_front().unwrap_or_default();
        self.advance_to(self.now + longer);
        if let Some(errno) = errno {
            return Err(MachineError::Refused { call: "collapse", process, errno });
        }
        if self.prefault_empties_reserve {
            self.reserve.served += u64::from(mem::take(&mut self.reserve.held).max(1));
        }
        let from_reserve = self.reserve.held.min(1);
        self.reserve.held -= from_reserve;
        self.reserve.served += u64::from(from_reserve);
        let fill = self.huge_page_fill_cost * (1 - from_reserve);
        let cpu = self.spend(costs::PROMOTE + fill);
        let took = longer + cpu;
        // The state at the time of the work counts, not that at the time of the call.
        let pages = self.shared.get(&(process, region)).map_or(0, |(_, shared)| *shared);
        let payer = self.program(process).and_then(|program| program.group);
        let file = self.files.get(&(process, region)).copied();
        let payer = payer.filter(|_| file.is_some());
        let result = match self.program_mut(process)?.region_mut(region) {
            None | Some((true, _)) => PromotionResult::NotCandidate,
            Some(_) if file != promotion.file => PromotionResult::NotCandidate,
            Some((_, used_pages)) if used_pages < expected_present => PromotionResult::Freed,
            Some(_) if pages > MAX_SHARED_PAGES => PromotionResult::Shared { pages },
            Some((huge, _)) => {
                *huge = true;
                PromotionResult::Done { took, cpu, from_reserve: from_reserve > 0 }
            }
        };
        if let (PromotionResult::Done { .. }, Some(payer)) = (&result, payer) {
            *self.file_charges.entry(payer).or_default() += HUGE_PAGE_BYTES;
        }
        Ok(result)
    }

    fn count_zero_pages_in_huge_page(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
        enough: u16,
    ) -> CallResult<ZeroScanResult> {
        let took = self.spend(costs::SCAN);
        let huge = self.program_mut(process)?.region_mut(region).filter(|(huge, _)| **huge);
        let zero_pages = huge.map_or(0, |(_, used_pages)| PAGES_PER_REGION - used_pages);
        Ok(ZeroScanResult { zero_pages: zero_pages.min(enough), took })
    }

    fn recover_bloat(
        &mut self,
        process: ProcessId,
        regions: &[RegionAddr],
        kind: BloatKind,
    ) -> Vec<CallResult<RecoveryResult>> {
        self.calls.push(("split call", self.now));
        regions.iter().map(|region| self.split_region(process, *region, kind)).collect()
    }

    fn management_costs(&self) -> ManagementCosts {
        ManagementCosts { cpu: self.manager_cpu, ..ManagementCosts::default() }
    }
}

impl Sampling for ScriptedMachine {
    fn start_window(
        &mut self,
        process: ProcessId,
        _: SampleKinds,
        until: Duration,
    ) -> ResumableCallResult<()> {
        self.work_in_calls("clear", process, until, |machine| {
            machine.calls.push(("clear", machine.now));
            let now = machine.now;
            let base_regions = machine.program_mut(process)?.clear_access_bits(now);
            machine.spend(costs::CLEAR * base_regions as u32);
            Ok(())
        })
    }

    fn sample(
        &mut self,
        process: ProcessId,
        until: Duration,
    ) -> ResumableCallResult<ProcessSample> {
        if let Some(error) = self.sample_errors.pop_front() {
            return Err(error(process));
        }
        self.work_in_calls("sample", process, until, |machine| {
            let program = machine.program(process).ok_or(MachineError::Gone(process))?;
            let mut regions = program.region_samples(machine.now);
            for region in &mut regions {
                let pages = machine.shared.get(&(process, region.region));
                region.maybe_shared = pages.map_or(0, |(maybe_shared, _)| *maybe_shared);
                region.file = machine.files.get(&(process, region.region)).copied();
                region.freed = machine.freed_pages(process, region.region);
            }
            let sample = ProcessSample {
                source: match program.cleared {
                    Some(_) => CoverageSource::AccessBits,
                    None => CoverageSource::Population,
                },
                first_touches: program.first_touches(machine.now) as u64,
                cpu_cores: 1.0,
                overhead: program.overhead(),
                age: machine.now - program.started,
                terms: program.terms,
                ..ProcessSample::from_present_pages(process, regions)
            };
            machine.spend(costs::READ * sample.regions.len() as u32);
            machine.calls.push(("read", machine.now));
            Ok(sample)
        })
    }

    fn list_huge_pages(
        &mut self,
        process: ProcessId,
        until: Duration,
    ) -> ResumableCallResult<Vec<RegionSample>> {
        self.calls.push(("list", self.now));
        self.work_in_calls("list", process, until, |machine| {
            let now = machine.now;
            let mut huge = machine.program_mut(process)?.region_samples(now);
            machine.lost_huge_pages.remove(&process);
            for sample in &mut huge {
                sample.freed = machine.freed_pages(process, sample.region);
            }
            huge.retain(RegionSample::is_recoverable);
            machine.spend(costs::READ * huge.len() as u32);
            Ok(huge)
        })
    }

    fn cpu_time(&self, process: ProcessId) -> Option<Duration> {
        self.cpu_times.get(&process).copied()
    }

    fn abandon_all_windows(&mut self) {
        self.calls.push(("abandon", self.now));
    }

    fn first_touch_cost(&self) -> Duration {
        costs::FIRST_TOUCH
    }
}

impl HugePageReserveControl for ScriptedMachine {
    fn reserve_state(&self) -> ReserveState {
        self.reserve
    }

    fn set_reserve_target(&mut self, target: ReserveTarget, most: u32) -> CallResult<()> {
        assert!(target.pages <= most, "{target:?} of {most}");
        let each = self.huge_page_fill_cost.max(costs::CALL);
        let time = self.now - std::mem::replace(&mut self.reserve_filled_at, self.now);
        let missing = target.pages.saturating_sub(self.reserve.held) * u32::from(target.fill);
        let filled = missing.min((time.as_nanos() / each.as_nanos()) as u32);
        self.reserve.held = self.reserve.held.min(target.pages) + filled;
        self.reserve.filled += u64::from(filled);
        self.reserve.fill_cpu += self.huge_page_fill_cost * filled;
        Ok(())
    }
}

impl FaultPageSizes for ScriptedMachine {}

impl Prefault for ScriptedMachine {
    fn take_prefaulted_bytes(&mut self, process: ProcessId) -> u64 {
        self.prefaulted_bytes.remove(&process).unwrap_or(0)
    }

    fn process_settings(&self, process: ProcessId) -> Option<ProcessSettings> {
        self.program(process).map(|program| program.terms)
    }

    fn set_prefault_limit(&mut self, process: ProcessId, room_bytes: u64) {
        self.prefault_rooms.insert(process, room_bytes);
    }

    fn prefault_wait(&self) -> Option<BudgetWait> {
        self.prefault_wait
    }
}

impl Explain for ScriptedMachine {}
