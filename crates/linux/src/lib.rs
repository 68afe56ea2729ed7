//! Manages the running kernel: [`LinuxMachine`] implements [`hawkeye_manager::Machine`].
//!
//! ```text
//!  probe         what works on this kernel, and what follows from it
//!    v
//!  machine       LinuxMachine: what the manager asks for
//!    |-- processes    which there are, and which of them are managed
//!    |-- sample       their accesses, population and page walks
//!    |-- promote      promotion and splits, by a helper process
//!    |-- memory       how much is left, and giving zero pages back
//!    |-- prefault     memory filled ahead of its first touch
//!    `-- page_sizes   sizes that first touches get
//!  arch          what differs between processor architectures
//!  machine_lease one manager a machine, and what it must put back
//!  stop_signals  what a waiting manager is woken by
//! ```
//!
//! Read [`machine`] first, then [`probe`], then [`sample`].

#![cfg_attr(
    not(test),
    warn(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)
)]

pub mod anonymous_mapping;
pub mod arch;
mod bpf_skeletons;
pub mod error;
pub mod machine;
pub mod machine_lease;
pub mod memory;
mod mutex;
pub mod name_value_lines;
pub mod page_sizes;
pub mod prefault;
pub mod probe;
pub mod processes;
pub mod promote;
mod ring_buffer;
pub mod sample;
pub mod stop_signals;
#[doc(hidden)]
pub mod test_costs;

pub use error::LinuxError;
pub use machine::LinuxMachine;
pub use machine_lease::MachineLease;
pub use memory::recovery_method::RecoveryMethod;
pub use probe::ChosenKernelMethods;
pub use processes::managed_processes::{ManagedProcessView, ManagedTarget};
pub use stop_signals::Waker;
