//! Runs the whole demo.

use crate::common::{
    CommandOutput, DEADLINE, StartedProcess, figure, hangup_not_ignored, machine, memory_cgroup,
    or_skip, read_json, signal, until, wait,
};
use hawkeye_linux::machine_lease::thp_settings::enabled_file;
use hawkeye_live_test_support::settings;
use hawkeye_test_support::this_test;
use serde_json::Value;

#[test]
fn an_interrupted_demo_restores_settings() {
    let machine = or_skip!(machine(this_test!()));
    let file = enabled_file();
    std::fs::write(&file, "always").expect("the setting can be written");
    let enabled = || settings::chosen(&std::fs::read_to_string(&file).expect("it can be read"));
    for number in [libc::SIGINT, libc::SIGHUP] {
        let mut demo = StartedProcess::quietly(hangup_not_ignored(&mut machine.hawkeye("demo")));
        assert!(until(DEADLINE, || enabled() != "always"), "the demo begins");
        signal(demo.id(), number);
        assert_eq!(wait(&mut demo, DEADLINE), Some(128 + number));
        assert_eq!(enabled(), "always");
    }
}

#[test]
fn a_demo_in_a_small_cgroup_names_the_memory_that_it_needs() {
    let machine = or_skip!(machine(this_test!()));
    let group = or_skip!(memory_cgroup(this_test!(), "hawkeye-demo", 512 << 20));
    let mut command = group.wrap_command(&machine.hawkeye("demo"));
    machine.set_up(&mut command);
    CommandOutput::of(&mut command).assert_refused(1, "MiB of free memory, but only");
}

#[test]
fn the_demo_promotes_its_budget_recovers_bloat_and_changes_no_contents() {
    let machine = or_skip!(machine(this_test!()));
    let path = machine.state.join("demo.json");
    let words = format!("demo --json {}", path.display());
    machine.output(&words).assert_success();
    let figures = read_json(&path).expect("the file holds JSON");
    let systems = figures["systems"].as_array().expect("a list");
    let names: Vec<_> = systems.iter().map(|it| &it["system"]).collect();
    assert_eq!(names, ["base pages", "linux order", "hawkeye-g"]);
    assert_eq!(systems[0]["promoted"], 0, "{figures}");
    // Which regions it promotes depends on what its windows see, and how many depends on time. A
    // manager that promotes too slowly passes by the cold ones, as on an emulated machine: it drops
    // one at each window that comes during a pause.
    let [promoted, allowed, hot] =
        ["promoted", "promotions_allowed", "promoted_hot"].map(|name| figure(&systems[1], name));
    assert!(hot <= promoted / 2 || promoted < allowed / 2, "{figures}");
    for system in &systems[1..] {
        let [promoted, allowed] =
            ["promoted", "promotions_allowed"].map(|name| figure(system, name));
        assert!((1..=allowed).contains(&promoted), "{figures}");
        // What is drawn comes from the kernel.
        assert_eq!(figure(system, "huge_regions_before"), 0, "{figures}");
        assert!(figure(system, "huge_regions_after") > 0, "{figures}");
        // The speed depends on the host. Where it is little, the demo says why.
        let reads = |system: &Value| system["million_reads_per_s"].as_f64().unwrap_or(f64::NAN);
        let is_short = reads(system) / reads(&systems[0]) < 1.3;
        assert_eq!(system["shortfall"].is_string(), is_short, "{figures}");
    }
    let bloat = &figures["bloat"];
    assert_eq!(bloat["wrong_bytes"], 0, "{figures}");
    let [before, after] = ["before_bytes", "after_bytes"].map(|name| figure(bloat, name));
    assert!(after < before, "{figures}");
}
