//! The limit of open files, and how many processes it allows.

use crate::memory::cgroup_limits;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the limit of open files to its hard limit. Returns the limit then. A program that is
/// started afterwards inherits it.
pub fn raise_descriptor_limit() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return 0;
    };
    if setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() { hard } else { soft }
}

/// How many processes fit in `descriptors` file descriptors, with some left for cgroups and for
/// everything else.
pub(crate) fn process_capacity_of_descriptors(descriptors: u64, each: usize) -> usize {
    const OTHERS: u64 = 128;
    let others = OTHERS + descriptors / cgroup_limits::DESCRIPTOR_SHARE;
    let left = usize::try_from(descriptors.saturating_sub(others)).unwrap_or(usize::MAX);
    (left / each.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_descriptors_limit_the_managed_processes() {
        assert_eq!(process_capacity_of_descriptors(1024, 1), 832);
        assert_eq!(process_capacity_of_descriptors(1024, 10), 83);
        assert_eq!(process_capacity_of_descriptors(0, 10), 1);
        assert!(process_capacity_of_descriptors(u64::MAX, 10) > 1_000_000);
    }
}
