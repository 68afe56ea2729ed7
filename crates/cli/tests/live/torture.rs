//! Rule 1: memory contents never change. Here the manager changes the pages under them;
//! `crates/linux/tests/live/torture.rs` does it as fast as possible.

use crate::common::{is_emulated, machine, or_skip, time_limit_factor};
use hawkeye_test_support::this_test;

/// It promotes, and recovers at once because memory counts as short.
#[test]
fn no_byte_changes_under_the_manager() {
    let machine = or_skip!(machine(this_test!()));
    // On an emulated machine there are few windows, and much of what they show is gone afterwards.
    let is_emulated = is_emulated();
    let promote = if is_emulated { "--policy linux --rate 1000" } else { "--profile balanced" };
    let options = format!("{promote} --period 0.5 --window 0.05 --cpu 100 --bloat-threshold 8");
    let seconds = 12 * time_limit_factor();
    let workload = format!("torture --mib 512 --threads 4 --seconds {seconds}");
    let (code, summary) = machine.run_workload(&options, &workload);
    assert_eq!(code, 0, "{summary}");
    // The manager pauses after calls of over 30 ms; on emulated machines most calls take longer.
    let least = if is_emulated { 1 } else { 11 };
    assert!(summary["promoted"].as_u64() >= Some(least), "{summary}");
}
