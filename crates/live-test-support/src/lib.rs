//! Code shared by the live tests of the crates `linux` and `cli`: the machine, which one test uses
//! at a time, the workloads, and a manager inside the test process. For tests only: the product
//! does not depend on it.
//!
//! Functions panic where a test should fail.

pub mod ksm;
pub mod machine_of_workloads;
pub mod manager_in_test;
pub mod mapped_regions;
pub mod settings;
pub mod silent_files;
pub mod test_machine;
pub mod time_limits;
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
