//! The page table against a naive one, and many faults at once against one after the other.

use crate::common::*;
use hawkeye_policy::{PageOrder, PageOrders, RegionAddr};
use hawkeye_sim::kernel::fault_policies::{
    FaultPolicy, FreeBsd, HawkEyeHuge, HawkEyeSizes, LinuxBase, LinuxMthp, LinuxThp, MTHP_SIZES,
};
use hawkeye_sim::kernel::{
    Access, Faults, HugeAdvice, Kernel, KernelError, KernelSpec, Payer, SpaceId, SwapSpec,
    ZeroingSpec,
};
use hawkeye_sim::memory::{Content, MigrateType, ORDERS};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const REGIONS: u64 = 6;
const PAGES: u64 = REGIONS * 512;

#[derive(Clone, Debug)]
enum Step {
    Touch(u64, u64, u8),
    Free(u64, u64),
    Remap(u64, u64, u8),
    Advise(u64, u64, u8),
    Sizes(u8),
    Promote(u64, u8),
    Split(u64),
    Recover(u64),
    Fill(u64),
    Zero(u16),
    Fork,
    Exit,
}

fn step() -> impl Strategy<Value = Step> {
    let range = || (0..PAGES, 1..900u64);
    prop_oneof![
        6 => (range(), 0u8..3).prop_map(|((first, count), access)| Step::Touch(first, count, access)),
        2 => range().prop_map(|(first, count)| Step::Free(first, count)),
        1 => (range(), 0u8..3).prop_map(|((first, count), advice)| Step::Remap(first, count, advice)),
        1 => (range(), 0u8..3).prop_map(|((first, count), advice)| Step::Advise(first, count, advice)),
        1 => any::<u8>().prop_map(Step::Sizes),
        2 => (0..REGIONS, 0u8..12).prop_map(|(region, order)| Step::Promote(region, order)),
        1 => (0..REGIONS).prop_map(Step::Split),
        1 => (0..REGIONS).prop_map(Step::Recover),
        1 => (0..REGIONS).prop_map(Step::Fill),
        1 => any::<u16>().prop_map(Step::Zero),
        1 => Just(Step::Fork),
        1 => Just(Step::Exit),
    ]
}

fn policy(index: usize) -> Arc<dyn FaultPolicy> {
    match index {
        0 => Arc::new(LinuxBase),
        1 => Arc::new(LinuxThp::default()),
        2 => Arc::new(HawkEyeHuge),
        3 => Arc::new(FreeBsd),
        4 => Arc::new(HawkEyeSizes),
        5 => Arc::new(LinuxMthp {
            huge: None,
            sizes: MTHP_SIZES,
        }),
        _ => Arc::new(LinuxMthp {
            huge: Some(LinuxThp::default()),
            sizes: MTHP_SIZES,
        }),
    }
}
const POLICIES: usize = 7;

fn advice(index: u8) -> HugeAdvice {
    [HugeAdvice::None, HugeAdvice::Huge, HugeAdvice::NoHuge][usize::from(index)]
}

/// Huge pages twice as often as each other size.
fn order(index: u8) -> PageOrder {
    PageOrder::new(index.min(10))
        .filter(|order| *order > PageOrder::BASE)
        .unwrap_or(PageOrder::HUGE)
}

/// By a bit for each size that there is.
fn orders(bits: u8) -> PageOrders {
    MTHP_SIZES
        .iter()
        .filter(|order| bits >> (order.number() - 2) & 1 == 1)
        .collect()
}

fn access(index: u8) -> Access {
    [Access::Read, Access::Write, Access::WriteZeros][usize::from(index)]
}

fn range(first: u64, count: u64) -> (u64, u64) {
    (first, count.min(PAGES - first))
}

fn build(
    policy: Arc<dyn FaultPolicy>,
    memory_bytes: u64,
) -> Result<(Kernel, SpaceId), KernelError> {
    let mut kernel = Kernel::new(KernelSpec {
        memory_bytes,
        faults: policy,
        costs: hawkeye_sim::kernel::KernelCosts::paper(),
        swap: Some(SwapSpec::ssd(64 * MIB)),
    })?;
    let space = kernel.create_space();
    kernel.map(space, bytes_at(0, REGIONS * HUGE), Default::default())?;
    Ok((kernel, space))
}

/// What a program finds in its pages.
#[derive(Clone, Default)]
struct Naive(BTreeMap<u64, bool>);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    /// Whatever is done to its memory, each program reads what it wrote.
    #[test]
    fn contents_are_kept(steps in prop::collection::vec(step(), 1..60), which in 0..POLICIES, memory in 8u64..24) {
        let (mut kernel, first) = build(policy(which), memory * HUGE).expect("a machine");
        let mut programs = vec![(first, Naive::default())];
        for step in steps {
            let Some((space, contents)) = programs.last_mut() else { break };
            let space = *space;
            match step {
                Step::Touch(first, count, kind) => {
                    let (first, count) = range(first, count);
                    let touched = kernel.touch(space, bytes_at(first * PAGE, count * PAGE), access(kind));
                    // Relatives' pages stay in memory: it may run out, and what came of the rest is open.
                    if touched.is_err() { break }
                    if kind > 0 {
                        contents.0.extend((first..first + count).map(|page| (page, kind == 1)));
                    }
                }
                Step::Free(first, count) => {
                    let (first, count) = range(first, count);
                    kernel.free(space, bytes_at(first * PAGE, count * PAGE)).expect("it is mapped");
                    contents.0.retain(|page, _| *page < first || *page >= first + count);
                }
                Step::Remap(first, count, kind) => {
                    let (first, count) = range(first, count);
                    let bytes = bytes_at(first * PAGE, count * PAGE);
                    kernel.unmap(space, bytes.clone()).expect("it is mapped");
                    kernel.map(space, bytes, advice(kind)).expect("nothing is there");
                    contents.0.retain(|page, _| *page < first || *page >= first + count);
                }
                Step::Advise(first, count, kind) => {
                    let (first, count) = range(first, count);
                    kernel.advise(space, bytes_at(first * PAGE, count * PAGE), advice(kind)).expect("it is mapped");
                }
                Step::Sizes(bits) => { kernel.set_fault_sizes(space, orders(bits)).ok(); }
                Step::Promote(index, size) => { kernel.promote(space, region(index), order(size), Payer::Manager).ok(); }
                Step::Split(index) => { kernel.split(space, region(index), Payer::Manager).ok(); }
                Step::Recover(index) => { kernel.recover(space, region(index), Payer::Manager).ok(); }
                Step::Fill(index) => { kernel.fill_ahead(space, region(index), Payer::Manager).ok(); }
                Step::Zero(pages) => {
                    kernel.set_zeroing(Some(ZeroingSpec { pages_per_s: pages.into(), non_temporal: true }));
                    kernel.step(Duration::from_millis(100));
                }
                Step::Fork => {
                    let copy = contents.clone();
                    let (child, _) = kernel.fork(space).expect("it is there");
                    programs.push((child, copy));
                }
                Step::Exit if programs.len() > 1 => {
                    kernel.exit(space).expect("it is there");
                    programs.pop();
                }
                Step::Exit => {}
            }
            prop_assert_eq!(kernel.check(), Ok(()));
            for (space, contents) in &programs {
                let nonzero = |number: u64| {
                    (0..512u16).filter(|p| contents.0.get(&(number * 512 + u64::from(*p))) == Some(&true)).count() as u64
                };
                let expected: u64 = (0..REGIONS).map(nonzero).sum();
                let held: u64 = (0..REGIONS).map(|r| u64::from(kernel.nonzero(*space, region(r)).count())).sum();
                prop_assert_eq!(held, expected);
                for number in 0..REGIONS {
                    let found = kernel.nonzero(*space, region(number));
                    prop_assert_eq!(u64::from(found.count()), nonzero(number));
                    let alike = (0..512u16).all(|p| {
                        found.contains(p) == (contents.0.get(&(number * 512 + u64::from(p))) == Some(&true))
                    });
                    prop_assert!(alike);
                }
            }
        }
    }

    /// Neighbouring faults that are worked off together come out as one after the other, to the nanosecond.
    #[test]
    fn bulk_is_one_by_one(steps in prop::collection::vec(step(), 1..40), which in 0..POLICIES, memory in 4u64..24) {
        let (mut bulk, space) = build(policy(which), memory * HUGE).expect("a machine");
        let (mut single, _) = build(policy(which), memory * HUGE).expect("a machine");
        bulk.watch_first_touches(space);
        single.watch_first_touches(space);
        for step in steps {
            match step {
                Step::Touch(first, count, kind) => {
                    let (first, count) = range(first, count);
                    let touched = bulk.touch(space, bytes_at(first * PAGE, count * PAGE), access(kind));
                    let (mut time, mut cold) = (Duration::ZERO, 0);
                    let mut outcome = Ok(());
                    for page in first..first + count {
                        match single.touch(space, bytes_at(page * PAGE, PAGE), access(kind)) {
                            Ok(one) => {
                                time += one.paid.time;
                                cold += one.cold;
                            }
                            Err(error) => {
                                outcome = Err(error);
                                break;
                            }
                        }
                    }
                    prop_assert_eq!(touched.clone().map(|_| ()), outcome);
                    if let Ok(touched) = touched {
                        prop_assert_eq!((touched.paid.time, touched.cold), (time, cold));
                    }
                }
                Step::Free(first, count) => {
                    let (first, count) = range(first, count);
                    let bytes = bytes_at(first * PAGE, count * PAGE);
                    prop_assert_eq!(bulk.free(space, bytes.clone()), single.free(space, bytes));
                }
                Step::Remap(first, count, kind) => {
                    let (first, count) = range(first, count);
                    let bytes = bytes_at(first * PAGE, count * PAGE);
                    for kernel in [&mut bulk, &mut single] {
                        kernel.unmap(space, bytes.clone()).expect("it is mapped");
                        kernel.map(space, bytes.clone(), advice(kind)).expect("nothing is there");
                    }
                }
                Step::Advise(first, count, kind) => {
                    let (first, count) = range(first, count);
                    for kernel in [&mut bulk, &mut single] {
                        kernel.advise(space, bytes_at(first * PAGE, count * PAGE), advice(kind)).expect("it is mapped");
                    }
                }
                Step::Sizes(bits) => {
                    let of = |kernel: &mut Kernel| kernel.set_fault_sizes(space, orders(bits));
                    prop_assert_eq!(of(&mut bulk), of(&mut single));
                }
                Step::Promote(index, size) => {
                    let of = |kernel: &mut Kernel| kernel.promote(space, region(index), order(size), Payer::Manager);
                    prop_assert_eq!(of(&mut bulk), of(&mut single));
                }
                Step::Recover(index) => {
                    let of = |kernel: &mut Kernel| kernel.recover(space, region(index), Payer::Manager);
                    prop_assert_eq!(of(&mut bulk), of(&mut single));
                }
                Step::Zero(pages) => {
                    for kernel in [&mut bulk, &mut single] {
                        kernel.set_zeroing(Some(ZeroingSpec { pages_per_s: pages.into(), non_temporal: true }));
                        kernel.step(Duration::from_millis(100));
                    }
                }
                Step::Split(_) | Step::Fill(_) | Step::Fork | Step::Exit => {}
            }
            prop_assert_eq!(seen(&bulk, space), seen(&single, space));
            prop_assert_eq!(bulk.take_advances(), single.take_advances());
            for migrate in MigrateType::ALL {
                for content in Content::BOTH {
                    for order in 0..ORDERS {
                        let of = |kernel: &Kernel| kernel.memory().free_blocks(migrate, content, order);
                        prop_assert_eq!(of(&bulk), of(&single));
                    }
                }
            }
        }
    }
}

type Seen = (
    u64,
    u64,
    Faults,
    Duration,
    Vec<(RegionAddr, u16, u16, u16, u16, PageOrder)>,
);

fn seen(kernel: &Kernel, space: SpaceId) -> Seen {
    let figures = kernel.space_figures(space).unwrap_or_default();
    let samples = kernel.samples(space).unwrap_or_default();
    let samples = samples.iter().map(|s| {
        (
            s.region,
            s.present,
            s.accessed,
            s.zero_mapped,
            s.swapped,
            s.order,
        )
    });
    (
        figures.rss_bytes,
        figures.swapped_bytes,
        figures.faults,
        figures.system_time,
        samples.collect(),
    )
}
