//! Waiting, with time limits for fast and for emulated machines.

use std::process::Child;
use std::time::{Duration, Instant};

/// Deadline for what must happen: far longer than it takes on any machine.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// Factor on all time limits: `HAWKEYE_TESTS_PATIENCE`, for emulated machines.
pub fn time_limit_factor() -> u32 {
    from_environment("HAWKEYE_TESTS_PATIENCE", 1) as u32
}

/// Whether the machine is emulated: slow, with page walks that cost nothing.
pub fn is_emulated() -> bool {
    time_limit_factor() > 1
}

/// The number in an environment variable, or the usual one where it is not set.
pub fn from_environment(variable: &str, usual: u64) -> u64 {
    let number = |text: String| text.parse().unwrap_or_else(|_| panic!("{variable}={text}"));
    std::env::var(variable).map_or(usual, number)
}

/// Waits until this is so, and returns whether it is.
pub fn until(at_most: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + at_most * time_limit_factor();
    while Instant::now() < deadline {
        if is_so() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    is_so()
}

/// Waits for a child. Returns its exit code; `None` if it took too long or was killed.
pub fn wait(child: &mut Child, at_most: Duration) -> Option<i32> {
    let mut status = None;
    until(at_most, || {
        status = child.try_wait().expect("the child can be waited for");
        status.is_some()
    });
    status?.code()
}
