//! Recordings of a running manager: the estimate of bloat (`bloat_estimator.rs`) and the thread
//! that writes (`active_recording.rs`).

mod active_recording;
mod bloat_estimator;

pub use active_recording::{ActiveRecording, RecordingTarget};
