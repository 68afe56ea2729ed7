//! What simulated programs do: processes, their memory, and phases of filling, accessing, freeing
//! and waiting, as data.
//!
//! A workload does not depend on the system that it runs on. The amount of work is given in
//! accesses, or in seconds of the program's own work without translation. Its duration follows from
//! the system.

mod built_in;
mod error;
mod recorded;
mod size;
mod spec;
mod traced;

pub use built_in::{BUILT_IN, by_name, names};
pub use error::WorkloadError;
pub use recorded::Replay;
pub use size::Size;
pub(crate) use spec::DEFAULT_CPU_WEIGHT;
pub use spec::{Area, Content, Guest, Included, Pattern, Phase, Pieces, Process, Stream, Workload};
pub use traced::{Tape, TraceWorkloadError, traced};
