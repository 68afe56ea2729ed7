//! Tests of this crate against the running kernel. They need root, and each one has the machine for
//! itself. Where the machine can't be managed they count as skipped.

mod fragment;
mod observers;
mod recovery;
mod sampling;
mod sampling_periods;
mod shared_files;
mod shared_memory;
mod torture;

/// Runs this program as a workload if it is started as one.
#[ctor::ctor]
fn workloads() {
    hawkeye_live_test_support::workloads::run_as_workload_or_link(concat!(
        env!("CARGO_TARGET_TMPDIR"),
        "/linux-live/hawkeye-workload"
    ));
}
