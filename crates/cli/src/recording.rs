//! Recordings of a running manager: the estimate of bloat (`bloat.rs`) and the thread that writes
//! (`active_recording.rs`).

mod active_recording;
mod bloat;

pub use active_recording::{ActiveRecording, RecordingTarget};
