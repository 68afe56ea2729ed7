//! A program watched while somebody works on it: its speed and its memory over time.

use super::error::BenchError;
use super::programs::Program;
use super::programs::speed::measure;
use hawkeye_linux::LinuxError;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A program at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// Seconds since watching began, in the middle of what was timed.
    pub at_s: f64,
    /// Operations per second of the program's own CPU time.
    pub per_cpu_s: f64,
    /// Resident memory, in bytes.
    pub rss_bytes: u64,
    /// Of this, anonymous memory under huge pages.
    pub huge_bytes: u64,
}

/// Watches a program that works, `step` after `step`, until `work` is done. `work` may look at the flag, which says that
/// watching has failed.
///
/// # Errors
/// Those of `work`, or the program could not be watched.
pub fn watch<T>(
    program: &mut dyn Program,
    step: Duration,
    work: impl FnOnce(&AtomicBool) -> Result<T, BenchError>,
) -> Result<(T, Vec<Moment>), BenchError> {
    /// Says that it is over, also where the work panics.
    struct Over<'a>(&'a AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let (over, failed) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let watched = moments(program, step, &over);
            failed.store(watched.is_err(), Ordering::Relaxed);
            watched
        });
        let worked = {
            let _over = Over(&over);
            work(&failed)
        };
        let watched = watching.join();
        let watched = watched.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((worked?, watched?))
    })
}

fn moments(
    program: &mut dyn Program,
    step: Duration,
    over: &AtomicBool,
) -> Result<Vec<Moment>, BenchError> {
    let begun = Instant::now();
    let mut moments = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let from = begun.elapsed();
        let per_cpu_s = measure(program, step)?.per_cpu_s;
        let at_s = (from + begun.elapsed()).as_secs_f64() / 2.0;
        let (rss_bytes, huge_bytes) = memory(program.pid())?;
        moments.push(Moment {
            at_s,
            per_cpu_s,
            rss_bytes,
            huge_bytes,
        });
    }
    Ok(moments)
}

/// Resident memory, and how much anonymous memory is under huge pages, in bytes.
///
/// # Errors
/// The process is gone.
pub fn memory(pid: u32) -> Result<(u64, u64), BenchError> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let path = Path::new(&path);
    let text = fs::read_to_string(path).map_err(LinuxError::file("reading", path))?;
    Ok((field(&text, "Rss:"), field(&text, "AnonHugePages:")))
}

/// A field of `smaps`, in bytes.
fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_smaps_are_in_bytes() {
        let text = "Rss:        2048 kB\nAnonHugePages:      1024 kB\n";
        assert_eq!(field(text, "Rss:"), 2 << 20);
        assert_eq!(field(text, "AnonHugePages:"), 1 << 20);
        assert_eq!(field(text, "Swap:"), 0);
    }

    #[test]
    fn our_own_memory_is_read() {
        let (rss, huge) = memory(std::process::id()).expect("is there");
        assert!(rss > 0 && huge <= rss);
    }
}
