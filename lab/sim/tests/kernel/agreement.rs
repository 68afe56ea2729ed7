//! The page table compared with a naive one, and bulk faults with single ones.

use crate::common::*;
use hawkeye_policy::{PageOrder, PageOrderSet, RegionSample};
use hawkeye_sim::kernel::fault_policies::{
    FREEBSD, FaultPolicy, HAWKEYE_HUGE, HAWKEYE_SIZES, LINUX_BASE, LINUX_THP, MTHP_SIZES,
};
use hawkeye_sim::kernel::{
    KernelError, PageAccessKind, SimulatedKernel, SpaceFigures, SpaceId, SwapSpec, ZeroingSpec,
};
use hawkeye_sim::memory::{FrameContent, ORDERS};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence::Direct;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

const REGIONS: u64 = 6;
const PAGES: u64 = REGIONS * 512;

#[derive(Clone, Debug)]
enum KernelStep {
    Touch(u64, u64, u8),
    Free(u64, u64),
    Remap(u64, u64),
    Sizes(u8),
    Promote(u64, u8),
    Recover(u64),
    Fill(u64),
    Zero(u16),
}

fn step() -> impl Strategy<Value = KernelStep> {
    let range = || (0..PAGES, 1..900u64);
    prop_oneof![
        6 => (range(), 0u8..3).prop_map(|((first, count), access)| KernelStep::Touch(first, count, access)),
        2 => range().prop_map(|(first, count)| KernelStep::Free(first, count)),
        1 => range().prop_map(|(first, count)| KernelStep::Remap(first, count)),
        1 => any::<u8>().prop_map(KernelStep::Sizes),
        2 => (0..REGIONS, 0u8..12).prop_map(|(region, order)| KernelStep::Promote(region, order)),
        1 => (0..REGIONS).prop_map(KernelStep::Recover),
        1 => (0..REGIONS).prop_map(KernelStep::Fill),
        1 => any::<u16>().prop_map(KernelStep::Zero),
    ]
}

const POLICIES: [FaultPolicy; 7] = [
    LINUX_BASE,
    LINUX_THP,
    HAWKEYE_HUGE,
    FREEBSD,
    HAWKEYE_SIZES,
    FaultPolicy { sizes: MTHP_SIZES, ..LINUX_BASE },
    FaultPolicy { sizes: MTHP_SIZES, ..LINUX_THP },
];

/// Huge pages twice as often as each other size.
fn order(index: u8) -> PageOrder {
    PageOrder::new(index.min(10))
        .filter(|order| *order > PageOrder::BASE)
        .unwrap_or(PageOrder::HUGE)
}

fn orders(bits: u8) -> PageOrderSet {
    MTHP_SIZES.iter().filter(|order| bits >> (order.log2_pages() - 2) & 1 == 1).collect()
}

fn access(index: u8) -> PageAccessKind {
    [PageAccessKind::Read, PageAccessKind::Write, PageAccessKind::WriteZeros][usize::from(index)]
}

fn bytes(first: u64, count: u64) -> Range<u64> {
    bytes_at(first * PAGE, count.min(PAGES - first) * PAGE)
}

/// Does any step but touches; returns the kernel's answer.
fn apply(kernel: &mut SimulatedKernel, space: SpaceId, step: &KernelStep) -> String {
    match *step {
        KernelStep::Touch(..) => String::new(),
        KernelStep::Free(first, count) => {
            let freed = kernel.free(space, bytes(first, count));
            format!("{:?}", freed.expect("it is mapped"))
        }
        KernelStep::Remap(first, count) => {
            let unmapped = kernel.unmap(space, bytes(first, count));
            let mapped = kernel.map(space, bytes(first, count));
            mapped.expect("nothing is there");
            format!("{:?}", unmapped.expect("it is mapped"))
        }
        KernelStep::Sizes(bits) => format!("{:?}", kernel.set_fault_sizes(space, orders(bits))),
        KernelStep::Promote(index, size) => {
            format!("{:?}", kernel.promote(space, region(index), order(size)))
        }
        KernelStep::Recover(index) => format!("{:?}", kernel.recover_bloat(space, region(index))),
        KernelStep::Fill(index) => format!("{:?}", kernel.prefault_region(space, region(index))),
        KernelStep::Zero(pages) => {
            kernel.set_zeroing(Some(ZeroingSpec { pages_per_s: pages.into(), non_temporal: true }));
            format!("{:?}", kernel.run_kernel_threads_for_step(Duration::from_millis(100)))
        }
    }
}

fn build(
    faults: FaultPolicy,
    memory_bytes: u64,
) -> Result<(SimulatedKernel, SpaceId), KernelError> {
    let (mut kernel, space) = machine(memory_bytes, REGIONS * HUGE, faults)?;
    kernel.set_swap(Some(SwapSpec::ssd(64 * MIB)));
    Ok((kernel, space))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 120,
        ..ProptestConfig::with_failure_persistence(Direct("proptest-regressions/tests/agreement.txt"))
    })]

    /// After any operations on its memory, a program reads what it wrote.
    #[test]
    fn contents_are_kept(steps in prop::collection::vec(step(), 1..60), policy in prop::sample::select(&POLICIES[..]), memory in 8u64..24) {
        let (mut kernel, space) = build(policy, memory * HUGE).expect("a machine");
        let mut contents = BTreeMap::new();
        for step in steps {
            apply(&mut kernel, space, &step);
            match step {
                KernelStep::Touch(first, count, kind) => {
                    let touched = kernel.touch(space, bytes(first, count), access(kind));
                    // Swap may be full; then the rest of the result is undefined.
                    if touched.is_err() { break }
                    if kind > 0 {
                        let pages = first..PAGES.min(first + count);
                        contents.extend(pages.map(|page| (page, kind == 1)));
                    }
                }
                KernelStep::Free(first, count) | KernelStep::Remap(first, count) => {
                    contents.retain(|page, _| *page < first || *page >= first + count);
                }
                _ => {}
            }
            prop_assert_eq!(kernel.check(), Ok(()));
            for number in 0..REGIONS {
                let found = kernel.nonzero_page_bits(space, region(number));
                let alike = (0..512u16).all(|p| {
                    found.contains(p) == (contents.get(&(number * 512 + u64::from(p))) == Some(&true))
                });
                prop_assert!(alike);
            }
        }
    }

    /// Faults handled together give the same result as one by one, to the nanosecond.
    #[test]
    fn bulk_is_one_by_one(steps in prop::collection::vec(step(), 1..40), policy in prop::sample::select(&POLICIES[..]), memory in 4u64..24) {
        let (mut bulk, space) = build(policy, memory * HUGE).expect("a machine");
        let (mut single, _) = build(policy, memory * HUGE).expect("a machine");
        bulk.watch_first_touches(space);
        single.watch_first_touches(space);
        for step in steps.into_iter().filter(|step| !matches!(step, KernelStep::Fill(_))) {
            if let KernelStep::Touch(first, count, kind) = step {
                let touched = bulk.touch(space, bytes(first, count), access(kind));
                let (mut time, mut cold) = (Duration::ZERO, 0);
                let outcome = (first..PAGES.min(first + count)).try_for_each(|page| {
                    let one = single.touch(space, bytes(page, 1), access(kind))?;
                    time += one.time;
                    cold += one.cold;
                    Ok(())
                });
                prop_assert_eq!(touched.clone().map(|_| ()), outcome);
                if let Ok(touched) = touched {
                    prop_assert_eq!((touched.time, touched.cold), (time, cold));
                }
            }
            prop_assert_eq!(apply(&mut bulk, space, &step), apply(&mut single, space, &step));
            prop_assert_eq!(seen(&bulk, space), seen(&single, space));
            prop_assert_eq!(bulk.take_stream_advances(), single.take_stream_advances());
            for content in FrameContent::BOTH {
                for order in 0..ORDERS {
                    let of = |kernel: &SimulatedKernel| kernel.memory().count_free_blocks(content, order);
                    prop_assert_eq!(of(&bulk), of(&single));
                }
            }
        }
    }
}

fn seen(kernel: &SimulatedKernel, space: SpaceId) -> Option<(SpaceFigures, Vec<RegionSample>)> {
    let figures = kernel.space_figures(space).ok()?;
    Some((figures, kernel.list_region_samples(space).ok()?))
}
