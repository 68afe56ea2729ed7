//! Memory of the machine and of cgroups: how much is left, how fragmented it is, and how to give it
//! back.
//!
//! ```text
//!  /proc, /sys/fs/cgroup --> system_memory, cgroup_limits --> the loop: is memory short?
//!                                                                |
//!  zero pages, given back <-- recovery_method <--- huge pages to split
//!
//!  /proc/buddyinfo --> fragmentation --> the reserve, the policy ingens, prefault
//! ```
//!
//! [`system_memory`] and [`cgroup_limits`] report how much is in use and how long tasks wait for
//! memory. [`recovery_method`] gives zero pages back. [`fragmentation`] reports the share of free
//! memory that cannot be huge pages. [`prezeroing`] and [`idle_time_meter`] serve kernels that zero
//! free memory in advance. [`promotion_check`] checks for one promotion whether memory allows it.
//! `ksm` reports whether equal pages are merged. [`oom_kills`] counts the
//! processes that were killed for lack of memory.
//!
//! Read [`system_memory`] first, then [`cgroup_limits`], which reports the same for cgroups, then
//! [`recovery_method`].

pub mod cgroup_limits;
pub mod fragmentation;
pub mod idle_time_meter;
pub(crate) mod ksm;
pub mod oom_kills;
pub mod prezeroing;
pub mod promotion_check;
pub mod recovery_method;
pub mod system_memory;
