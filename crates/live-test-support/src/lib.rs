//! Code shared by the live tests of the crates `linux` and `cli`: the machine, which one test uses
//! at a time, the workloads, and a manager inside the test process. For tests only: the product
//! does not depend on it.
//!
//! ```text
//!  machine(this_test!()) --> TestMachine: a lock, default settings, costs, a state folder
//!    v
//!  workloads: starts processes of lab/workload, and asks whether their contents are intact
//!    |-- managed by the program `hawkeye`  crates/cli/tests/live/
//!    `-- manager_in_test                   LinuxMachine in the test, crates/linux/tests/live/
//! ```
//!
//! Read [`test_machine`] first, then [`workloads`] and [`time_limits`]; CONTRIBUTING.md, "Write a
//! live test", has the rules. [`machine_of_workloads`] needs no privilege: it has no BPF. The other
//! modules change or watch one thing each.
//!
//! Functions panic where a test should fail.

mod arch;
pub mod ksm;
pub mod machine_of_workloads;
pub mod manager_in_test;
pub mod mapped_regions;
pub mod settings;
pub mod silent_files;
pub mod test_machine;
pub mod time_limits;
pub mod virtual_machine;
pub mod workloads;

/// A value that not every machine has. Without it the test ends and counts as skipped.
#[macro_export]
macro_rules! or_skip {
    ($found:expr) => {
        match $found {
            Some(found) => found,
            None => return,
        }
    };
}
