//! Memory of the machine and of cgroups: how much is left, how fragmented it is, and giving it back.
//!
//! [`system_memory`] and [`cgroup`] say how much is in use and how much waiting that causes;
//! [`recovery`] gives zero pages back; [`prezeroing`] and [`idle_time`] serve kernels that zero free
//! memory by themselves; `ksm` says whether equal pages are merged.

pub mod cgroup;
pub mod fragmentation;
pub mod idle_time;
pub(crate) mod ksm;
pub mod prezeroing;
pub mod recovery;
pub mod system_memory;
