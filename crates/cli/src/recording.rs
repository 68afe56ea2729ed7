//! Recordings of a manager at work: how bloat is estimated (`bloat.rs`), and the thread that writes
//! (`writing.rs`).

mod bloat;
mod writing;

pub use writing::{Place, Recording};

use hawkeye_recording::About;
use std::time::{SystemTime, UNIX_EPOCH};

/// What a recording that begins now says of itself.
pub fn about_now(policy: &str) -> About {
    let of_kernel = |file: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/kernel/{file}"));
        text.unwrap_or_default().trim().to_owned()
    };
    About {
        host: of_kernel("hostname"),
        kernel: of_kernel("osrelease"),
        policy: policy.to_owned(),
        began: SystemTime::now().duration_since(UNIX_EPOCH).ok(),
    }
}
