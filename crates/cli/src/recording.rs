//! Recordings of a running manager: the estimate of bloat (`bloat_estimates.rs`) and the thread
//! that writes (`active_recording.rs`).

mod active_recording;
mod bloat_estimates;

pub use active_recording::{ActiveRecording, RecordingTarget};
