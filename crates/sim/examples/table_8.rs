//! The start-ups of the paper's Table 8 on the simulated kernel: a Java and a KVM virtual machine touch 36 GB of memory as they
//! start, one byte per base page. `cargo run --release -p hawkeye-sim --example table_8`.
//!
//! Costs and the program's own time for a touch are those of Table 1 (example `table_1`). What a virtual machine does
//! beside touching memory isn't simulated, nor is that the Java one does so with many threads. Ingens is left out: what
//! holds its programs up there is not in Table 1.

use hawkeye_policy::HUGE_PAGE_BYTES;
use hawkeye_sim::kernel::fault_policies::{
    FaultPolicy, HawkEyeBase, HawkEyeHuge, LinuxBase, LinuxThp,
};
use hawkeye_sim::kernel::{
    Access, HugeAdvice, Kernel, KernelCosts, KernelError, KernelSpec, ZeroingSpec,
};
use std::sync::Arc;
use std::time::Duration;

const GIB: u64 = 1 << 30;
const MEMORY: u64 = 36 * GIB;
/// See `table_1`.
const BASE_TOUCH_NS: u64 = 152;
const HUGE_TOUCH_NS: u64 = 34;
/// Long enough to zero all memory at 10,000 pages a second.
const BEFORE: Duration = Duration::from_secs(3600);

fn start_up(faults: Arc<dyn FaultPolicy>, touch_ns: u64) -> Result<Duration, KernelError> {
    let mut kernel = Kernel::new(KernelSpec {
        memory_bytes: 96 * GIB,
        faults,
        costs: KernelCosts::paper(),
        swap: None,
    })?;
    kernel.set_zeroing(Some(ZeroingSpec::default()));
    kernel.step(BEFORE);
    let space = kernel.create_space();
    kernel.map(space, 0..MEMORY, HugeAdvice::None)?;
    let mut time = Duration::ZERO;
    for start in (0..MEMORY).step_by(HUGE_PAGE_BYTES as usize) {
        let touched = kernel.touch(space, start..start + HUGE_PAGE_BYTES, Access::Write)?;
        let own = 512 * touch_ns + touched.cold * kernel.costs().cold_touch_ns;
        time += touched.paid.time + Duration::from_nanos(own);
    }
    Ok(time)
}

fn main() -> Result<(), KernelError> {
    type Row = (&'static str, Arc<dyn FaultPolicy>, u64, [f64; 2]);
    let rows: [Row; 4] = [
        (
            "Linux-4KB",
            Arc::new(LinuxBase),
            BASE_TOUCH_NS,
            [37.7, 40.6],
        ),
        (
            "Linux-2MB",
            Arc::new(LinuxThp::default()),
            HUGE_TOUCH_NS,
            [18.6, 9.7],
        ),
        (
            "HawkEye-4KB",
            Arc::new(HawkEyeBase),
            BASE_TOUCH_NS,
            [29.8, 30.2],
        ),
        (
            "HawkEye-2MB",
            Arc::new(HawkEyeHuge),
            HUGE_TOUCH_NS,
            [1.37, 0.70],
        ),
    ];
    for (name, faults, touch_ns, [java, kvm]) in rows {
        let seconds = start_up(faults, touch_ns)?.as_secs_f64();
        println!("{name:12} {seconds:6.2} s   paper: Java {java:5.2} s, KVM {kvm:5.2} s");
    }
    Ok(())
}
