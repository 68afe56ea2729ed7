//! Copy-on-write.

use crate::common::*;
use hawkeye_sim::kernel::Access;
use hawkeye_sim::kernel::fault_policies::{FreeBsd, LinuxBase, LinuxThp};

#[test]
fn pages_are_shared_until_somebody_writes() -> Outcome {
    let (mut kernel, parent) = machine(64 * MIB, 8 * MIB, LinuxBase)?;
    kernel.touch(parent, bytes_at(0, 4 * MIB), Access::Write)?;
    let used = 60 * MIB;
    let (child, _) = kernel.fork(parent)?;
    assert_eq!(kernel.figures().free_bytes, used);
    assert_eq!(rss(&kernel, child), 4 * MIB);
    let read = kernel.touch(child, bytes_at(0, 4 * MIB), Access::Read)?;
    assert_eq!(read.faults.total(), 0);
    let write = kernel.touch(parent, bytes_at(0, MIB), Access::Write)?;
    assert_eq!(write.faults.copied, 256);
    assert_eq!(kernel.figures().free_bytes, used - MIB);
    // The child has what the parent no longer shares to itself.
    let write = kernel.touch(child, bytes_at(0, MIB), Access::Write)?;
    assert_eq!((write.faults.reused, write.faults.copied), (256, 0));
    kernel.exit(parent)?;
    assert_eq!(kernel.figures().free_bytes, used);
    kernel.exit(child)?;
    assert_eq!(kernel.figures().free_bytes, 64 * MIB);
    Ok(())
}

#[test]
fn a_shared_huge_page_is_split_and_copied_in_part() -> Outcome {
    let (mut kernel, parent) = machine(64 * MIB, 8 * MIB, LinuxThp::default())?;
    kernel.touch(parent, bytes_at(0, 4 * MIB), Access::Write)?;
    let (child, _) = kernel.fork(parent)?;
    let (grandchild, _) = kernel.fork(child)?;
    kernel.touch(child, bytes_at(PAGE, PAGE), Access::Write)?;
    assert_eq!((huge(&kernel, child), huge(&kernel, parent)), (1, 2));
    kernel.exit(parent)?;
    kernel.exit(grandchild)?;
    // The page that was copied is held by nobody in its first frame.
    assert_eq!(kernel.figures().free_bytes, 60 * MIB);
    kernel.exit(child)?;
    assert_eq!(kernel.figures().free_bytes, 64 * MIB);
    Ok(())
}

#[test]
fn a_child_does_not_inherit_reservations() -> Outcome {
    let (mut kernel, parent) = machine(64 * MIB, 8 * MIB, FreeBsd)?;
    kernel.touch(parent, bytes_at(0, MIB), Access::Write)?;
    let (child, _) = kernel.fork(parent)?;
    kernel.touch(parent, bytes_at(0, HUGE), Access::Write)?;
    kernel.touch(child, bytes_at(0, HUGE), Access::Write)?;
    assert_eq!(kernel.check(), Ok(()));
    kernel.exit(parent)?;
    kernel.exit(child)?;
    assert_eq!(kernel.figures().free_bytes, 64 * MIB);
    Ok(())
}
