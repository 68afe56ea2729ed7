//! A virtual machine as its host sees it.

use crate::engine::core_shares::CpuDemand;
use crate::engine::figures::{GuestFigures, ProgramOutcome};
use crate::engine::machine::FIRST_PID;
use crate::engine::program::ProgramStatus;
use crate::engine::{Engine, EngineError};
use crate::kernel::{SpaceFigures, SpaceId};
use crate::mmu::translation::LeafSize;
use crate::simulation_setup::SimulationSetup;
use crate::systems::SimulatedSystem;
use crate::workloads::GuestSpec as GuestWorkload;
use hawkeye_policy::{HUGE_PAGE_BYTES, ProcessId, RegionAddr};
use std::collections::BTreeSet;
use std::time::Duration;

/// Start of a guest's memory in the address space of its process at the host.
const BEGIN: u64 = 0x1000_0000_0000;

#[derive(Debug)]
pub(in crate::engine) struct GuestMachine {
    pub(in crate::engine) id: ProcessId,
    pub(in crate::engine) name: String,
    pub(in crate::engine) machine: Box<Engine>,
    /// The host's address space for its memory; `None` once it was killed.
    pub(in crate::engine) space: Option<SpaceId>,
    /// When the host's manager began to sample its accesses.
    pub(in crate::engine) window: Option<Duration>,
    /// Whether the host's mappings behind its memory may have changed since `looked`.
    pub(super) stale: bool,
    pub(super) looked: Duration,
    /// Pageblocks of it that hold other pages since then, or that the host has remapped.
    pub(super) moved: BTreeSet<u32>,
    pub(super) mostly: LeafSize,
    pub(super) last: SpaceFigures,
    pub(super) rss_peak_bytes: u64,
}

impl Engine {
    pub(in crate::engine) fn add_guest(
        &mut self,
        host: &SimulationSetup,
        system: &SimulatedSystem,
        guest: &GuestWorkload,
    ) -> Result<(), EngineError> {
        let number = (self.programs.len() + self.guests.len()) as u32;
        let setup = SimulationSetup {
            memory_bytes: guest.memory.0,
            cores: guest.cores,
            swap: None,
            merging: None,
            fragmented: host.guest_fragmented,
            // Programs of two guests draw different numbers.
            seed: host.seed.wrapping_add(u64::from(number) << 32),
            ..*host
        };
        let machine = Box::new(Self::new_without_guests(&setup, system, &guest.processes, true)?);
        let space = self.kernel.create_space();
        let bytes = machine.kernel.figures().total_bytes;
        self.kernel.map(space, BEGIN..BEGIN + bytes)?;
        self.kernel.set_mergeable(space, true)?;
        self.guests.push(GuestMachine {
            id: ProcessId { pid: FIRST_PID + number, start_ticks: 0 },
            name: guest.name.clone(),
            machine,
            space: Some(space),
            window: None,
            stale: true,
            looked: Duration::ZERO,
            moved: BTreeSet::new(),
            mostly: LeafSize::Base,
            last: SpaceFigures::default(),
            rss_peak_bytes: 0,
        });
        Ok(())
    }

    pub(in crate::engine) fn guest_index_of_space(&self, space: Option<SpaceId>) -> Option<usize> {
        let mut guests = self.guests.iter();
        guests.position(|guest| guest.space.is_some() && guest.space == space)
    }

    pub(in crate::engine) fn kill_guest(&mut self, guest: usize, now: Duration) {
        let Some(guest) = self.guests.get_mut(guest) else {
            return;
        };
        let inside = &mut guest.machine;
        for index in 0..inside.programs.len() {
            let ended = |life| matches!(life, ProgramStatus::Ended(..));
            if inside.programs.get(index).is_some_and(|p| !ended(p.life)) {
                inside.end_program(index, ProgramOutcome::Killed, now);
            }
        }
        if let Some(space) = guest.space.take() {
            if let Err(error) = self.kernel.exit(space) {
                self.broken = Some(error.into());
            }
        }
    }
}

impl GuestMachine {
    pub(in crate::engine) fn is_alive(&self) -> bool {
        self.space.is_some()
    }

    /// All that runs in it waits for its host for this time.
    pub(in crate::engine) fn stall_programs(&mut self, locked: Duration) {
        for program in self.machine.programs.iter_mut().filter(|p| p.is_busy()) {
            program.stall_for(locked);
        }
    }

    /// Its host remapped a region of its own, which is a pageblock of the guest's memory.
    pub(in crate::engine) fn record_host_remap(&mut self, region: RegionAddr) {
        self.stale = true;
        self.moved.insert(pageblock_of_host_region(region));
    }

    pub(in crate::engine) fn cpu_demand(&self) -> CpuDemand {
        CpuDemand {
            threads: self.machine.count_busy_threads().min(self.machine.cores),
            weight: 1.0,
        }
    }

    pub(in crate::engine) fn figures(&self) -> GuestFigures {
        GuestFigures {
            name: self.name.clone(),
            rss_peak_bytes: self.rss_peak_bytes,
            swapped_bytes: self.last.swapped_bytes,
            swapped_in: self.last.faults.swapped_in,
            inside: self.machine.figures(),
        }
    }
}

pub(super) fn host_region_of_pageblock(block: u32) -> RegionAddr {
    RegionAddr::containing(BEGIN + u64::from(block) * HUGE_PAGE_BYTES)
}

pub(super) fn pageblock_of_host_region(region: RegionAddr) -> u32 {
    ((region.start().saturating_sub(BEGIN)) / HUGE_PAGE_BYTES) as u32
}
