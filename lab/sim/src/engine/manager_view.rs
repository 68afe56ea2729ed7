//! The engine as the manager sees it.

use super::Engine;
use super::guests::GuestMachine;
use super::program::{PhaseProgress, Program, SamplingWindow, WindowObserver};
use crate::kernel::{KernelError, SpaceId};
use hawkeye_manager::{
    Explain, FaultPageSizes, HugePageReserveControl, LoopWakeReason, Machine, MachineError,
    ManagementCosts, Prefault, ProcessDescription, ProcessFootprint, PromotionResult,
    RecoveryResult, Sampling, SliceProgress, ZeroScanResult,
};
use hawkeye_policy::{
    BloatKind, Errno, HUGE_PAGE_BYTES, MAX_FILE_HOLES, MachinePageProperties, MemoryScope,
    MemoryState, MemoryUse, PAGES_PER_REGION, PageOrder, PageOrderSet, ProcessId, ProcessSample,
    Promotion, RegionAddr, RegionSample, SampleKinds,
};
use std::time::Duration;

type Result<T> = std::result::Result<T, MachineError>;

/// Time for which counters run in a window: as long as probing a live process takes.
const PROBED: Duration = Duration::from_secs(1);

impl Engine {
    fn living_guest(&mut self, id: ProcessId) -> Option<&mut GuestMachine> {
        let mut guests = self.guests.iter_mut();
        guests.find(|guest| guest.id == id && guest.is_alive())
    }

    fn living_program(&mut self, id: ProcessId) -> Result<&mut Program> {
        let mut programs = self.programs.iter_mut();
        let found = programs.find(|p| p.id == id && p.is_alive());
        found.ok_or(MachineError::Gone(id))
    }

    fn space_of_process(&mut self, id: ProcessId) -> Result<SpaceId> {
        let guest = self.living_guest(id).and_then(|guest| guest.space);
        guest.map_or_else(|| Ok(self.living_program(id)?.space), Ok)
    }

    fn recover_region(&mut self, process: ProcessId, region: RegionAddr) -> Result<RecoveryResult> {
        let space = self.space_of_process(process)?;
        let done = self.kernel.recover_bloat(space, region);
        let done = done.map_err(|_| MachineError::Refused {
            call: "split",
            process,
            errno: Errno::EINVAL,
        })?;
        // The page table is locked while pages are read and remapped.
        self.apply_remap_to_owner(process, region, PageOrder::HUGE, done.took)?;
        self.advance_by_manager_call(done.took);
        Ok(done)
    }

    /// Accounts for a manager's call. What it holds up is accounted for elsewhere.
    fn advance_by_manager_call(&mut self, time: Duration) {
        self.longest_call = self.longest_call.max(time);
        self.advance_by_manager_time(time);
    }

    /// The kernel remapped memory of a process, one page of size `order` around a region. The
    /// processor learns of it, and the program waits for `locked`.
    fn apply_remap_to_owner(
        &mut self,
        id: ProcessId,
        region: RegionAddr,
        order: PageOrder,
        locked: Duration,
    ) -> Result<()> {
        if let Some(guest) = self.living_guest(id) {
            let bytes = order.regions_per_page() * HUGE_PAGE_BYTES;
            let first = region.start() / bytes * bytes;
            for start in (first..first + bytes).step_by(HUGE_PAGE_BYTES as usize) {
                guest.record_host_remap(RegionAddr::containing(start));
            }
            guest.stall_programs(locked);
            return Ok(());
        }
        let found = self.programs.iter_mut().find(|p| p.id == id);
        let program = found.ok_or(MachineError::Gone(id))?;
        // A sleeping program waits for no lock.
        if !matches!(program.work, PhaseProgress::Waiting(_)) {
            let woken = self.kernel.charge_lock_wait(program.space);
            program.stall_for(locked + woken);
        }
        program.update_mappings(&self.kernel, region).map_err(other_machine_error)
    }

    /// A promotion of shared memory emptied the page tables of its other mappers. Each waits until
    /// the copy is made, as if it accessed the region at once.
    fn apply_remap_to_other_mappers(
        &mut self,
        others: &[(SpaceId, RegionAddr)],
        locked: Duration,
    ) -> Result<()> {
        for (space, region) in others {
            let id = self.programs.iter().find(|p| p.space == *space).map(|p| p.id);
            if let Some(id) = id {
                self.apply_remap_to_owner(id, *region, PageOrder::HUGE, locked)?;
            }
        }
        Ok(())
    }
}

fn other_machine_error(error: impl ToString) -> MachineError {
    MachineError::Other(error.to_string())
}

impl Machine for Engine {
    fn now(&self) -> Duration {
        let turn = self.turn.unwrap_or_default();
        self.now.max(turn.busy_until)
    }

    fn wait_until(&mut self, deadline: Duration) -> LoopWakeReason {
        if let Some(turn) = &mut self.turn {
            turn.wakes_at = deadline;
            return LoopWakeReason::Deadline;
        }
        self.advance_to(deadline);
        if self.is_over() || self.broken.is_some() {
            LoopWakeReason::Stop
        } else {
            LoopWakeReason::Deadline
        }
    }

    fn admit_and_list_processes(&mut self, _until: Duration) -> SliceProgress<Vec<ProcessId>> {
        let mut there: Vec<&Program> = self.programs.iter().filter(|p| p.is_alive()).collect();
        there.sort_by_key(|program| program.arrives);
        let guests = self.guests.iter().filter(|guest| guest.is_alive());
        let guests = guests.map(|guest| guest.id);
        SliceProgress::Done(guests.chain(there.iter().map(|p| p.id)).collect())
    }

    fn read_memory_state(&mut self) -> Result<MemoryState> {
        Ok(MemoryState {
            machine: self.kernel.memory_use(),
            groups: Vec::new(),
            limits_unknown: Vec::new(),
            pressure_percent: Some(0.0),
            fmfi: Some(self.kernel.memory().unusable_free_index()),
        })
    }

    fn read_memory_use(&mut self, scope: &MemoryScope) -> Result<MemoryUse> {
        match scope {
            MemoryScope::Machine => Ok(self.kernel.memory_use()),
            MemoryScope::Group(name) => {
                Err(MachineError::Other(format!("there is no group {name}")))
            }
        }
    }

    fn page_properties(&self) -> MachinePageProperties {
        let costs = self.kernel.costs();
        MachinePageProperties {
            tlb: self.entries,
            promotable: self.promotable,
            at_faults: self.kernel.faults.offered_sizes,
            cores: f64::from(self.cores),
            memory_bytes: self.kernel.figures().total_bytes,
            base_fault: Duration::from_nanos(costs.base_fault_ns),
            zero_base: Duration::from_nanos(costs.zero_base_ns),
            // The papers' kernels split one by one.
            splits_per_call: 1,
        }
    }

    fn promote(&mut self, promotion: &Promotion) -> Result<PromotionResult> {
        let Promotion { process, region, order, expected_present, file, .. } = *promotion;
        if !self.promotable.contains(order) {
            return Err(MachineError::PageSize(order));
        }
        let space = self.space_of_process(process)?;
        let there = self.kernel.region_sample(space, region);
        if there.is_none_or(|there| there.is_huge() && there.order >= order || there.file != file) {
            return Ok(PromotionResult::NotCandidate);
        }
        if there.is_some_and(|there| there.present < expected_present) {
            return Ok(PromotionResult::Freed);
        }
        let mapped = self.kernel.count_mapped_file_pages(space, region);
        let holes = mapped.map_or(0, |pages| PAGES_PER_REGION - pages);
        if holes > MAX_FILE_HOLES {
            return Ok(PromotionResult::FileHoles { pages: holes });
        }
        let others = self.kernel.other_mappers_of_region(space, region);
        match self.kernel.promote(space, region, order) {
            Ok(done) => {
                self.apply_remap_to_owner(process, region, order, done.locked)?;
                self.apply_remap_to_other_mappers(&others, done.locked)?;
                self.advance_by_manager_call(done.time);
                let (took, cpu) = (done.time, done.time);
                Ok(PromotionResult::Done { took, cpu, from_reserve: false })
            }
            Err(KernelError::NoFrames(..)) => Err(MachineError::Refused {
                call: "collapse",
                process,
                // A refusal of another size says nothing about huge pages.
                errno: if order == PageOrder::HUGE { Errno::ENOMEM } else { Errno::EBUSY },
            }),
            Err(_) => Ok(PromotionResult::NotCandidate),
        }
    }

    fn count_zero_pages_in_huge_page(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
        enough: u16,
    ) -> Result<ZeroScanResult> {
        let space = self.space_of_process(process)?;
        let scanned = self.kernel.scan_zeros(space, region, enough);
        // An error: it is no huge page any more, so there is nothing to find.
        let scanned = scanned.unwrap_or(ZeroScanResult { zero_pages: 0, took: Duration::ZERO });
        self.advance_by_manager_time(scanned.took);
        Ok(scanned)
    }

    fn recover_bloat(
        &mut self,
        process: ProcessId,
        regions: &[RegionAddr],
        _kind: BloatKind,
    ) -> Vec<Result<RecoveryResult>> {
        regions.iter().map(|region| self.recover_region(process, *region)).collect()
    }

    fn footprint(
        &mut self,
        process: ProcessId,
        _until: Duration,
    ) -> Result<SliceProgress<ProcessFootprint>> {
        let space = self.space_of_process(process)?;
        let figures = self.kernel.space_figures(space);
        let figures = figures.map_err(|_| MachineError::Gone(process))?;
        Ok(SliceProgress::Done(ProcessFootprint {
            rss_bytes: figures.rss_bytes,
            huge_bytes: figures.huge_bytes,
            has_lost_huge_pages: false,
        }))
    }

    fn management_costs(&self) -> ManagementCosts {
        ManagementCosts { cpu: self.manager_cpu, longest_call: self.longest_call }
    }
}

impl Sampling for Engine {
    fn start_window(
        &mut self,
        process: ProcessId,
        _needs: SampleKinds,
        _until: Duration,
    ) -> Result<SliceProgress<()>> {
        let space = self.space_of_process(process)?;
        let (clear, _) = self.sampling_time(space)?;
        self.advance_by_manager_call(clear);
        let now = self.now;
        if let Some(guest) = self.living_guest(process) {
            guest.open_window(now);
            return Ok(SliceProgress::Done(()));
        }
        let windows = &mut self.living_program(process)?.windows;
        windows.insert(WindowObserver::Manager, SamplingWindow::open(now));
        Ok(SliceProgress::Done(()))
    }

    /// Walks are seen only in an open window, which must last even if nothing else is sampled.
    fn probe(&mut self, process: ProcessId, _until: Duration) -> Result<Option<Duration>> {
        let now = self.now;
        let opened = match self.living_guest(process) {
            Some(guest) => guest.window,
            None => {
                let windows = &self.living_program(process)?.windows;
                windows.get(&WindowObserver::Manager).map(|window| window.opened)
            }
        };
        let seen = opened.map_or(PROBED, |opened| now.saturating_sub(opened));
        Ok((seen < PROBED).then(|| PROBED - seen))
    }

    fn sample(
        &mut self,
        process: ProcessId,
        _until: Duration,
    ) -> Result<SliceProgress<ProcessSample>> {
        let space = self.space_of_process(process)?;
        let (_, read) = self.sampling_time(space)?;
        let now = self.now;
        let kernel = &self.kernel;
        let mut guests = self.guests.iter_mut();
        let mut programs = self.programs.iter_mut();
        let sample = match guests.find(|guest| guest.id == process) {
            Some(guest) => guest.sample_of_host_window(kernel, now),
            None => {
                let program = programs.find(|p| p.id == process);
                let program = program.ok_or(MachineError::Gone(process))?;
                program.sample_of_manager_window(kernel, now, self.promotable)
            }
        };
        // A live manager reads in short slices, so this is not one long call.
        self.advance_by_manager_time(read);
        Ok(SliceProgress::Done(sample))
    }

    fn list_huge_pages(
        &mut self,
        process: ProcessId,
        _until: Duration,
    ) -> Result<SliceProgress<Vec<RegionSample>>> {
        let space = self.space_of_process(process)?;
        let mut huge = self.kernel.list_region_samples(space).unwrap_or_default();
        huge.retain(RegionSample::is_huge);
        for sample in &mut huge {
            sample.accessed = sample.present;
            sample.runs = 1;
        }
        let each = Duration::from_nanos(self.kernel.costs().read_huge_ns);
        self.advance_by_manager_time(each * huge.len() as u32);
        Ok(SliceProgress::Done(huge))
    }

    /// Hardware sets access bits, so a first touch costs the kernel nothing.
    fn first_touch_cost(&self) -> Duration {
        Duration::ZERO
    }
}

impl FaultPageSizes for Engine {
    fn set_fault_sizes(&mut self, process: ProcessId, orders: PageOrderSet) -> Result<()> {
        let space = self.space_of_process(process)?;
        let set = self.kernel.set_fault_sizes(space, orders);
        set.map_err(other_machine_error)
    }
}

impl HugePageReserveControl for Engine {}

impl Prefault for Engine {
    fn take_prefaulted_bytes(&mut self, process: ProcessId) -> u64 {
        let filled = self.filler.as_mut().and_then(|f| f.filled.remove(&process));
        filled.unwrap_or(0)
    }

    fn set_prefault_limit(&mut self, process: ProcessId, room_bytes: u64) {
        if let Some(filler) = &mut self.filler {
            filler.room.insert(process, room_bytes / HUGE_PAGE_BYTES);
        }
    }
}

impl Explain for Engine {
    fn describe(&self, process: ProcessId) -> ProcessDescription {
        let programs = self.programs.iter().map(|p| (p.id, &p.spec.name));
        let guests = self.guests.iter().map(|guest| (guest.id, &guest.name));
        let mut named = programs.chain(guests);
        let found = named.find(|(id, _)| *id == process);
        ProcessDescription {
            name: found.map_or_else(String::new, |(_, name)| name.clone()),
            ..ProcessDescription::default()
        }
    }
}

impl Engine {
    fn sampling_time(&self, space: SpaceId) -> Result<(Duration, Duration)> {
        self.kernel.sampling_times(space).map_err(other_machine_error)
    }
}
