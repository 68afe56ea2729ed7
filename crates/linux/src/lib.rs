//! The running kernel as a [`hawkeye_manager::Machine`].

pub mod access_bits;
pub mod bell;
mod bpf;
pub mod census;
pub mod cgroup;
pub mod counters;
pub mod error;
pub mod execs;
pub mod fault_ahead;
pub mod fragmentation;
pub mod identity;
pub mod instance;
pub mod live;
pub mod machine_costs;
pub mod mappings;
mod membership;
pub mod page_tables;
pub mod pagemap;
pub mod probe;
pub mod process;
pub mod remote_advice;
pub mod roster;
pub mod sampler;
pub mod stop;
pub mod system_memory;
pub mod takeover;
pub mod thp_settings;
pub mod unpreempted;
pub mod walk_costs;

pub use bell::Bell;
pub use error::LinuxError;
pub use live::{LinuxMachine, Means, RecoveryMethod};
pub use membership::{MemberView, Scope};
pub use takeover::Takeover;
