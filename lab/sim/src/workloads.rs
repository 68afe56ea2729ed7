//! What simulated programs do: processes, their memory, and phases of filling, accessing, freeing
//! and waiting, as data.
//!
//! A workload does not depend on the system that it runs on. The amount of work is given in
//! accesses, or in seconds of the program's own work without translation. Its duration follows from
//! the system.
//!
//! ```text
//!  lab/sim/workloads/*.toml --built_in--+
//!  a file of the user ------------------+--parse, check--> WorkloadSpec --> engine
//!  a trace --trace_workload-------------+                  (workload_spec)
//!  a recording --recording_replay-------'
//! ```
//!
//! Read [`WorkloadSpec`] first, beside a file of `lab/sim/workloads/`.

mod built_in;
mod byte_size;
mod error;
mod recording_replay;
mod trace_replay;
mod trace_workload;
mod workload_spec;

pub use built_in::{BUILT_IN, built_in_names};
pub use byte_size::ByteSize;
pub use error::WorkloadSpecError;
pub use recording_replay::RecordingReplay;
pub use trace_replay::TraceReplay;
pub use trace_workload::{TraceWorkloadError, workload_of_trace};
pub(crate) use workload_spec::DEFAULT_CPU_WEIGHT;
pub use workload_spec::{
    AccessStream, Area, AreaPieces, FillContent, GuestSpec, IncludedWorkload, Phase, Process,
    StreamPattern, WorkloadSpec, by_name,
};
