//! What simulated programs do: processes, their memory, and phases of filling, accessing, freeing and waiting, as data.
//!
//! A workload knows nothing of the system that it runs on. How much a program does is said in accesses, or in the
//! seconds that its own work takes without any translation; how long it needs follows from the system.

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
