//! What phases of filling and freeing do, and the figures of a run.

use crate::common::{accessing, parse, program, ran, run, small};
use crate::workload_toml::{process, workload};
use hawkeye_sim::engine::{ProgramFigures, ProgramOutcome};

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
    let overheads: Vec<f64> =
        program.course.iter().filter_map(|moment| moment.overhead_percent).collect();
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
