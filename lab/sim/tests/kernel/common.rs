//! Machines for the tests.

use hawkeye_policy::RegionAddr;
use hawkeye_sim::kernel::fault_policies::FaultPolicy;
use hawkeye_sim::kernel::{KernelCosts, KernelError, SimulatedKernel, SpaceId, SwapSpec};
use std::ops::Range;

pub type TestResult<T = ()> = Result<T, KernelError>;

pub const PAGE: u64 = 4096;
pub const HUGE: u64 = 2 << 20;
pub const MIB: u64 = 1 << 20;
/// Where the tests map memory.
pub const AT: u64 = 1 << 30;

/// A machine with an address space that has `bytes` mapped at [`AT`].
pub fn machine(
    memory_bytes: u64,
    bytes: u64,
    faults: FaultPolicy,
) -> TestResult<(SimulatedKernel, SpaceId)> {
    let mut kernel = SimulatedKernel::new(memory_bytes, faults, KernelCosts::paper())?;
    let space = kernel.create_space();
    kernel.map(space, bytes_at(0, bytes))?;
    Ok((kernel, space))
}

pub fn swapping(
    memory_bytes: u64,
    bytes: u64,
    faults: FaultPolicy,
) -> TestResult<(SimulatedKernel, SpaceId)> {
    let (mut kernel, space) = machine(memory_bytes, bytes, faults)?;
    kernel.set_swap(Some(SwapSpec::ssd(1 << 30)));
    Ok((kernel, space))
}

pub fn bytes_at(offset: u64, bytes: u64) -> Range<u64> {
    AT + offset..AT + offset + bytes
}

pub fn region(index: u64) -> RegionAddr {
    RegionAddr::containing(AT + index * HUGE)
}

pub fn rss(kernel: &SimulatedKernel, space: SpaceId) -> u64 {
    let figures = kernel.space_figures(space);
    figures.map_or(0, |figures| figures.rss_bytes)
}

pub fn huge(kernel: &SimulatedKernel, space: SpaceId) -> u64 {
    let figures = kernel.space_figures(space);
    figures.map_or(0, |figures| figures.huge_bytes / HUGE)
}
