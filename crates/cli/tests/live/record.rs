//! `hawkeye record`, and `--record` of `run`: live recordings are reported, and the simulator
//! replays them.

use crate::common::{figure, machine, machine_at_speed, or_skip, recording_lengths, workload};
use hawkeye_live_test_support::settings;
use hawkeye_sim::simulate::{SimulationSetup, simulate};
use hawkeye_sim::systems;
use hawkeye_sim::trace::{BadRecordHandling, CoverageRowReader};
use hawkeye_sim::workloads::{RecordingReplay, WorkloadSpec};
use hawkeye_test_support::this_test;
use serde_json::Value;
use std::path::Path;

fn recorded(file: &Path) -> WorkloadSpec {
    let mut replay = RecordingReplay::default();
    for row in
        CoverageRowReader::open(file, BadRecordHandling::Fail).expect("the recording can be opened")
    {
        replay.add_row(&row.expect("the row is valid"));
    }
    replay.finish("live").expect("the recording can be replayed")
}

#[test]
fn a_live_program_is_recorded_unchanged_and_replayed_under_two_systems() {
    // Elsewhere the start of the recorder uses up its CPU budget for minutes.
    let machine = or_skip!(machine_at_speed(this_test!()));
    let [short, long] = recording_lengths();
    let (mut program, pid) = workload(&format!(
        "hot-spot --mib 128 --hot-mib 32 --hot-percent 100 --quiet --seconds {}",
        short + long + 50
    ));
    let file = machine.state.join("live.parquet");
    let sleep = "khugepaged/scan_sleep_millisecs";
    let names = ["enabled", "defrag", "use_zero_page", sleep];
    let before = names.map(settings::read);
    let windows = |figures: &Value| figure(&figures["processes"][0], "windows");
    let words = format!("{pid} --period 2 --window 0.2");
    let figures = machine.record(&words, &file, |figures| windows(figures) >= 2);
    assert_eq!(names.map(settings::read), before);
    let process = &figures["processes"][0];
    assert_eq!(process["pid"], pid);
    assert!(windows(&figures) >= 2, "{process}");
    assert!(process["rss_end_bytes"].as_u64() >= Some(128 << 20));
    for done in ["promoted", "recovered"] {
        assert_eq!(process[done], 0, "{done}");
    }
    assert_eq!(figures["policy"], "none");
    // A quarter of the memory is hot.
    let cells = process["map"]["coverage_percent"].as_array();
    let cells = cells.expect("the report has a map").iter().filter_map(Value::as_u64);
    let hot = cells.clone().filter(|c| *c > 90).count();
    let cold = cells.filter(|c| *c < 10).count();
    assert!(hot > 0 && cold > hot, "{hot} cells hot, {cold} cold");

    let recording = recorded(&file);
    let replayed = ["linux-4k", "linux"].map(|system| {
        let system = systems::by_name(system).expect("the system exists");
        let run = simulate(&system, &recording, &SimulationSetup::default())
            .expect("the recording can be simulated");
        let program = &run.figures.programs[0];
        // The kernel keeps fifteen characters of a name.
        assert_eq!(program.name, "hawkeye-workloa");
        assert!(program.rss_peak_bytes >= 100 << 20, "{program:?}");
        program.huge_peak_bytes
    });
    assert_eq!(replayed[0], 0);
    assert!(replayed[1] >= 64 << 20, "{replayed:?}");
    let _ = program.send_request(hawkeye_workload::WorkloadRequest::Quit);
}

#[test]
fn the_recording_of_run_contains_its_promotions() {
    let machine = or_skip!(machine(this_test!()));
    let file = machine.state.join("run.parquet");
    let options = format!(
        "--profile balanced --policy hawkeye-g --window 0.02 --period 1 --cpu 100 \
         --max-promotions 16 --record {}",
        file.display()
    );
    let hot = "hot-spot --mib 128 --hot-mib 64 --quiet --seconds 10";
    let (code, summary) = machine.run_workload(&options, hot);
    // A busy machine may not promote all sixteen.
    let promoted = figure(&summary, "promoted");
    assert!(code == 0 && promoted > 0, "{summary}");
    let figures = machine.report(&file);
    let process = &figures["processes"][0];
    assert_eq!(process["promoted"], promoted);
    let huge = figure(process, "huge_end_bytes");
    assert!(huge > 0 && huge <= promoted * (2 << 20), "{process}");
    assert!(process["bloat_end_bytes"].is_u64(), "{process}");
    let kinds = figures["decisions"]["kinds"].as_array().expect("kinds");
    let promoted = kinds.iter().find(|kind| kind["event"] == "promoted");
    let reason = promoted.and_then(|kind| kind["last_reason"].as_str());
    let by_pages = reason.is_some_and(|reason| reason.contains("base pages accessed"));
    assert!(by_pages, "{kinds:?}");
}
