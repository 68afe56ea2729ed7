//! Taking a translation out of another core's TLB.

use super::memory::{Memory, Pages, REGION, nanoseconds};
use super::{Found, not_here, turns};
use hawkeye_linux::LinuxError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Changes of protection in one turn.
const CHANGES: u32 = 2_000;

/// What a change of protection takes longer while another thread of the process runs on another core.
///
/// # Errors
/// There is one core, or the other thread can't be had.
pub fn measure() -> Found {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return Err(not_here("there is only one core"));
    }
    let memory = Memory::written(REGION, Pages::Base)?;
    let [took] = turns(|| {
        let alone = changes(&memory)?;
        let together = beside_another(|| changes(&memory))?;
        Ok([(together - alone).max(0.0)])
    })?;
    Ok(took)
}

/// Nanoseconds for one change, and the write after it.
fn changes(memory: &Memory) -> Result<f64, LinuxError> {
    let begun = Instant::now();
    for _ in 0..CHANGES {
        // Only taking a right away makes other cores forget.
        memory.protect_first_page(false)?;
        memory.protect_first_page(true)?;
        memory.write(0, 1);
    }
    Ok(nanoseconds(begun) / f64::from(CHANGES))
}

/// Does it while another thread of this process is busy.
fn beside_another<T>(work: impl FnOnce() -> T) -> T {
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
