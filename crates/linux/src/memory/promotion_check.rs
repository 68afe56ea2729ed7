//! Whether memory allows promotions now, for commands that ask without the manager's loop.

use crate::error::{LinuxError, Result};
use crate::memory::cgroup_limits::CgroupLimits;
use crate::memory::system_memory;
use hawkeye_policy::{MemoryGuard, MemoryState, ProcessId};
use std::time::Duration;

/// Checks that a promotion that takes `bytes` in a process brings neither the machine nor a cgroup
/// of the process over its mark, and that tasks don't wait for memory.
pub fn check_memory_for_promotion(
    mut guard: MemoryGuard,
    process: ProcessId,
    bytes: u64,
) -> Result<()> {
    let mut groups = CgroupLimits::of_this_machine();
    let state = MemoryState {
        groups: groups.read_limited_cgroups(Duration::ZERO, &[process]),
        limits_unknown: groups.processes_with_unknown_limits().to_vec(),
        ..memory_of_machine()?
    };
    // What it reports is also in the answer for the process.
    let _ = guard.assess(Duration::ZERO, &state);
    guard.may_promote(process, bytes).map_err(LinuxError::PromotionBlocked)
}

/// Checks that the machine's memory allows promotions at all: use is below its mark, and tasks
/// don't wait for memory.
pub fn check_memory_of_machine(mut guard: MemoryGuard) -> Result<()> {
    guard.assess(Duration::ZERO, &memory_of_machine()?).map_err(LinuxError::PromotionBlocked)
}

fn memory_of_machine() -> Result<MemoryState> {
    Ok(MemoryState {
        machine: system_memory::machine_memory_use()?,
        groups: Vec::new(),
        limits_unknown: Vec::new(),
        pressure_percent: system_memory::memory_pressure_percent(),
        fmfi: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::process::ProcessHandle;
    use hawkeye_policy::Watermarks;

    #[test]
    fn a_promotion_that_memory_has_no_room_for_is_blocked() {
        let process = ProcessHandle::open_child(std::process::id()).expect("this process").id;
        let guard = |high_percent: f64| {
            let marks = Watermarks::new(high_percent, high_percent / 2.0).expect("valid marks");
            MemoryGuard::new(marks, 100.0).expect("a valid limit")
        };
        let check =
            |high_percent, bytes| check_memory_for_promotion(guard(high_percent), process, bytes);
        // More than any machine has.
        let too_much = check(100.0, 1 << 60).expect_err("there is no room");
        assert!(matches!(too_much, LinuxError::PromotionBlocked(_)), "{too_much}");
        // All machines use more than that.
        assert!(matches!(check(1e-6, 0), Err(LinuxError::PromotionBlocked(_))));
        assert!(check(100.0, 0).is_ok());
        let blocked = check_memory_of_machine(guard(1e-6));
        assert!(matches!(blocked, Err(LinuxError::PromotionBlocked(_))));
        assert!(check_memory_of_machine(guard(100.0)).is_ok());
    }
}
