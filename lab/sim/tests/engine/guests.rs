//! Virtual machines.

use crate::common::{
    RANDOM, SEQUENTIAL, accessing, fragmented, parse, program, ran, run, second_phase_s, small,
};
use crate::workload_toml::{process, workload};
use hawkeye_sim::engine::ProgramOutcome;
use hawkeye_sim::kernel::{SamePageMergingSpec, SwapSpec};
use hawkeye_sim::simulate::{SimulationResult, SimulationSetup};
use hawkeye_sim::systems;
use hawkeye_sim::workloads::{ByteSize, WorkloadSpec};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence::Direct;

const MIB: u64 = 1 << 20;

fn in_guest(workload: WorkloadSpec) -> WorkloadSpec {
    workload.in_guest(ByteSize(256 * MIB), 4)
}

fn wall_s(done: &SimulationResult) -> f64 {
    done.figures.all_programs().map(|p| p.wall_s).sum()
}

fn with_guest(system: &str, setup: SimulationSetup) -> SimulationSetup {
    let found = systems::by_name(system).unwrap();
    SimulationSetup { guest_system: Some(found), ..setup }
}

#[test]
fn nested_walks_cost_more_and_huge_pages_save_more() {
    let native = accessing(30.0, RANDOM);
    let hosted = in_guest(native.clone());
    let overhead = |workload: &WorkloadSpec, system| {
        let done = run(system, workload, &small());
        done.figures.overhead_percent()
    };
    let (own, nested) = (overhead(&native, "linux-4k"), overhead(&hosted, "linux-4k"));
    assert!(nested > 1.3 * own, "{nested} of {own}");
    assert!(overhead(&hosted, "linux") < 0.2 * nested);
    let sequential = in_guest(accessing(30.0, SEQUENTIAL));
    assert!(overhead(&sequential, "linux-4k") < 5.0);
}

#[test]
fn huge_pages_on_both_sides_bring_more_than_on_one() {
    let workload = in_guest(accessing(30.0, RANDOM));
    let time = |host, guest| wall_s(&run(host, &workload, &with_guest(guest, small())));
    let none = time("linux-4k", "linux-4k");
    let (host, guest) = (time("linux", "linux-4k"), time("linux-4k", "linux"));
    let both = time("linux", "linux");
    let times = [none, host, guest, both];
    assert!(host < none && guest < none, "{times:?}");
    assert!(both < host && both < guest, "{times:?}");
}

#[test]
fn each_side_is_managed_by_its_own_policy() {
    let workload = in_guest(accessing(60.0, RANDOM));
    let setup = SimulationSetup { guest_fragmented: 1.0, sample: 1_000, ..fragmented(20.0) };
    let promoted = |host, guest| {
        let done = run(host, &workload, &with_guest(guest, setup));
        assert_eq!(done.system, format!("{host}/{guest}"));
        (done.promoted, wall_s(&done))
    };
    let (nothing, slow) = promoted("linux-4k", "linux-4k");
    assert_eq!(nothing, 0);
    let (at_host, with_host) = promoted("hawkeye-g", "linux-4k");
    let (in_guest, with_guest) = promoted("linux-4k", "hawkeye-g");
    let (everywhere, with_both) = promoted("hawkeye-g", "hawkeye-g");
    assert!(at_host >= 64 && in_guest >= 64, "{at_host} {in_guest}");
    assert!(everywhere >= 128, "{everywhere}");
    assert!(with_host < slow && with_guest < slow);
    assert!(with_both < with_host && with_both < with_guest);
}

#[test]
fn the_same_seed_gives_the_same_guests() {
    let workload = in_guest(accessing(20.0, RANDOM));
    let setup = with_guest("hawkeye-pmu", fragmented(20.0));
    let run = || run("hawkeye-g", &workload, &setup);
    assert_eq!(run(), run());
}

/// A guest with one program that has `data_mib` MiB of data and starts after `start_s`; its phases
/// are tables of a TOML array.
fn guest(memory_mib: u32, cores: u32, start_s: f64, data_mib: u32, phases: &[String]) -> String {
    let area = format!(r#"{{ name = "data", size = "{data_mib}MiB" }}"#);
    let start = format!("start_s = {start_s:?}");
    let inside = process("test", &start, &area, &phases.join(", "));
    let inside = inside.replace("[[process", "[[guest.process");
    format!("[[guest]]\nname = \"guest\"\nmemory = \"{memory_mib}MiB\"\ncores = {cores}\n{inside}")
}

fn fill(page_ns: f64, pages_per_region: u32) -> String {
    format!(
        r#"{{ kind = "fill", area = "data", page_ns = {page_ns:?}, pages_per_region = {pages_per_region} }}"#
    )
}

fn free(share: f64) -> String {
    format!(r#"{{ kind = "free", area = "data", share = {share:?} }}"#)
}

fn wait(seconds: f64) -> String {
    format!(r#"{{ kind = "wait", seconds = {seconds:?} }}"#)
}

fn access(accesses: f64, streams: &str) -> String {
    format!(r#"{{ kind = "access", accesses = {accesses:?}, stream = [{streams}] }}"#)
}

fn guests(guests: &[String]) -> WorkloadSpec {
    parse(&workload(guests))
}

/// Two guests of 200 MiB on 256 MiB: one fills its memory and frees it, then the other fills.
fn overcommitted() -> WorkloadSpec {
    let random = r#"{ area = "data", pattern = "random", cycles = 100.0 }"#;
    let guest = |start_s, phases: &[String]| guest(200, 2, start_s, 160, phases);
    guests(&[
        guest(0.0, &[fill(1000.0, 512), free(1.0), wait(60.0)]),
        guest(30.0, &[fill(1000.0, 512), access(1e6, random)]),
    ])
}

#[test]
fn what_a_guest_zeroes_is_merged_at_the_host_and_swapped_where_it_is_not() {
    let setup = SimulationSetup {
        memory_bytes: 256 * MIB,
        swap: Some(SwapSpec::ssd(1 << 30)),
        merging: Some(SamePageMergingSpec { pages_per_s: 50_000 }),
        ..small()
    };
    let swapped = |guest| {
        let figures = run("linux-4k", &overcommitted(), &with_guest(guest, setup)).figures;
        let mut programs = figures.all_programs();
        assert!(programs.all(|p| p.outcome == ProgramOutcome::Done));
        figures.guests.iter().map(|g| g.swapped_bytes).sum::<u64>()
    };
    assert!(swapped("linux-4k") > 40 * MIB);
    assert_eq!(swapped("hawkeye-g"), 0);
}

#[test]
fn a_host_without_memory_or_swap_kills_a_guest() {
    let setup = SimulationSetup { memory_bytes: 256 * MIB, ..small() };
    let done = run("linux-4k", &overcommitted(), &setup);
    let outcomes = done.figures.all_programs().map(|p| p.outcome);
    assert!(outcomes.eq([ProgramOutcome::Killed, ProgramOutcome::Done]));
}

#[test]
fn pages_in_swap_are_waited_for() {
    let workload = program(
        r#"{ name = "data", size = "300MiB" }"#,
        r#"{ kind = "fill", area = "data", page_ns = 1000.0 },
           { kind = "access", accesses = 1e5, stream = [{ area = "data", pattern = "random", cycles = 100.0 }] }"#,
    );
    let with = |memory_bytes| SimulationSetup {
        memory_bytes,
        swap: Some(SwapSpec::ssd(1 << 30)),
        ..small()
    };
    let took_s = |mib| second_phase_s(&ran("linux-4k", &workload, &with(mib * MIB)));
    // A sixth of the pages don't fit: that share of 100,000 accesses waits for 100 us.
    let waited = took_s(256) - took_s(512);
    assert!((1.2..2.6).contains(&waited), "{waited}");
}

/// Two guests that fill, free and access, on a machine that may be too small for them.
fn programs() -> impl Strategy<Value = WorkloadSpec> {
    let phase = prop_oneof![
        (0.05f64..1.0).prop_map(free),
        (1u32..=512).prop_map(|pages| fill(500.0, pages)),
        (0.5f64..3.0).prop_map(wait),
    ];
    let phases = prop::collection::vec(phase, 1..5);
    let guest = (phases, 16u32..60).prop_map(|(phases, mib)| {
        let streams = r#"
            { area = "data", pattern = { zipf = 0.9 }, cycles = 500.0, stores_percent = 30.0 },
            { area = "data", part = [0.5, 1.0], pattern = { stride = 8192 }, cycles = 50.0 },
        "#;
        let before = [fill(500.0, 512)];
        let after = [fill(500.0, 16), access(2e5, streams)];
        let phases: Vec<String> = before.into_iter().chain(phases).chain(after).collect();
        guest(64, 1, 0.0, mib, &phases)
    });
    prop::collection::vec(guest, 2..=2).prop_map(|pair| guests(&pair))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 12,
        ..ProptestConfig::with_failure_persistence(Direct("proptest-regressions/tests/guests.txt"))
    })]

    /// In debug builds the engine asserts the invariants of kernels and guests, and the agreement
    /// between them, after each of its steps.
    #[test]
    fn frames_are_conserved_and_backed_once(
        workload in programs(),
        mib in 72u64..200,
        systems in (0..9usize, 0..9usize),
        fragmented in prop::bool::ANY,
        seed in 0u64..1000,
    ) {
        let names = systems::SYSTEMS.map(|system| system.name);
        let setup = SimulationSetup {
            memory_bytes: mib * MIB,
            swap: Some(SwapSpec::ssd(1 << 30)),
            merging: Some(SamePageMergingSpec { pages_per_s: 20_000 }),
            fragmented: if fragmented { 1.0 } else { 0.0 },
            guest_fragmented: if fragmented { 0.5 } else { 0.0 },
            seed,
            sample: 500,
            ..small()
        };
        let setup = with_guest(names[systems.1], setup);
        run(names[systems.0], &workload, &setup);
    }
}
