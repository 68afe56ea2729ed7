//! Which page size: what each saves in misses of the TLB and in page faults, against the memory and the zeroing that it costs.
//!
//! - [`blocks`]: in how many aligned blocks of a size a region's pages lie, from how many pages there are and how many runs they
//!   make. Pages of that size would take so many TLB entries, and map so much memory.
//! - [`region`]: the size that a region is best promoted to.
//! - [`faults`]: the size that memory is best given at its first touch, where it is too small or too sparse for a huge page.
//!
//! Memory is priced as [`MachineShape::cores_per_byte`](crate::MachineShape::cores_per_byte) says. Where a machine has one size
//! to offer there is nothing to choose, and nothing of this applies.

pub mod blocks;
pub mod faults;
pub mod region;
