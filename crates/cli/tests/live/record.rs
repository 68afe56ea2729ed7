//! `hawkeye record`, and `--record` of `run`: what is recorded live is reported, and replayed by the simulator.

use crate::common::{Machine, figure, machine, patience, workload};
use hawkeye_sim::simulate::{Setup, simulate};
use hawkeye_sim::systems;
use hawkeye_sim::trace::{BadRecords, Recording};
use hawkeye_sim::workloads::{Replay, Workload};
use hawkeye_test_support::this_test;
use serde_json::Value;
use std::path::Path;

/// What `hawkeye` prints as JSON.
fn json(machine: &Machine, words: &str) -> Value {
    let output = machine.output(words);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}: {said}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{words}: {error}"))
}

/// What was recorded, as a workload of the simulator.
fn recorded(file: &Path) -> Workload {
    let mut replay = Replay::default();
    for row in Recording::open(file, BadRecords::Fail).expect("opens") {
        replay.add(&row.expect("a row"));
    }
    replay.finish("live").expect("a workload")
}

fn report(machine: &Machine, file: &Path) -> Value {
    json(machine, &format!("report --json {}", file.display()))
}

#[test]
fn a_live_program_is_recorded_left_alone_and_replayed_under_two_systems() {
    let Some(machine) = machine(this_test!()) else {
        return;
    };
    // Where a window costs more they come less often: while neighbours were busy 7 s had one.
    let length = 30 * patience() * patience();
    let (mut program, pid) = workload(&format!(
        "hot-spot --mib 128 --hot-mib 32 --hot-percent 100 --quiet --seconds {}",
        length + 50
    ));
    let file = machine.state.join("live.parquet");
    let settings =
        |name: &str| std::fs::read_to_string(format!("/sys/kernel/mm/transparent_hugepage/{name}"));
    let names = [
        "enabled",
        "defrag",
        "use_zero_page",
        "khugepaged/scan_sleep_millisecs",
    ];
    let before = names.map(|name| settings(name).ok());
    let output = machine.output(&format!(
        "record {pid} -o {} --length {length} --period 2 --window 0.2",
        file.display()
    ));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success() && said.contains("sampling windows"),
        "{said}"
    );
    assert_eq!(names.map(|name| settings(name).ok()), before);

    let figures = report(&machine, &file);
    let process = &figures["processes"][0];
    assert_eq!(process["pid"], pid);
    assert!(process["windows"].as_u64() >= Some(2), "{said}");
    assert!(process["rss_end_bytes"].as_u64() >= Some(128 << 20));
    assert_eq!(
        (&process["promoted"], &process["recovered"]),
        (&0.into(), &0.into())
    );
    assert_eq!(figures["policy"], "none");
    // A quarter is hot.
    let cells = process["map"]["coverage_percent"]
        .as_array()
        .expect("a map");
    let hot = cells.iter().filter(|c| c.as_u64() > Some(90)).count();
    let cold = cells
        .iter()
        .filter(|c| c.as_u64().is_some_and(|c| c < 10))
        .count();
    assert!(hot > 0 && cold > hot, "{hot} cells hot, {cold} cold");

    let recording = recorded(&file);
    let replayed = ["linux-4k", "linux"].map(|system| {
        let system = systems::by_name(system).expect("is known");
        let run = simulate(&system, &recording, &Setup::default()).expect("is simulated");
        let program = &run.figures.programs[0];
        // The kernel keeps fifteen letters.
        assert_eq!(program.name, "hawkeye-workloa");
        assert!(program.rss_peak_bytes >= 100 << 20, "{program:?}");
        program.huge_peak_bytes
    });
    assert_eq!(replayed[0], 0);
    assert!(replayed[1] >= 64 << 20, "{replayed:?}");
    let _ = program.command(hawkeye_workload::Request::Quit);
}

#[test]
fn what_run_does_is_in_its_recording() {
    let Some(machine) = machine(this_test!()) else {
        return;
    };
    let file = machine.state.join("run.parquet");
    let options = format!(
        "--policy hawkeye-g --window 0.02 --period 1 --cpu 100 --max-promotions 16 --record {}",
        file.display()
    );
    let (code, summary) = machine.run_workload(
        &options,
        "hot-spot --mib 128 --hot-mib 64 --quiet --seconds 15",
    );
    // A busy machine may not get to all sixteen.
    let promoted = figure(&summary, "promoted");
    assert!(code == 0 && promoted > 0, "{summary}");
    let figures = report(&machine, &file);
    let process = &figures["processes"][0];
    assert_eq!(process["promoted"], promoted);
    let huge = process["huge_end_bytes"].as_u64();
    assert!(
        huge > Some(0) && huge <= Some(promoted * (2 << 20)),
        "{process}"
    );
    assert!(process["bloat_end_bytes"].is_u64(), "{process}");
    let kinds = figures["decisions"]["kinds"].as_array().expect("kinds");
    let promoted = kinds.iter().find(|kind| kind["event"] == "promoted");
    let reason = promoted.and_then(|kind| kind["last_reason"].as_str());
    assert!(
        reason.is_some_and(|reason| reason.contains("base pages accessed")),
        "{kinds:?}"
    );
}
