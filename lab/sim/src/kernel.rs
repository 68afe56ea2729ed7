//! A kernel's memory manager: address spaces, faults, and all that gives and takes pages.
//!
//! [`SimulatedKernel`] has no clock and no thread of its own. Each operation returns its time and
//! charges it to a program or to a thread of the kernel. [`SimulatedKernel::step_kernel_threads`]
//! runs these threads. Systems differ at a page fault by their
//! [`FaultPolicy`](fault_policies::FaultPolicy). A manager's work between faults is called from
//! outside ([`SimulatedKernel::promote`], [`SimulatedKernel::recover_bloat`], ...). That includes
//! khugepaged: it is the policy `linux`.
//!
//! # The model
//!
//! - Memory is private and anonymous. A region's page table is kept as sets of pages. Frames are
//!   kept by runs, so that neighbouring pages in neighbouring frames take no more room than one.
//! - Of a page's content only one thing is known: whether it is all zeros.
//! - Faults on neighbouring pages are handled together, with the result of one after the other.
//! - Pages have any size from 4 KiB to 1 GiB. Up to a huge page they are as in Linux: folios at
//!   first touches and by promotion. No kernel gives larger pages to anonymous memory. Here
//!   promotion does, to show what it would bring.
//! - When no memory is left, the kernel breaks reservations, drops the page cache and swaps pages.
//!   After that it is out of memory.
//!
//! Not modelled: mapped files, remote nodes, page tables' own memory, waits for locks.

mod cache;
mod compaction;
mod contiguous_range;
mod costs;
mod error;
mod fault_mapping;
pub mod fault_policies;
mod faults;
mod figures;
mod first_touches;
mod folios;
mod frame_supply;
mod free;
mod host_swap;
mod invariants;
mod mapped_sizes;
mod page_moves;
mod promotion;
mod recency;
mod reclaim;
mod recovery;
mod region;
mod remapped_regions;
mod reservations;
mod same_page_merging;
mod sized_faults;
mod space;
mod state;
mod swap;
mod table;
mod threads;

pub use costs::{FaultCostCalibration, KernelCosts};
pub(crate) use error::Result;
pub use error::{BrokenKernel, KernelError};
pub use faults::{PageAccess, TouchedPages};
pub use figures::{MemoryFigures, SpaceFigures};
pub use mapped_sizes::MappedBySize;
pub use promotion::CompletedPromotion;
pub(crate) use reclaim::regions_around;
pub(crate) use region::{RegionMapping, RegionPiece};
pub(crate) use space::RegionId;
pub use space::{FaultCounts, SpaceId};
pub use state::SimulatedKernel;
pub use swap::SwapSpec;
pub use threads::{KernelThreadTimes, KernelThreadWork, SamePageMergingSpec, ZeroingSpec};
