//! Traces as workloads: all accesses are made, in order.

use crate::common::{fragmented, ran, run, small};
use hawkeye_sim::engine::ProgramOutcome;
use hawkeye_sim::simulate::SimulationSetup;
use hawkeye_sim::trace::BadRecordHandling;
use hawkeye_sim::workloads::{TraceReplay, WorkloadSpec, workload_of_trace};
use std::fmt::Write;
use std::path::{Path, PathBuf};

const PAGE: u64 = 4096;
const REGION: u64 = 512 * PAGE;
const HEAP: u64 = 0x5555_5560_0000;
const STACK: u64 = 0x7fff_ffe0_0000;

fn file(name: &str, text: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn workload(tape: TraceReplay, times: u32) -> WorkloadSpec {
    workload_of_trace(tape, times).unwrap().0
}

fn loads(addresses: impl Iterator<Item = u64>) -> String {
    addresses.fold(String::new(), |mut text, address| {
        let _ = writeln!(text, "I  401000,4\n L {address:x},8");
        text
    })
}

fn scattered(regions: u64, count: u64) -> impl Iterator<Item = u64> {
    let step = |n: &u64| n.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    let numbers = std::iter::successors(Some(1_u64), move |n| Some(step(n)));
    numbers.take(count as usize).map(move |n| HEAP + (n >> 33) % (regions * 512) * PAGE)
}

#[test]
fn each_access_is_made_once_a_time() {
    let text = " L 555555600000,8\n S 7ffffffe0008,8\n M 555555600010,4\nI  401000,4\nI  401004,4\n L 555555a01000,8\n";
    let path = file("each.lackey", text);
    let played = ran("linux-4k", &workload(TraceReplay::new(path), 5), &small());
    assert_eq!(played.outcome, ProgramOutcome::Done);
    assert_eq!(played.accesses, 20.0);
    // Two pages of the heap and one of the stack.
    assert_eq!(played.faults, 3);
    assert_eq!(played.rss_peak_bytes, 3 * PAGE);
    assert_eq!(played.phases.len(), 5);
}

/// The work for a trace in which every access misses, by hand: one instruction, one walk.
#[test]
fn time_is_the_instructions_and_the_walks() {
    let pages = 5 * 512;
    let sweep = (0..3).flat_map(|_| (0..pages).map(|page| HEAP + page * 7919 % pages * PAGE));
    let workload = workload(TraceReplay::new(file("misses.lackey", &loads(sweep))), 1);
    let played = ran("linux-4k", &workload, &small());
    assert_eq!(played.faults, pages);
    assert!(played.overhead_percent > 50.0, "{played:?}");
    let own_s = played.accesses / 2.6e9;
    let walks_s = own_s * played.overhead_percent / (100.0 - played.overhead_percent);
    let rest_s = played.wall_s - own_s - walks_s;
    // The rest is the first touches.
    assert!((rest_s / played.fault_s - 1.0).abs() < 0.05, "{rest_s} {played:?}");
    // Pages of 2 MiB: the TLB holds all of them.
    let huge = ran("linux", &workload, &small());
    assert!(huge.overhead_percent < 20.0, "{huge:?}");
    assert_eq!(huge.faults, 5);
}

/// A single instruction may make more accesses than are played at once.
#[test]
fn accesses_of_one_instruction_are_not_those_of_a_trace_without_instructions() {
    let one_page = |count| std::iter::repeat_n(HEAP, count);
    let with_instructions = loads(one_page(300));
    let text = with_instructions.clone() + &with_instructions.replace("I  401000,4\n", "");
    let tape = TraceReplay::new(file("copies.lackey", &text));
    let slow = TraceReplay { cycles_per_access: 1e3, ..tape.clone() };
    let [tape, slow] = [tape, slow].map(|tape| ran("linux-4k", &workload(tape, 1), &small()));
    assert_eq!(tape.wall_s, slow.wall_s);
}

/// A short trace stands for a long run, in which the manager finds the hot memory.
#[test]
fn managers_see_what_a_trace_touches() {
    let cold = (0..16 * 512).map(|page| HEAP + page * PAGE);
    let hot = scattered(4, 200_000).map(|address| address + 12 * REGION);
    let stack = std::iter::once(STACK);
    let text = loads(cold.chain(stack).chain(hot));
    let tape = TraceReplay { scale: 100_000.0, ..TraceReplay::new(file("hot.lackey", &text)) };
    let workload = workload(tape, 1);
    for system in ["hawkeye-g", "hawkeye-pmu", "hawkeye"] {
        let played = run(system, &workload, &fragmented(1.0));
        let program = &played.figures.programs[0];
        let base = ran("linux-4k", &workload, &fragmented(1.0));
        // Four regions of 17 are enough.
        let promoted = played.promoted;
        assert!((4..13).contains(&promoted), "{system}: {promoted} {program:?}");
        assert!(program.wall_s < 0.7 * base.wall_s, "{system}: {program:?} {base:?}");
        assert_eq!(played, run(system, &workload, &fragmented(1.0)), "{system}");
    }
}

#[test]
fn swapped_pages_are_swapped_in_on_access() {
    let text = loads(scattered(12, 12_000));
    let workload = workload(TraceReplay::new(file("swap.lackey", &text)), 1);
    let setup = SimulationSetup {
        memory_bytes: 16 << 20,
        swap: Some(hawkeye_sim::kernel::SwapSpec::ssd(1 << 30)),
        ..small()
    };
    let played = ran("linux-4k", &workload, &setup);
    assert_eq!(played.outcome, ProgramOutcome::Done, "{played:?}");
    let enough = ran("linux-4k", &workload, &small());
    assert!(played.wall_s > 2.0 * enough.wall_s, "{played:?} {enough:?}");
    let setup = SimulationSetup { swap: None, ..setup };
    let killed = ran("linux-4k", &workload, &setup);
    assert_eq!(killed.outcome, ProgramOutcome::Killed);
}

#[test]
fn invalid_workloads_are_reported() {
    let refused = |tape: TraceReplay, times: u32| match workload_of_trace(tape, times) {
        Ok(_) => panic!("it is right"),
        Err(error) => error.to_string(),
    };
    let path = file("bad.lackey", " L 1000,8\n L nothing\n L 2000,8\n");
    let told = refused(TraceReplay::new(path.clone()), 1);
    assert!(told.contains("line 2"), "{told}");
    let lenient = TraceReplay { bad: BadRecordHandling::Skip, ..TraceReplay::new(path) };
    let (workload, skipped) = workload_of_trace(lenient.clone(), 1).unwrap();
    assert_eq!(skipped, 1);
    assert_eq!(ran("linux-4k", &workload, &small()).accesses, 2.0);
    let code = file("code.lackey", "I  401000,4\n L ffffffff81000000,8\n");
    assert!(refused(TraceReplay::new(code), 1).contains("loads and stores"));
    assert!(refused(TraceReplay::new("/nowhere".into()), 1).contains("/nowhere"));
    assert!(refused(lenient.clone(), 0).contains("repeat must be 1 or more"));
    let slow = TraceReplay { scale: 0.0, ..lenient };
    assert!(refused(slow, 1).contains("scale must be 1 to 1e9"));
}

/// The trace was valid at the first reading, and is gone when it is played.
#[test]
fn a_trace_that_changes_is_an_error() {
    let path = file("gone.lackey", " L 1000,8\n");
    let workload = workload(TraceReplay::new(path.clone()), 1);
    std::fs::remove_file(&path).unwrap();
    let system = hawkeye_sim::systems::by_name("linux").unwrap();
    let error = hawkeye_sim::simulate::simulate(&system, &workload, &small());
    let told = error.map_err(|error| error.to_string());
    assert!(told.as_ref().is_err_and(|e| e.contains("gone.lackey")), "{told:?}");
}
