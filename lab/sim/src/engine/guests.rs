//! Virtual machines.
//!
//! A guest is two things. To its host it is a process, and the process's memory is the guest's
//! physical memory. To its programs it is a machine, with a kernel and a manager of its own.
//! Between the two:
//!
//! ```text
//!  guest: programs --> kernel --frames handed out, zeroed--> host_effects --> host: faults, swap
//!            |  ^
//!            |  `--- page sizes behind each region --------- host_mappings <-- host's page tables
//!            `------ accesses ------------------------------ guest_coverage --> host: coverage
//! ```
//!
//! - Frames that the guest's kernel hands out or zeroes are touched at the host
//!   (`host_effects.rs`). The host faults them in, or back in from swap. The program that the
//!   guest's kernel worked for waits for that as well.
//! - The guest's programs walk nested tables. Their cores learn by which page sizes the host maps
//!   the memory behind a region (`host_mappings.rs`).
//! - Accesses of the guest's programs are accesses to the process at the host. They make its
//!   coverage, its overhead, and what reclaim considers old (`guest_coverage.rs`).
//! - Each machine has its own manager; the managers take turns (`machine_view.rs`).
//!
//! Read `guest_machine.rs` first, then `host_effects.rs` from `run_guests_for_step` on.
//!
//! Not modelled: sharing of page-table memory among guests, devices, ballooning, and the
//! hypervisor's own time except exits for faults.

mod guest_coverage;
mod guest_machine;
mod host_effects;
mod host_mappings;
mod machine_view;

pub(super) use guest_machine::GuestMachine;
pub(super) use machine_view::ManagerSchedule;
pub use machine_view::{EngineSharedByManagers, MachineView};
