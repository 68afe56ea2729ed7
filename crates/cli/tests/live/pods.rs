//! The profiles that pods ask for by annotation: real pods of containerd, made through CRI.

mod container_runtime;

use crate::common::{DEADLINE, machine, or_skip};
use crate::daemon::RunningDaemon;
use container_runtime::ContainerRuntime;
use hawkeye_test_support::this_test;
use serde_json::Value;

/// Manages only workloads that ask for it.
pub const ONLY_ON_REQUEST: &str = r#"
[sampling]
period = "1 s"
window = "50 ms"
[selection]
unmatched = "exclude"
look_every = "1 s"
min_resident = "16 MiB"
"#;

/// The entry of a process in the daemon's status.
pub fn process(status: &Value, pid: u32) -> &Value {
    let processes = status["processes"].as_array().expect("a list");
    let found = processes.iter().find(|process| process["pid"] == pid);
    found.unwrap_or_else(|| panic!("{pid} is not managed: {status}"))
}

#[test]
fn pods_get_the_profile_of_their_annotation() {
    let test = this_test!();
    let machine = or_skip!(machine(test));
    let Some(mut runtime) = ContainerRuntime::start(&machine.state.join("cri")) else {
        test.skip("containerd, runc or a C compiler is not installed");
        return;
    };
    let [never, guard, balanced, speed, unknown, silent] =
        [Some("never"), Some("guard"), Some("balanced"), Some("speed"), Some("always"), None]
            .map(|profile| runtime.start_pod(profile));
    let socket = runtime.socket().display().to_string();
    let daemon = RunningDaemon::start_by(
        &machine,
        &format!("{ONLY_ON_REQUEST}[workload_profiles]\ncri_socket = \"{socket}\"\n"),
    );
    daemon.wait_for_status(DEADLINE, |status| status["managed"] == 3);
    let status = daemon.status();
    for (pid, profile, promotes, said) in [
        (guard, "guard", false, "its pod asks for the profile \"guard\""),
        (balanced, "balanced", true, "its pod asks for the profile \"balanced\""),
        (speed, "balanced", true, "workload_profiles.highest allows no more than balanced"),
    ] {
        let process = process(&status, pid);
        assert_eq!(process["terms"]["profile"], profile, "{process}");
        assert_eq!(process["terms"]["promotes"], promotes, "{process}");
        assert_eq!(process["terms"]["prefaults"], false, "{process}");
        let request = process["profile_request"].as_str().unwrap_or_default();
        assert!(request.ends_with(said), "{process}");
    }
    let why = |pid: u32| machine.output(&format!("why {pid}"));
    for (pid, said) in [
        (never, "is left alone: its pod asks for the profile \"never\""),
        (unknown, "matches no rule"),
        (silent, "matches no rule"),
    ] {
        let why = why(pid);
        assert_eq!(why.code, Some(1), "{why:?}");
        let words: Vec<&str> = why.out.split_whitespace().collect();
        assert!(words.join(" ").contains(said), "{why:?}");
    }
    let pods = &status["pod_annotations"];
    assert_eq!((&pods["pods"], &pods["last_error"]), (&6.into(), &Value::Null), "{status}");

    // A pod that the daemon does not know yet.
    let late = runtime.start_pod(Some("guard"));
    daemon.wait_for_status(DEADLINE, |status| status["managed"] == 4);
    assert_eq!(process(&daemon.status(), late)["terms"]["profile"], "guard");
    let explained = why(late).out;
    assert!(explained.contains("Request: its pod asks for"), "{explained}");
    daemon.end();
}
