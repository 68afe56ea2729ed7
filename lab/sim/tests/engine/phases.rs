//! What phases of filling and freeing do, and the figures of one run and of many.

use super::common::{HOT_AT_THE_TOP, accessing, fragmented, parse, program, ran, run, small};
use super::support::{process, workload};
use hawkeye_sim::engine::{ProgramFigures, ProgramOutcome};
use hawkeye_sim::simulate::{SimulationJob, SimulationResult, simulate_each};
use hawkeye_sim::systems::SYSTEMS;
use hawkeye_sim::workloads::WorkloadSpec;
use std::sync::atomic::{AtomicUsize, Ordering};

const MIB: f64 = 1048576.0;

fn made(system: &str, phases: &str) -> ProgramFigures {
    let workload = program(r#"{ name = "data", size = "128MiB" }"#, phases);
    ran(system, &workload, &small())
}

const FILL: &str = r#"{ kind = "fill", area = "data", page_ns = 0.0 }"#;

/// Any number of rounds frees the same amount in the end; what is left holds data.
#[test]
fn rounds_free_what_they_are_told_to() {
    for (rounds, share) in [(1, 0.5), (20, 0.5), (7, 0.9), (3, 1.0)] {
        let free =
            format!(r#"{{ kind = "free", area = "data", share = {share}, rounds = {rounds} }}"#);
        let done = made("linux-4k", &format!("{FILL}, {free}"));
        let left = 128.0 * (1.0 - share);
        for bytes in [done.useful_end_bytes, done.phases[1].rss_bytes] {
            let mib = bytes as f64 / MIB;
            assert!((mib - left).abs() < 1.0, "{rounds} rounds: {mib}");
        }
    }
}

/// All regions lose their pages gradually and at the same time.
#[test]
fn rounds_go_through_all_of_the_area() {
    let free = r#"{ kind = "free", area = "data", share = 0.5, rounds = 50, page_ns = 1e6 }"#;
    let done = made("ingens-50", &format!("{FILL}, {free}"));
    // Freeing takes 16 s. Meanwhile regions in use by more than half are promoted again.
    let mib = done.phases[1].rss_bytes as f64 / MIB;
    assert!(mib > 110.0, "{mib}");
}

/// Memory that is zeroed in advance is in no cache.
#[test]
fn waits_for_cold_pages_can_overlap() {
    let took = |waited: f64| {
        let fill = format!(
            r#"{{ kind = "fill", area = "data", page_ns = 0.0, waited_percent = {waited} }}"#
        );
        made("hawkeye-pmu", &fill).wall_s
    };
    let pages = 32_768.0;
    assert!(((took(100.0) - took(0.0)) / pages - 90e-9).abs() < 1e-9);
    assert!(((took(50.0) - took(0.0)) / pages - 45e-9).abs() < 1e-9);
}

#[test]
fn the_course_of_a_run_is_told() {
    let workload = accessing(60.0, crate::common::RANDOM);
    let program = ran("linux", &workload, &crate::common::fragmented(1.0));
    let times: Vec<f64> = program.course.iter().map(|moment| moment.at_s).collect();
    assert_eq!(times[0], 0.0);
    assert!(times.windows(2).all(|t| t[0] < t[1]));
    assert!(times.last() > Some(&(program.wall_s - 2.0)), "{times:?}");
    let overheads: Vec<f64> = program
        .course
        .iter()
        .filter_map(|moment| moment.overhead_percent)
        .collect();
    assert!(overheads.first() > Some(&30.0), "{overheads:?}");
    assert!(overheads.last() < Some(&10.0), "{overheads:?}");
    let huge = program.course.last().map(|moment| moment.huge_bytes);
    assert_eq!(huge, Some(program.huge_peak_bytes));
    let most = program.course.iter().map(|moment| moment.rss_bytes).max();
    assert_eq!(most, Some(128 << 20));
}

#[test]
fn all_is_over_with_the_last_that_somebody_waits_for() {
    let over =
        |processes: &[String]| run("linux-4k", &parse(&workload(processes)), &small()).figures;
    let waiting = |name, background, seconds| {
        let phase = format!(r#"{{ kind = "wait", seconds = {seconds:?} }}"#);
        let area = r#"{ name = "data", size = "2MiB" }"#;
        process(name, &format!("background = {background}"), area, &phase)
    };
    let (server, job) = (waiting("server", true, 90.0), waiting("job", false, 30.0));
    let done = over(&[server.clone(), job]);
    assert!((30.0..31.0).contains(&done.wall_s), "{}", done.wall_s);
    let outcomes = done.programs.iter().map(|program| program.outcome);
    assert!(outcomes.eq([ProgramOutcome::Unfinished, ProgramOutcome::Done]));
    // Alone, its end is the run's end.
    let done = over(&[server]);
    assert!((90.0..91.0).contains(&done.wall_s), "{}", done.wall_s);
}

fn compare(workload: &WorkloadSpec, threads: usize, seed: u64) -> Vec<SimulationResult> {
    let setup = hawkeye_sim::simulate::SimulationSetup {
        seed,
        ..fragmented(2.0)
    };
    let jobs = SYSTEMS.map(|system| SimulationJob {
        system,
        workload,
        setup,
    });
    let told = AtomicUsize::new(0);
    let done = simulate_each(&jobs, threads, &|_| {
        told.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(told.into_inner(), jobs.len());
    done.unwrap()
}

#[test]
fn the_same_seed_gives_the_same_on_any_number_of_threads() {
    let workload = accessing(10.0, HOT_AT_THE_TOP);
    let one = compare(&workload, 1, 1);
    for threads in [3, 8] {
        assert_eq!(one, compare(&workload, threads, 1));
    }
    assert_ne!(one, compare(&workload, 4, 2));
}

/// System, seconds, overhead in per cent, MiB under huge pages, faults, promotions.
const GOLDEN: &str = "
linux-4k         64.72  6.61   0 32768  0
linux            62.15  2.96 128 32768 64
linux-async      62.15  2.96 128 32768 64
linux-mthp-64kb  64.64  6.61   0  2048  0
linux-mthp       62.06  2.97 128   128 64
freebsd          64.72  6.61   0 32768  0
ingens           62.15  2.96 128 32768 64
ingens-90        62.15  2.96 128 32768 64
ingens-50        62.15  2.96 128 32768 64
hawkeye-4k       64.69  6.61   0 32768  0
hawkeye-g        60.52  0.58 128 32768 64
hawkeye-pmu      60.52  0.58 118 32768 59
hawkeye          61.31  1.44  24 32768 12
hawkeye-sizes    61.31  1.44  24 32768 12
unzeroed-4k      64.69  6.61   0 32768  0
unzeroed         60.01  0.00 128    64  0
";

/// A change that changes these figures must say in its note which ones, and why.
#[test]
fn a_comparison_comes_out_as_it_did() {
    let workload = accessing(60.0, HOT_AT_THE_TOP);
    let lines = compare(&workload, 2, 1).into_iter().map(|run| {
        let program = &run.figures.programs[0];
        format!(
            "{:<15} {:>6.2} {:>5.2} {:>3} {:>5} {:>2}\n",
            run.system,
            program.wall_s,
            program.overhead_percent,
            program.huge_peak_bytes >> 20,
            program.faults,
            run.promoted
        )
    });
    let table: String = lines.collect();
    assert_eq!(table.trim(), GOLDEN.trim(), "\n{table}");
}
