//! What happens when memory runs out.

use crate::common::*;
use hawkeye_sim::kernel::fault_policies::{LINUX_BASE, LINUX_THP};
use hawkeye_sim::kernel::{KernelError, PageAccessKind, SimulatedKernel};
use std::time::Duration;

#[test]
fn the_page_cache_makes_room() -> TestResult {
    let (mut kernel, space) = machine(64 * MIB, 128 * MIB, LINUX_BASE)?;
    assert_eq!(kernel.fragment_free_memory(1.0, 1), 32);
    assert_eq!(kernel.figures().cached_bytes, 32 * PAGE);
    assert_eq!(kernel.memory_use().used_bytes, 0);
    kernel.touch(space, bytes_at(0, 128 * MIB), PageAccessKind::Write).ok();
    assert_eq!(kernel.figures().cached_bytes, 0);
    Ok(())
}

#[test]
fn without_swap_a_program_runs_out_of_memory() -> TestResult {
    let (mut kernel, space) = machine(64 * MIB, 128 * MIB, LINUX_THP)?;
    let touched = kernel.touch(space, bytes_at(0, 128 * MIB), PageAccessKind::Write);
    assert_eq!(touched, Err(KernelError::OutOfMemory(space)));
    assert_eq!(kernel.out_of_memory_victim(), Some(space));
    assert!(kernel.figures().free_bytes < 10 * MIB);
    assert_eq!(kernel.check(), Ok(()));
    kernel.exit(space)?;
    assert_eq!(kernel.figures().free_bytes, 64 * MIB);
    Ok(())
}

#[test]
fn swap_takes_what_was_not_accessed_and_gives_it_back() -> TestResult {
    let (mut kernel, space) = swapping(64 * MIB, 128 * MIB, LINUX_THP)?;
    let touched = kernel.touch(space, bytes_at(0, 96 * MIB), PageAccessKind::Write)?;
    let figures = kernel.space_figures(space)?;
    assert_eq!(figures.rss_bytes + figures.swapped_bytes, 96 * MIB);
    assert!(figures.swapped_bytes >= 32 * MIB, "{figures:?}");
    let first = kernel.region_sample(space, region(0)).map(|sample| sample.swapped);
    assert_eq!(first, Some(512));
    let back = kernel.touch(space, bytes_at(0, HUGE), PageAccessKind::Read)?;
    assert_eq!(back.faults.swapped_in, 512);
    // The faulting program waits for the device.
    assert!(back.time > 512 * Duration::from_micros(100));
    assert!(touched.time < back.time * 100);
    assert_eq!(kernel.check(), Ok(()));
    kernel.free(space, bytes_at(0, 96 * MIB))?;
    assert_eq!(kernel.figures().swapped_bytes, 0);
    Ok(())
}

/// The space filled first loses memory first, except what is accessed on the inactive list.
#[test]
fn the_oldest_memory_goes_first_unless_it_is_accessed() -> TestResult {
    let (mut kernel, young) = swapping(96 * MIB, 128 * MIB, LINUX_BASE)?;
    let old = kernel.create_space();
    kernel.map(old, bytes_at(0, 128 * MIB))?;
    kernel.touch(old, bytes_at(0, 32 * MIB), PageAccessKind::Write)?;
    kernel.run_kernel_threads_for_step(Duration::from_secs(1));
    kernel.touch(young, bytes_at(0, 64 * MIB), PageAccessKind::Write)?;
    // The start of the old program's memory is gone; its end is inactive by now.
    let gone = |kernel: &SimulatedKernel, index| {
        let sample = kernel.region_sample(old, region(index));
        sample.map_or(0, |sample| sample.swapped)
    };
    assert!(gone(&kernel, 0) > 0 && gone(&kernel, 15) == 0);
    assert_eq!(kernel.space_figures(young)?.swapped_bytes, 0);
    kernel.touch(old, bytes_at(15 * HUGE, HUGE), PageAccessKind::Read)?;
    kernel.touch(young, bytes_at(64 * MIB, 32 * MIB), PageAccessKind::Write)?;
    assert_eq!((gone(&kernel, 14), gone(&kernel, 15)), (512, 0));
    assert!(kernel.space_figures(young)?.swapped_bytes > 0);
    assert_eq!(kernel.check(), Ok(()));
    Ok(())
}

#[test]
fn kswapd_keeps_memory_free_ahead_of_programs() -> TestResult {
    let (mut kernel, space) = swapping(64 * MIB, 128 * MIB, LINUX_BASE)?;
    kernel.touch(space, bytes_at(0, 80 * MIB), PageAccessKind::Write)?;
    let before = kernel.figures().free_bytes;
    let done = kernel.run_kernel_threads_for_step(Duration::from_secs(1));
    assert!(done.reclaimed > 0);
    assert_eq!(kernel.figures().free_bytes, before + done.reclaimed * PAGE);
    assert_eq!(kernel.kernel_thread_times().kswapd, done.reclaiming);
    assert_eq!(kernel.run_kernel_threads_for_step(Duration::from_secs(1)).reclaimed, 0);
    Ok(())
}
