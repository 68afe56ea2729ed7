//! A program watched while somebody works on it: its speed over time.

use super::error::BenchError;
use super::programs::Program;
use super::programs::speed::measure;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A program at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// Seconds since watching began, about in the middle of what was timed.
    pub at_s: f64,
    /// Operations per second of the program's own CPU time.
    pub per_cpu_s: f64,
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
        moments.push(Moment { at_s, per_cpu_s });
    }
    Ok(moments)
}
