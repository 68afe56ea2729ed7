//! Tests of the program against the running kernel. They need root, and each one has the machine
//! for itself. Where the machine can't be managed they count as skipped.

mod advise;
mod attach;
mod attacks;
mod attacks_files;
mod bad_input;
mod common;
mod daemon;
mod demo;
mod doctor;
mod forecast;
mod observers;
mod pods;
mod prefault;
mod prezeroing;
mod profile_requests;
mod record;
mod recovery;
mod run;
mod safety;
mod settings_conflicts;
mod shared_files;
mod shared_memory;
mod small_pages;
mod stress_ng;
mod stuck_target;
mod targets;
mod text;
mod top;
mod torture;
mod virtual_machine;
mod why;

/// Runs this program as a workload if it is started as one.
#[ctor::ctor]
fn workloads() {
    hawkeye_live_test_support::workloads::run_as_workload_or_link(common::WORKLOADS);
}
