//! A kernel's memory manager: address spaces, page faults, and everything that gives pages and
//! takes them away.
//!
//! [`Kernel`] has no clock and no thread of its own. Each operation returns its time, charges it to a program or to a
//! thread of the kernel, and [`Kernel::step`] runs the kernel's threads for a while. Systems differ at a page
//! fault by their [`FaultPolicy`](fault_policies::FaultPolicy). What a manager does between faults
//! is called from outside ([`Kernel::promote`], [`Kernel::recover`], ...). That includes
//! khugepaged: it is the policy `linux`.
//!
//! # The model
//!
//! - Memory is private and anonymous. A region's page table is kept as sets of pages. Frames are
//!   kept by runs, so that neighbouring pages in neighbouring frames take no more room than one.
//! - Of a page's content only one thing is known: whether it is all zeros.
//! - Faults on neighbouring pages are handled together, with exactly the result of one after the
//!   other.
//! - Pages have any size from 4 KiB to 1 GiB. Up to a huge page they are as in Linux: folios at
//!   first touches and by promotion. No kernel gives larger pages to anonymous memory. Here
//!   promotion does, to show what it would bring.
//! - When no memory is left, the kernel breaks reservations, drops the page cache and swaps pages.
//!   After that it is out of memory.
//!
//! Not modelled: mapped files, remote nodes, page tables' own memory, and locks that threads wait
//! for.

mod cache;
mod compacting;
mod contiguous;
mod costs;
mod error;
pub mod fault_policies;
mod faulting;
mod figures;
mod folios;
mod freeing;
mod frontier;
mod hosted;
mod invariants;
mod machine;
mod mapped;
mod mapping;
mod merging;
mod moving;
mod promoting;
mod recency;
mod reclaim;
mod recovering;
mod region;
mod remapped;
mod reservations;
mod sized_faults;
mod space;
mod supply;
mod swap;
mod table;
mod threads;

pub use costs::{Calibration, KernelCosts};
pub(crate) use error::Result;
pub use error::{BrokenKernel, KernelError};
pub use faulting::{Access, Touched};
pub use figures::{MemoryFigures, SpaceFigures};
pub use machine::Kernel;
pub use mapped::MappedBySize;
pub use promoting::Collapsed;
pub(crate) use reclaim::regions_around;
pub(crate) use region::{Piece, Region};
pub(crate) use space::RegionId;
pub use space::{Faults, SpaceId};
pub use swap::SwapSpec;
pub use threads::{MergeSpec, Stepped, ThreadTimes, ZeroingSpec};
