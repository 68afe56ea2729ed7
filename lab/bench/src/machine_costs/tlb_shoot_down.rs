//! The cost of removing a translation from another core's TLB.

use super::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};

const CHANGES: u32 = 2_000;

/// Additional cost of a change of protection while another thread of the process runs on another
/// core.
pub fn measure_shoot_down_cost() -> CostResult {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return Err(not_measured_error("this machine has only one core"));
    }
    let memory = ScratchMemory::map_and_write(REGION, PageAdvice::Base)?;
    median_figure_over_turns(|| {
        let alone = ns_per_protection_change(&memory)?;
        let together = run_beside_busy_thread(|| ns_per_protection_change(&memory))?;
        Ok((together - alone).max(0.0))
    })
}

fn ns_per_protection_change(memory: &ScratchMemory) -> Result<f64, LinuxError> {
    let begun = Instant::now();
    for _ in 0..CHANGES {
        // Other cores drop a translation only if a right is taken away.
        memory.set_first_page_writable(false)?;
        memory.set_first_page_writable(true)?;
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
