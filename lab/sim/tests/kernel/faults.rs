//! What each system does at a page fault, and what it costs.

use crate::common::*;
use hawkeye_sim::kernel::fault_policies::{
    Defrag, Enabled, FaultPolicy, HawkEyeBase, HawkEyeHuge, IngensFaults, LinuxBase, LinuxThp,
    Unzeroed,
};
use hawkeye_sim::kernel::{Access, HugeAdvice, KernelError, Touched, ZeroingSpec};
use std::time::Duration;

fn first_region(faults: impl FaultPolicy + 'static) -> Result<Touched, KernelError> {
    let (mut kernel, space) = machine(64 * MIB, 16 * MIB, faults)?;
    kernel.touch(space, bytes_at(0, HUGE), Access::Write)
}

#[test]
fn base_pages_fault_one_by_one_and_a_huge_page_once() -> Outcome {
    let costs = hawkeye_sim::kernel::KernelCosts::paper();
    let base = first_region(LinuxBase)?;
    assert_eq!(
        (base.faults.base, base.faults.total(), base.zeroed),
        (512, 512, 512)
    );
    let each = costs.base_fault_ns + costs.zero_base_ns;
    assert_eq!(base.paid.time, Duration::from_nanos(512 * each));
    assert_eq!(first_region(IngensFaults)?, base);

    let huge = first_region(LinuxThp::default())?;
    assert_eq!(
        (huge.faults.huge, huge.faults.total(), huge.zeroed),
        (1, 1, 512)
    );
    let each = costs.huge_fault_ns + costs.zero_huge_ns;
    assert_eq!(huge.paid.time, Duration::from_nanos(each));
    assert_eq!(huge.cold, 0);

    let unzeroed = first_region(Unzeroed::Huge)?;
    assert_eq!(
        unzeroed.paid.time,
        Duration::from_nanos(costs.huge_fault_ns)
    );
    assert_eq!((unzeroed.zeroed, unzeroed.cold), (0, 512));
    let unzeroed = first_region(Unzeroed::Base)?;
    assert_eq!(
        unzeroed.paid.time,
        Duration::from_nanos(512 * costs.base_fault_ns)
    );
    Ok(())
}

#[test]
fn memory_zeroed_in_advance_is_not_zeroed_again() -> Outcome {
    let (mut kernel, space) = machine(64 * MIB, 16 * MIB, HawkEyeHuge)?;
    let late = kernel.touch(space, bytes_at(0, HUGE), Access::Write)?;
    assert_eq!(late.zeroed, 512);
    kernel.set_zeroing(Some(ZeroingSpec::default()));
    kernel.step(Duration::from_secs(10));
    assert_eq!(kernel.figures().zeroed_huge_frames, 31);
    let early = kernel.touch(space, bytes_at(HUGE, HUGE), Access::Write)?;
    assert_eq!((early.zeroed, early.faults.huge, early.cold), (0, 1, 512));

    let (mut kernel, space) = machine(64 * MIB, 16 * MIB, HawkEyeBase)?;
    kernel.set_zeroing(Some(ZeroingSpec::default()));
    kernel.step(Duration::from_secs(10));
    let early = kernel.touch(space, bytes_at(0, HUGE), Access::Write)?;
    assert_eq!((early.zeroed, early.faults.base), (0, 512));
    // What a program frees is dirty.
    let zeroed = kernel.figures().zeroed_bytes;
    kernel.free(space, bytes_at(0, HUGE))?;
    assert_eq!(kernel.figures().zeroed_bytes, zeroed);
    Ok(())
}

#[test]
fn reads_map_the_zero_page_and_writes_replace_it() -> Outcome {
    let (mut kernel, space) = machine(64 * MIB, 16 * MIB, LinuxBase)?;
    let read = kernel.touch(space, bytes_at(0, HUGE), Access::Read)?;
    assert_eq!((read.faults.zero_page, rss(&kernel, space)), (512, 0));
    let again = kernel.touch(space, bytes_at(0, HUGE), Access::Read)?;
    assert_eq!(again.faults.total(), 0);
    let write = kernel.touch(space, bytes_at(0, 4 * PAGE), Access::Write)?;
    assert_eq!(
        (write.faults.zero_page_writes, rss(&kernel, space)),
        (4, 4 * PAGE)
    );

    let (mut kernel, space) = machine(64 * MIB, 16 * MIB, LinuxThp::default())?;
    let read = kernel.touch(space, bytes_at(0, HUGE), Access::Read)?;
    assert_eq!((read.faults.zero_page, rss(&kernel, space)), (1, 0));
    let write = kernel.touch(space, bytes_at(PAGE, PAGE), Access::Write)?;
    assert_eq!((write.faults.huge, huge(&kernel, space)), (1, 1));
    Ok(())
}

#[test]
fn huge_pages_go_to_whole_regions_of_those_who_may_have_them() -> Outcome {
    let madvise = LinuxThp {
        enabled: Enabled::Madvise,
        defrag: Defrag::Madvise,
    };
    let (mut kernel, space) = machine(64 * MIB, 7 * MIB, madvise)?;
    kernel.advise(space, bytes_at(HUGE, HUGE), HugeAdvice::Huge)?;
    kernel.touch(space, bytes_at(0, 7 * MIB), Access::Write)?;
    assert_eq!(huge(&kernel, space), 1);

    let (mut kernel, space) = machine(64 * MIB, 7 * MIB, LinuxThp::default())?;
    kernel.advise(space, bytes_at(HUGE, HUGE), HugeAdvice::NoHuge)?;
    let touched = kernel.touch(space, bytes_at(0, 7 * MIB), Access::Write)?;
    // The second refuses, and of the fourth only half is mapped.
    assert_eq!((touched.faults.huge, touched.faults.base), (2, 512 + 256));
    Ok(())
}

#[test]
fn a_region_that_had_base_pages_gets_no_huge_page_at_a_fault() -> Outcome {
    let (mut kernel, space) = machine(64 * MIB, 16 * MIB, LinuxThp::default())?;
    kernel.touch(space, bytes_at(0, HUGE), Access::Write)?;
    kernel.free(space, bytes_at(0, PAGE))?;
    assert_eq!(
        (huge(&kernel, space), rss(&kernel, space)),
        (0, HUGE - PAGE)
    );
    kernel.free(space, bytes_at(0, HUGE))?;
    assert_eq!(rss(&kernel, space), 0);
    let touched = kernel.touch(space, bytes_at(0, HUGE), Access::Write)?;
    assert_eq!(touched.faults.base, 512);
    // Unmapping takes the page table away.
    kernel.unmap(space, bytes_at(0, HUGE))?;
    kernel.map(space, bytes_at(0, HUGE), HugeAdvice::None)?;
    let touched = kernel.touch(space, bytes_at(0, HUGE), Access::Write)?;
    assert_eq!(touched.faults.huge, 1);
    Ok(())
}

#[test]
fn nonsense_is_refused() -> Outcome {
    let (mut kernel, space) = machine(64 * MIB, 16 * MIB, LinuxBase)?;
    let touch = kernel.touch(space, bytes_at(0, 17 * MIB), Access::Read);
    assert!(matches!(touch, Err(KernelError::NotMapped { .. })));
    let range = AT + 1..AT + PAGE;
    assert!(matches!(
        kernel.free(space, range),
        Err(KernelError::Range { .. })
    ));
    let range = AT..AT;
    assert!(matches!(
        kernel.free(space, range),
        Err(KernelError::Range { .. })
    ));
    let map = kernel.map(space, bytes_at(MIB, MIB), HugeAdvice::None);
    assert!(matches!(map, Err(KernelError::Occupied { .. })));
    kernel.exit(space)?;
    assert_eq!(kernel.exit(space), Err(KernelError::Space(space)));
    assert_eq!(kernel.figures().free_bytes, 64 * MIB);
    let tiny = spec(1, LinuxBase);
    assert!(hawkeye_sim::kernel::Kernel::new(tiny).is_err());
    Ok(())
}
