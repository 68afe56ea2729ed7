//! Pages of many sizes on processors that support some of them.

use crate::common::{RANDOM, accessing, engine, only, parse, run, sample, small};
use crate::workload_toml::reader;
use hawkeye_manager::{FaultPageSizes, Machine, MachineError, PromotionResult, Sampling};
use hawkeye_policy::{
    BloatKind, PageOrder, PageOrderSet, ProcessId, Promotion, Reason, RegionAddr, SampleKinds,
};
use hawkeye_sim::engine::Engine;
use hawkeye_sim::mmu::{ICE_LAKE, NEOVERSE_V2, ProcessorSpec, ZEN_4};
use hawkeye_sim::simulate::SimulationSetup;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence::Direct;
use std::time::Duration;

const K64: PageOrder = PageOrder::CONTIGUOUS;
const HUGE_BYTES: u64 = 2 << 20;
const BEGIN: u64 = 0x1000_0000_0000;

fn on(processor: ProcessorSpec) -> SimulationSetup {
    SimulationSetup { processor, ..small() }
}

fn region(number: u64) -> RegionAddr {
    RegionAddr::containing(BEGIN + number * HUGE_BYTES)
}

fn order(number: u8) -> PageOrder {
    PageOrder::new(number).unwrap_or_default()
}

fn promotion(process: ProcessId, number: u64, order: PageOrder) -> Promotion {
    let reason = Reason::new("a test");
    Promotion { order, ..Promotion::to_huge_page(process, region(number), 0, None, reason) }
}

#[test]
fn gain_of_64_kib_pages_depends_on_the_processor() {
    let workload = accessing(20.0, RANDOM);
    let overhead = |processor, system: &str| {
        let ran = run(system, &workload, &on(processor));
        let program = &ran.figures.programs[0];
        let mut sizes = program.sizes.iter();
        let mapped = sizes.find(|size| size.page_bytes == 64 << 10);
        let share =
            mapped.map_or(0.0, |size| size.mapped_end_bytes as f64 / program.rss_peak_bytes as f64);
        (program.overhead_percent, share)
    };
    let systems = ["linux-4k", "linux-mthp-64kb"];
    let [arm, arm_64] = systems.map(|system| overhead(NEOVERSE_V2, system));
    let [intel, intel_64] = systems.map(|system| overhead(ICE_LAKE, system));
    assert_eq!((arm.1, arm_64.1, intel.1, intel_64.1), (0.0, 1.0, 0.0, 1.0));
    assert!(arm_64.0 < arm.0 / 2.0, "{arm:?} {arm_64:?}");
    assert!((intel_64.0 / intel.0 - 1.0).abs() < 0.02, "{intel:?} {intel_64:?}");
}

#[test]
fn neighbours_in_memory_are_one_entry_unmarked_on_zen() {
    let setup = on(ZEN_4);
    let workload = accessing(20.0, RANDOM);
    let overhead =
        |setup: &SimulationSetup| run("linux-4k", &workload, setup).figures.overhead_percent();
    // Filled in order, in memory that no other program uses, pages are contiguous.
    let zen = overhead(&setup);
    let mut lone = setup;
    lone.processor.groups = hawkeye_sim::mmu::CoalescedPageGroups::NONE;
    assert!(zen < overhead(&lone) * 0.9, "{zen} {}", overhead(&lone));
}

fn filled() -> String {
    reader(1024, "", 1000.0, RANDOM)
}

#[test]
fn the_machine_says_which_sizes_there_are() {
    let sizes =
        |processor| engine("hawkeye-sizes", &parse(&filled()), &on(processor)).page_properties();
    let of = |numbers: &[u8]| numbers.iter().map(|n| order(*n)).collect::<PageOrderSet>();
    assert_eq!(sizes(ICE_LAKE).tlb, of(&[9, 18]));
    assert_eq!(sizes(ZEN_4).tlb, of(&[2, 9, 18]));
    let arm = sizes(NEOVERSE_V2);
    assert_eq!((arm.tlb, arm.promotable), (of(&[4, 9, 13, 18]), of(&[4, 9, 13, 18])));
    assert_eq!(arm.at_faults, of(&[2, 3, 4, 5, 6, 7, 8]));
    assert_eq!((arm.cores, arm.memory_bytes), (4.0, 512 << 20));
    let linux = engine("linux", &parse(&filled()), &on(NEOVERSE_V2)).page_properties();
    assert_eq!((linux.promotable, linux.at_faults), (PageOrderSet::HUGE, PageOrderSet::NONE));
}

#[test]
fn larger_pages_spare_walks_until_they_are_split() -> Result<(), MachineError> {
    let setup = SimulationSetup { memory_bytes: 8 << 30, ..on(NEOVERSE_V2) };
    let mut machine = engine("hawkeye-sizes", &parse(&filled()), &setup);
    machine.wait_until(Duration::from_secs(10));
    let process = only(&mut machine);
    let overhead = |machine: &mut Engine| -> Result<f64, MachineError> {
        machine.start_window(process, SampleKinds::OVERHEAD, Duration::MAX)?;
        let later = machine.now() + Duration::from_secs(3);
        machine.wait_until(later);
        let sample = sample(machine, process)?;
        Ok(sample.overhead.map_or(0.0, |overhead| overhead.percent))
    };
    let mut last = overhead(&mut machine)?;
    for size in [4, 9, 13, 18].map(order) {
        for number in (0..512).step_by(size.regions_per_page() as usize) {
            let done = machine.promote(&promotion(process, number, size))?;
            assert!(matches!(done, PromotionResult::Done { .. }), "{size} at {number}");
        }
        let sample = sample(&mut machine, process)?;
        assert!(sample.regions.iter().all(|r| r.order == size));
        let now = overhead(&mut machine)?;
        // With 64 KiB pages the TLB covers as little of it as with base pages.
        let least = if size == K64 { 1.01 } else { 0.7 };
        assert!(now < last * least, "{size}: {now} after {last}");
        last = now;
    }
    machine.recover_bloat(process, &[region(3)], BloatKind::ZeroPages).remove(0)?;
    let sample = sample(&mut machine, process)?;
    let of = |size| sample.regions.iter().filter(|r| r.order == size).count();
    assert_eq!((of(PageOrder::HUGE), of(PageOrder::BASE)), (511, 1));
    let refused = machine.promote(&promotion(process, 0, order(7)));
    assert_eq!(refused, Err(MachineError::PageSize(order(7))));
    Ok(())
}

#[test]
fn pieces_are_no_regions_and_get_what_their_process_is_given() -> Result<(), MachineError> {
    let pieces = r#""64MiB", pieces = { size = "128KiB", hole = "128KiB" }"#;
    let more = r#"{ kind = "free", area = "heap", share = 0.5 }, { kind = "wait", seconds = 60.0 },
        { kind = "fill", area = "heap", page_ns = 10.0 }, { kind = "access""#;
    let text = filled().replace(r#""1024MiB""#, pieces).replace(r#"{ kind = "access""#, more);
    let mut machine = engine("hawkeye-sizes", &parse(&text), &on(NEOVERSE_V2));
    machine.wait_until(Duration::from_secs(30));
    let process = only(&mut machine);
    let sample = sample(&mut machine, process)?;
    assert!(sample.regions.is_empty());
    let left = sample.outside.mapped_bytes;
    assert_eq!(left.iter().sum::<u64>(), left[5]);
    assert!((12 << 20..20 << 20).contains(&left[5]), "{left:?}");
    assert_eq!(sample.outside.resident_bytes, left[5]);
    machine.set_fault_sizes(process, PageOrderSet::NONE.with(K64))?;
    machine.wait_until(Duration::from_secs(90));
    let outside = crate::common::sample(&mut machine, process)?.outside;
    assert_eq!((outside.mapped_bytes[5], outside.resident_bytes), (32 << 20, 32 << 20));
    let figures = machine.figures();
    let sizes = &figures.programs[0].sizes;
    let mapped: Vec<_> =
        sizes.iter().map(|s| (s.page_bytes, s.faults, s.mapped_end_bytes)).collect();
    let new = (32 << 20) - left[5];
    assert_eq!(mapped, [(4 << 10, (32 << 20) / 4096, left[5]), (64 << 10, new >> 16, new)]);
    Ok(())
}

#[derive(Clone, Debug)]
enum SizeStep {
    Promote(u64, u8),
    Recover(u64),
    Sizes(u8),
    Sample,
    Go(u64),
}

fn step() -> impl Strategy<Value = SizeStep> {
    prop_oneof![
        5 => (0..64u64, 0u8..7).prop_map(|(region, size)| SizeStep::Promote(region, size)),
        2 => (0..64u64).prop_map(SizeStep::Recover),
        1 => any::<u8>().prop_map(SizeStep::Sizes),
        1 => Just(SizeStep::Sample),
        3 => (1..2000u64).prop_map(SizeStep::Go),
    ]
}

const CHANGING: &str = r#"
name = "test"
source = ""
[[process]]
name = "program"
repeat = 20
area = [
    { name = "heap", size = "96MiB" },
    { name = "pieces", size = "32MiB", pieces = { size = "192KiB", hole = "64KiB" } },
]
phase = [
    { kind = "fill", area = "heap", pages_per_region = 64, pages_per_run = 8, page_ns = 10.0 },
    { kind = "fill", area = "pieces", page_ns = 10.0 },
    { kind = "access", ideal_s = 0.3, stream = [STREAM] },
    { kind = "fill", area = "heap", page_ns = 10.0 },
    { kind = "free", area = "pieces", share = 0.4 },
    { kind = "access", ideal_s = 0.3, stream = [STREAM] },
    { kind = "free", area = "heap", share = 0.3 },
]
"#;
const STREAM: &str =
    r#"{ area = "heap", pattern = "random", cycles = 60.0, stores_percent = 50.0 }"#;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 10,
        ..ProptestConfig::with_failure_persistence(Direct("proptest-regressions/tests/sizes.txt"))
    })]

    /// Builds with debug assertions check after each step that the processor's mappings equal the
    /// kernel's, groups and larger pages included. They also check the kernel's own invariants.
    #[test]
    fn the_processor_knows_what_the_kernel_has_mapped(
        steps in prop::collection::vec(step(), 1..30),
        which in 0usize..3,
        fragmented in prop::bool::ANY,
    ) {
        let setup = SimulationSetup {
            memory_bytes: 256 << 20,
            fragmented: if fragmented { 1.0 } else { 0.0 },
            sample: 1_000,
            ..on([ICE_LAKE, ZEN_4, NEOVERSE_V2][which])
        };
        let mut machine = engine("hawkeye-sizes", &parse(&CHANGING.replace("STREAM", STREAM)), &setup);
        machine.wait_until(Duration::from_millis(10));
        let process = only(&mut machine);
        for step in steps {
            if machine.admit_and_list_processes(Duration::from_secs(3600)).into_done().expect("all have joined").is_empty() {
                break;
            }
            match step {
                SizeStep::Promote(number, size) => {
                    let sizes = machine.page_properties().promotable;
                    let sizes: Vec<_> = sizes.iter().collect();
                    let size = sizes[usize::from(size) % sizes.len()];
                    machine.promote(&promotion(process, number, size)).ok();
                }
                SizeStep::Recover(number) => { machine.recover_bloat(process, &[region(number)], BloatKind::ZeroPages); }
                SizeStep::Sizes(bits) => {
                    let offered = machine.page_properties().at_faults;
                    let chosen = offered.iter().filter(|order| bits >> (order.log2_pages() - 2) & 1 == 1);
                    machine.set_fault_sizes(process, chosen.collect()).ok();
                }
                SizeStep::Sample => {
                    machine.start_window(process, SampleKinds::OVERHEAD, Duration::MAX).ok();
                    machine.sample(process, Duration::MAX).ok();
                }
                SizeStep::Go(ms) => {
                    let later = machine.now() + Duration::from_millis(ms);
                    machine.wait_until(later);
                }
            }
            prop_assert_eq!(machine.stopping_error(), None);
            prop_assert_eq!(machine.kernel().check(), Ok(()));
        }
    }
}
