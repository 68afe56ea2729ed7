//! What simulated programs do: processes, their memory, and phases of filling, accessing, freeing
//! and waiting, as data.
//!
//! A workload does not depend on the system that it runs on. The amount of work is given in
//! accesses, or in seconds of the program's own work without translation. Its duration follows from
//! the system.

mod built_in;
mod error;
mod recording_replay;
mod size;
mod spec;
mod trace_workload;

pub use built_in::{BUILT_IN, by_name, names};
pub use error::WorkloadSpecError;
pub use recording_replay::RecordingReplay;
pub use size::ByteSize;
pub(crate) use spec::DEFAULT_CPU_WEIGHT;
pub use spec::{
    AccessStream, Area, AreaPieces, FillContent, GuestSpec, IncludedWorkload, Phase, Process,
    StreamPattern, WorkloadSpec,
};
pub use trace_workload::{TraceReplay, TraceWorkloadError, workload_of_trace};
