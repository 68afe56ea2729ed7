//! What happens when memory runs out.

use crate::common::*;
use hawkeye_sim::kernel::fault_policies::{LinuxBase, LinuxThp};
use hawkeye_sim::kernel::{Access, KernelError, KernelThread};
use std::time::Duration;

#[test]
fn the_page_cache_makes_room() -> Outcome {
    let (mut kernel, space) = machine(64 * MIB, 128 * MIB, LinuxBase)?;
    let cached = kernel.read_files(1 << 30);
    assert_eq!(cached, 1 << 30);
    let figures = kernel.figures();
    assert!(figures.cached_bytes > 56 * MIB, "{figures:?}");
    assert!(kernel.memory_use().percent() < 1.0);
    kernel.touch(space, bytes_at(0, 32 * MIB), Access::Write)?;
    assert!(kernel.figures().cached_bytes < 32 * MIB);
    kernel.drop_caches();
    assert_eq!(kernel.figures().free_bytes, 32 * MIB);
    Ok(())
}

#[test]
fn without_swap_a_program_runs_out_of_memory() -> Outcome {
    let (mut kernel, space) = machine(64 * MIB, 128 * MIB, LinuxThp::default())?;
    let touched = kernel.touch(space, bytes_at(0, 128 * MIB), Access::Write);
    assert_eq!(touched, Err(KernelError::OutOfMemory(space)));
    assert_eq!(kernel.out_of_memory_victim(), Some(space));
    assert!(kernel.figures().free_bytes < 10 * MIB);
    assert_eq!(kernel.check(), Ok(()));
    kernel.exit(space)?;
    assert_eq!(kernel.figures().free_bytes, 64 * MIB);
    Ok(())
}

#[test]
fn swap_takes_what_was_not_accessed_and_gives_it_back() -> Outcome {
    let (mut kernel, space) = swapping(64 * MIB, 128 * MIB, LinuxThp::default())?;
    let touched = kernel.touch(space, bytes_at(0, 96 * MIB), Access::Write)?;
    let figures = kernel.space_figures(space)?;
    assert_eq!(figures.rss_bytes + figures.swapped_bytes, 96 * MIB);
    assert!(figures.swapped_bytes >= 32 * MIB, "{figures:?}");
    let first = kernel.sample(space, region(0)).map(|sample| sample.swapped);
    assert_eq!(first, Some(512));
    let back = kernel.touch(space, bytes_at(0, HUGE), Access::Read)?;
    assert_eq!(back.faults.swapped_in, 512);
    // Whoever faults waits for the device.
    assert!(back.paid.time > 512 * Duration::from_micros(100));
    assert!(touched.paid.time < back.paid.time * 100);
    // It is still what was written.
    assert_eq!(kernel.check(), Ok(()));
    kernel.free(space, bytes_at(0, 96 * MIB))?;
    assert_eq!(kernel.figures().swapped_bytes, 0);
    Ok(())
}

#[test]
fn kswapd_keeps_memory_free_ahead_of_programs() -> Outcome {
    let (mut kernel, space) = machine(64 * MIB, 128 * MIB, LinuxBase)?;
    kernel.read_files(1 << 30);
    kernel.touch(space, bytes_at(0, MIB), Access::Write)?;
    let before = kernel.figures().free_bytes;
    let done = kernel.step(Duration::from_secs(1));
    assert!(done.reclaimed > 0);
    assert_eq!(kernel.figures().free_bytes, before + done.reclaimed * PAGE);
    assert_eq!(kernel.thread_time(KernelThread::Kswapd), done.reclaiming);
    assert_eq!(kernel.step(Duration::from_secs(1)).reclaimed, 0);
    Ok(())
}
