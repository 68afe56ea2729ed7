//! Free memory zeroed by the kernel: works with this repository's patches (`kernel/README.md`), and
//! is absent on other kernels.

use crate::common::{TestMachine, machine, machine_with, or_skip, signal, until};
use crate::daemon::RunningDaemon;
use hawkeye_live_test_support::settings::Changed;
use hawkeye_test_support::test_skips::TestName;
use hawkeye_test_support::this_test;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::Duration;

const CORE: &str = "/sys/kernel/mm/prezero";
const PARAMETERS: &str = "/sys/module/prezero/parameters";
const NAMES: [&str; 2] = ["pages_per_second", "idle_only"];
const CAPABILITY: &str = "pre-zeroed memory";

fn module_settings() -> String {
    let read =
        |name| fs::read_to_string(Path::new(PARAMETERS).join(name)).expect("the file can be read");
    NAMES.map(read).map(|text| text.trim().to_owned()).join(" ")
}

const AS_LOADED: &str = "10000 N";

/// The module has its default settings until the second value is dropped.
fn with_module(test: TestName) -> Option<(TestMachine, Changed)> {
    let machine = machine_with(test, CAPABILITY)?;
    let values = NAMES.into_iter().zip(AS_LOADED.split(' '));
    let values = values.map(|(name, value)| (Path::new(PARAMETERS).join(name), value));
    Some((machine, Changed::to(values).expect("root can change the settings")))
}

#[test]
fn the_doctor_reports_prezeroing_as_the_kernel_does() {
    let machine = or_skip!(machine(this_test!()));
    let report = machine.output("doctor --json").json();
    let capabilities = report["capabilities"].as_array().expect("a list");
    let found = capabilities.iter().find(|c| c["name"] == CAPABILITY);
    let found = found.expect("the doctor lists prezeroing");
    let active = fs::read_to_string(Path::new(CORE).join("active"));
    let active = active.is_ok_and(|text| text.trim() == "1");
    assert_eq!(found["available"], active, "{found}");
    let state = &report["facts"]["prezeroing"]["state"];
    if Path::new(CORE).exists() {
        assert_eq!(state, "there");
    } else {
        assert_eq!(state, "absent");
        let daemon = RunningDaemon::start(&machine, "");
        assert_eq!(daemon.status()["prezeroing"], Value::Null);
        daemon.end();
    }
}

#[test]
fn the_daemon_sets_the_rate_of_zeroing_and_restores_it() {
    let (machine, _found) = or_skip!(with_module(this_test!()));
    let bounds = "\n[prezeroing]\npages_per_s = 2000\nmost_pages_per_s = 3000\n";
    let daemon = RunningDaemon::start(&machine, bounds);
    let paced = || {
        let rate = module_settings().split(' ').next().and_then(|rate| rate.parse().ok());
        rate.is_some_and(|rate: u32| (512..=3000).contains(&rate))
            && module_settings().ends_with(" Y")
    };
    assert!(until(Duration::from_secs(10), paced), "{}", module_settings());
    let status = daemon.status();
    let zeroing = &status["prezeroing"];
    assert_eq!(zeroing["active"], true, "{zeroing}");
    assert!(zeroing["free_bytes"].as_u64() > Some(0), "{zeroing}");
    machine.output("pause");
    let as_loaded = || module_settings() == AS_LOADED;
    assert!(until(Duration::from_secs(10), as_loaded), "{}", module_settings());
    machine.output("resume");
    assert!(until(Duration::from_secs(10), paced), "{}", module_settings());
    daemon.end();
    assert_eq!(module_settings(), AS_LOADED);
}

#[test]
fn nothing_is_zeroed_while_memory_is_short() {
    let (machine, _found) = or_skip!(with_module(this_test!()));
    let short = "\n[memory]\nhigh_percent = 0.2\nlow_percent = 0.1\n";
    let daemon = RunningDaemon::start(&machine, short);
    let stopped = until(Duration::from_secs(10), || module_settings() == "1 Y");
    assert!(stopped, "{}", module_settings());
    let pace = daemon.status()["prezeroing"]["pace"].clone();
    assert_eq!(pace, "stopped: memory is short");
    daemon.end();
}

#[test]
fn after_kill_9_restore_restores_the_rate_of_zeroing() {
    let (machine, _found) = or_skip!(with_module(this_test!()));
    let daemon = RunningDaemon::start(&machine, "");
    assert!(until(Duration::from_secs(10), || module_settings() != AS_LOADED));
    signal(daemon.pid(), libc::SIGKILL);
    drop(daemon);
    let changed = module_settings();
    assert_ne!(changed, AS_LOADED, "the killed manager has not restored it");
    machine.output("restore");
    assert_eq!(module_settings(), AS_LOADED);
}

#[test]
fn huge_faults_get_memory_zeroed_in_advance() {
    let (machine, _found) = or_skip!(with_module(this_test!()));
    let daemon = RunningDaemon::start(&machine, "");
    let count = |name: &str| daemon.status()["prezeroing"][name].as_u64();
    daemon.wait_for_status(Duration::from_secs(60), |status| {
        status["prezeroing"]["free_zeroed_bytes"].as_u64() > Some(256 << 20)
    });
    let before = count("served_pages").expect("the daemon counts served pages");
    let touch = "workload touch --mib 128 --pages huge --now";
    machine.output(touch).assert_success();
    let pages = || count("served_pages").expect("the daemon counts served pages") - before;
    let most = || pages() >= (128 << 20) / 4096 * 97 / 100;
    assert!(until(Duration::from_secs(5), most), "{} pages", pages());
    daemon.end();
}
