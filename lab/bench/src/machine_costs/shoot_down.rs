//! The cost of removing a translation from another core's TLB.

use super::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};

const CHANGES: u32 = 2_000;

/// Additional cost of a change of protection while another thread of the process runs on another
/// core.
pub fn measure() -> CostResult {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return Err(not_measured("this machine has only one core"));
    }
    let memory = TestMemory::map_and_write(REGION, PageAdvice::Base)?;
    measure_figure(|| {
        let alone = time_protection_changes(&memory)?;
        let together = run_beside_busy_thread(|| time_protection_changes(&memory))?;
        Ok((together - alone).max(0.0))
    })
}

fn time_protection_changes(memory: &TestMemory) -> Result<f64, LinuxError> {
    let begun = Instant::now();
    for _ in 0..CHANGES {
        // Other cores drop a translation only if a right is taken away.
        memory.protect_first_page(false)?;
        memory.protect_first_page(true)?;
        memory.write_word(0, 1);
    }
    Ok(nanoseconds_since(begun) / f64::from(CHANGES))
}

/// Runs `work` while another thread of this process is busy.
fn run_beside_busy_thread<T>(work: impl FnOnce() -> T) -> T {
    let (running, over) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            running.store(true, Ordering::Release);
            while !over.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
        });
        while !running.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let done = work();
        over.store(true, Ordering::Release);
        done
    })
}
