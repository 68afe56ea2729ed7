//! A kernel's memory manager: address spaces, faults, and all that gives and takes pages.
//!
//! ```text
//!  touch ----> faults: the cause of each --> fault_policies: which page a first touch gets
//!                |-- fault_mapping, sized_faults: maps it -----+
//!                |-- shared_files: maps a page of a file ------+
//!                `-- swap: reads it back ----------------------+--> frame_supply --> memory
//!  promote --> promotion: collapses, copies, maps -------------+      |-- reclaim: reservations,
//!  recover_bloat --> recovery: zero pages ----> memory                |     page_cache, swap
//!  free -----------> free: frames ------------> memory                `-- compaction: page_moves
//!  run_kernel_threads_for_step --> kernel_threads: kswapd, zeroing, same_page_merging
//! ```
//!
//! All of these change the page table: `address_space`, its `region_table`, and the
//! `region_mapping` of each region. Read `simulated_kernel.rs`, the state, first. Then read
//! `faults.rs`, `frame_supply.rs` and `promotion.rs`.
//!
//! [`SimulatedKernel`] has no clock and no thread of its own. Each operation returns its time and
//! charges it to a program or to a thread of the kernel.
//! [`SimulatedKernel::run_kernel_threads_for_step`] runs these threads. Systems differ at a page
//! fault by their [`FaultPolicy`](fault_policies::FaultPolicy). A manager's work between faults is called from
//! outside ([`SimulatedKernel::promote`], [`SimulatedKernel::recover_bloat`], ...). That includes
//! khugepaged: it is the policy `linux`.
//!
//! # The model
//!
//! - Memory is private and anonymous, or it is a file of shared memory (`shared_files.rs`).
//! - A region's page table is kept as sets of pages. Frames are kept by runs, so that neighbouring
//!   pages in neighbouring frames take no more room than one.
//! - Of a page's content only one thing is known: whether it is all zeros.
//! - Faults on neighbouring pages are handled together, with the result of one after the other.
//! - Pages have any size from 4 KiB to 1 GiB. Up to a huge page they are as in Linux: folios at
//!   first touches and by promotion. No kernel gives larger pages to anonymous memory. Here
//!   promotion does, to show what it would bring.
//! - When no memory is left, the kernel breaks reservations, drops the page cache and swaps pages.
//!   After that it is out of memory.
//!
//! Not modelled: files on disks, remote nodes, page tables' own memory, waits for locks.

mod address_space;
mod compaction;
mod contiguous_range;
mod error;
mod fault_mapping;
pub mod fault_policies;
mod faults;
mod figures;
mod file_region;
mod first_touch_stream_detector;
mod folios;
mod frame_supply;
mod frames_swapped_by_host;
mod free;
mod ids;
mod invariants;
mod kernel_costs;
mod kernel_threads;
mod mapped_bytes_by_size;
mod page_cache;
mod page_moves;
mod promotion;
mod reclaim;
mod reclaim_lists;
mod recovery;
mod region_mapping;
mod region_table;
mod remapped_regions;
mod reservations;
mod same_page_merging;
mod shared_files;
mod simulated_kernel;
mod sized_faults;
mod swap_device;
mod swap_out;

pub use address_space::FaultCounts;
pub(crate) use address_space::RegionId;
pub(crate) use error::Result;
pub use error::{InvariantViolation, KernelError};
pub use faults::{PageAccessKind, TouchResult};
pub use figures::{MemoryFigures, SpaceFigures};
pub use ids::{SharedFileId, SpaceId};
pub use kernel_costs::{FaultCostCalibration, KernelCosts};
pub use kernel_threads::{KernelThreadTimes, KernelThreadWork, SamePageMergingSpec, ZeroingSpec};
pub use mapped_bytes_by_size::MappedBytesBySize;
pub use promotion::CompletedPromotion;
pub(crate) use reclaim::regions_of_same_page;
pub(crate) use region_mapping::{RegionMapping, RegionPartInPageblock};
pub use simulated_kernel::SimulatedKernel;
pub use swap_device::SwapSpec;
