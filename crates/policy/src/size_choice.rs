//! The choice of page size: what each size saves in TLB misses and page faults, against the memory
//! and the zeroing that it costs.
//!
//! - [`blocks`]: the number of aligned blocks of a size that hold a region's pages, from the number
//!   of pages and of runs. It gives the TLB entries and the memory that pages of that size would
//!   take.
//! - [`region`]: the best size for the promotion of a region.
//! - [`faults`]: the best size for memory at its first touch, where it is too small or too sparse
//!   for a huge page.
//!
//! [`MachineShape::cores_per_byte`](crate::MachineShape::cores_per_byte) sets the price of memory.
//! Where a machine offers only one size there is no choice, and nothing of this applies.

pub mod blocks;
pub mod faults;
pub mod region;
