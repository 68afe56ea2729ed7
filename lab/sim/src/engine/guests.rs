//! Virtual machines.
//!
//! A guest is two things. To its host it is a process, and the process's memory is the guest's
//! physical memory. To its programs it is a machine, with a kernel and a manager of its own.
//! Between the two:
//!
//! - Frames that the guest's kernel hands out or zeroes are touched at the host
//!   (`host_memory.rs`). The host faults them in, or back in from swap. The program that the
//!   guest's kernel worked for waits for that as well.
//! - The guest's programs walk nested tables. Their cores learn by which page sizes the host maps
//!   the memory behind a region (`host_memory.rs`).
//! - Accesses of the guest's programs are accesses to the process at the host. They make its
//!   coverage, its overhead, and what reclaim considers old (`coverage.rs`).
//! - Each machine has its own manager; the managers take turns (`machine_view.rs`).
//!
//! Not modelled: sharing of page-table memory among guests, devices, ballooning, and the
//! hypervisor's own time except exits for faults.

use super::clock::CpuDemand;
use super::figures::{GuestFigures, ProgramOutcome};
use super::machine::FIRST_PID;
use super::program::ProgramStatus;
use super::{Engine, EngineError};
use crate::kernel::{SpaceFigures, SpaceId};
use crate::mmu::translation::LeafSize;
use crate::simulate::SimulationSetup;
use crate::systems::SimulatedSystem;
use crate::workloads::GuestSpec as GuestWorkload;
use hawkeye_policy::{HUGE_PAGE_BYTES, ProcessId, RegionAddr};
use std::collections::BTreeSet;
use std::time::Duration;

mod coverage;
mod host_memory;
mod machine_view;

pub(super) use machine_view::ManagerSchedule;
pub use machine_view::{MachineView, SharedEngine};

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
    stale: bool,
    looked: Duration,
    /// Pageblocks of it that hold other pages since then, or that the host has remapped.
    moved: BTreeSet<u32>,
    mostly: LeafSize,
    last: SpaceFigures,
    rss_peak_bytes: u64,
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
        let machine = Box::new(Self::without_guests(
            &setup,
            system,
            &guest.processes,
            true,
        )?);
        let space = self.kernel.create_space();
        let bytes = machine.kernel.figures().total_bytes;
        self.kernel.map(space, BEGIN..BEGIN + bytes)?;
        self.kernel.set_mergeable(space, true)?;
        self.guests.push(GuestMachine {
            id: ProcessId {
                pid: FIRST_PID + number,
                start_ticks: 0,
            },
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

    pub(in crate::engine) fn guest_in(&self, space: Option<SpaceId>) -> Option<usize> {
        let mut guests = self.guests.iter();
        guests.position(|guest| guest.space.is_some() && guest.space == space)
    }

    pub(in crate::engine) fn end_guest(&mut self, guest: usize, now: Duration) {
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

    /// Its host remapped a region of its own, which is a pageblock of the guest's memory.
    pub(in crate::engine) fn record_host_remap(&mut self, region: RegionAddr) {
        self.stale = true;
        self.moved.insert(block_of_region(region));
    }

    pub(in crate::engine) fn demand(&self) -> CpuDemand {
        CpuDemand {
            threads: self.machine.busy_threads().min(self.machine.cores),
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

fn region_of_block(block: u32) -> RegionAddr {
    RegionAddr::containing(BEGIN + u64::from(block) * HUGE_PAGE_BYTES)
}

fn block_of_region(region: RegionAddr) -> u32 {
    ((region.start().saturating_sub(BEGIN)) / HUGE_PAGE_BYTES) as u32
}
