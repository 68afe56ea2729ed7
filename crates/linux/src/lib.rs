//! The running kernel as a [`hawkeye_manager::Machine`].
//!
//! ```text
//!  probe         what works on this kernel, and what follows from it
//!    v
//!  live          LinuxMachine: what the manager asks for
//!    |-- membership, roster, census, identity     the managed processes
//!    |-- sampler, page_tables, pagemap            their accesses
//!    |-- target_call, remote_advice               promotion and splits, by a helper process
//!    |-- recovery, fault_ahead, page_sizes        bloat, memory ahead of its touch, sizes at first touches
//!    `-- cgroup, system_memory, fragmentation     memory
//!  instance, thp_settings, own_files              one manager a machine, and what it must put back
//! ```
//!
//! Read [`live`] first, then [`probe`], then [`sampler`].

#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

pub mod access;
pub mod access_bits;
pub mod bell;
mod bpf;
pub mod census;
pub mod cgroup;
pub mod counters;
pub mod error;
pub mod execs;
pub mod fault_ahead;
pub mod fields;
mod following;
pub mod fragmentation;
pub mod generator;
pub mod identity;
pub mod idle_time;
pub mod instance;
mod ksm;
pub mod learned;
pub mod live;
mod mapping_records;
pub mod mappings;
pub mod measuring;
mod membership;
pub mod own_files;
pub mod page_sizes;
pub mod page_tables;
pub mod pagemap;
mod pid_namespace;
pub mod prezeroing;
pub mod probe;
pub mod process;
mod process_reader;
pub mod recovery;
pub mod remote_advice;
mod reports;
pub mod roster;
pub mod sampler;
pub mod scheduled;
pub mod shared_pages;
mod sizing;
pub mod stop;
pub mod surroundings;
pub mod system_memory;
pub mod takeover;
pub mod target_call;
#[doc(hidden)]
pub mod test_costs;
pub mod thp_settings;
pub mod tlb_sizes;
pub mod unpreempted;
pub mod user_names;
pub mod userfaultfd;
pub mod walk_costs;

pub use bell::Bell;
pub use error::LinuxError;
pub use live::{LinuxMachine, Means};
pub use membership::{MemberView, Scope};
pub use recovery::RecoveryMethod;
pub use takeover::Takeover;
