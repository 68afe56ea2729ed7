//! One clear sentence, and nothing changed.

use crate::common::{HAWKEYE, machine, workload};
use hawkeye_test_support::this_test;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

fn assert_refused(output: &Output, code: i32, words: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.contains(words), "{said}");
    assert!(
        !said.contains("panicked") && !said.contains("backtrace"),
        "{said}"
    );
}

#[test]
fn a_pid_that_is_gone() {
    let Some(machine) = machine(this_test!()) else {
        return;
    };
    assert_refused(
        &machine.output("attach 4194000"),
        1,
        "there is no process 4194000",
    );
}

#[test]
fn a_kernel_thread() {
    let Some(machine) = machine(this_test!()) else {
        return;
    };
    // 2 is kthreadd, where the pid namespace is the machine's own.
    if std::fs::read_to_string("/proc/2/comm").ok().as_deref() != Some("kthreadd\n") {
        this_test!().skip("no kernel thread can be seen from here");
        return;
    }
    assert_refused(
        &machine.output("attach 2"),
        1,
        "process 2 is a kernel thread",
    );
}

#[test]
fn another_users_process_without_the_privilege() {
    let Some(machine) = machine(this_test!()) else {
        return;
    };
    let (_program, pid) = workload("burner --mib 2");
    let copy = machine.state.join("hawkeye");
    std::fs::copy(HAWKEYE, &copy).expect("copies");
    let output = Command::new(&copy)
        .args(["attach", &pid.to_string()])
        .uid(65534)
        .gid(65534)
        .output()
        .expect("starts");
    assert_refused(&output, 1, "belongs to user 0");
}

#[test]
fn options_out_of_range_and_unknown_words() {
    let Some(machine) = machine(this_test!()) else {
        return;
    };
    for (words, said) in [
        ("run --watermarks 70,85 -- true", "low watermark"),
        ("run --watermarks 85 -- true", "HIGH,LOW"),
        ("run --cpu 0 -- true", "CPU budget"),
        ("run --rate=-1 -- true", "rate"),
        ("run --period 0 -- true", "no time"),
        ("run --policy best -- true", "hawkeye-g"),
        ("run --max-promotions many -- true", "--max-promotions"),
        ("run --bloat-threshold 513 -- true", "bloat threshold"),
        ("run", "CMD"),
        ("attach", "PID"),
        ("attach 0", "PID"),
        ("attach --policy linux -- -5", "PID"),
        ("manage", "manage"),
    ] {
        assert_refused(&machine.output(words), 2, said);
    }
    let longer = "run --window 10 --period 5 -- true";
    assert_refused(&machine.output(longer), 1, "at most the period");
    let missing = "run -- /no/such/program";
    assert_refused(
        &machine.output(missing),
        1,
        "could not start /no/such/program",
    );
}
