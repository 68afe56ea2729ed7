//! A kernel's memory manager: address spaces, page faults, and everything that gives pages and takes them away.
//!
//! [`Kernel`] has no clock and no thread of its own: each operation says how long it took and who pays
//! ([`Paid`]), and [`Kernel::step`] lets the kernel's threads work for a while. What differs between systems at a page
//! fault is a [`FaultPolicy`](fault_policies::FaultPolicy); what a manager does between faults is called from outside
//! ([`Kernel::promote`], [`Kernel::recover`], ...), khugepaged included: it is the policy `linux`.
//!
//! # The model
//!
//! - Memory is private and anonymous. Of each region the page table is kept as sets of pages, and frames by
//!   runs, so that neighbouring pages in neighbouring frames take no more room than one.
//! - Of content it is known whether a page is all zeros.
//! - Faults on neighbouring pages are worked off together, with exactly the result of one after the other.
//! - Pages have any size from 4 KiB to 1 GiB. Up to a huge page they are as in Linux: folios at first touches and by promotion.
//!   What is larger no kernel gives to anonymous memory; here promotion does, to show what it would bring.
//! - Where there is no memory left, reservations are broken, the page cache is dropped and pages are swapped; then it is
//!   out of memory.
//!
//! Left out: files that are mapped, remote nodes, page tables' own memory, locks that threads wait for.

mod cache;
mod compacting;
mod contiguous;
mod costs;
mod error;
pub mod fault_policies;
mod fault_sum;
mod faulting;
mod figures;
mod folios;
mod fork;
mod freeing;
mod frontier;
mod hosted;
mod invariants;
mod machine;
mod mapped;
mod mapping;
mod merging;
mod moving;
mod payer;
mod promoting;
mod recency;
mod reclaim;
mod recovering;
mod region;
mod remapped;
mod reservations;
mod sized_faults;
mod space;
mod spaces;
mod supply;
mod swap;
mod table;
mod threads;

pub use costs::{Calibration, KernelCosts};
pub use error::{BrokenKernel, KernelError};
pub use faulting::{Access, Touched};
pub use figures::{MemoryFigures, SpaceFigures};
pub use machine::{Kernel, KernelSpec};
pub use mapped::MappedBySize;
pub use payer::{KernelThread, Paid, Payer};
pub use promoting::Collapsed;
pub(crate) use reclaim::regions_around;
pub use recovering::{DeDuplicated, ZeroPages};
pub(crate) use region::Region;
pub use space::{Faults, HugeAdvice, SpaceId};
pub use swap::SwapSpec;
pub use threads::{MergeSpec, Stepped, ZeroingSpec};
