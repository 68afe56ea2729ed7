//! Bad input leads to one clear sentence and changes nothing.

use crate::common::{NOBODY, machine, or_skip, workload};
use hawkeye_test_support::this_test;

#[test]
fn a_kernel_thread_is_refused() {
    let machine = or_skip!(machine(this_test!()));
    // Process 2 is kthreadd where the pid namespace is the machine's own.
    if std::fs::read_to_string("/proc/2/comm").ok().as_deref() != Some("kthreadd\n") {
        this_test!().skip("no kernel thread can be seen from here");
        return;
    }
    machine.output("attach 2").assert_refused(1, "process 2 is a kernel thread");
}

#[test]
fn a_process_of_another_user_is_refused_without_privileges() {
    let machine = or_skip!(machine(this_test!()));
    let (_program, pid) = workload("burner --mib 2");
    let refused = machine.output_as(NOBODY, &format!("attach {pid}"));
    refused.assert_refused(1, "belongs to user 0");
}

#[test]
fn options_out_of_range_and_unknown_words_are_refused() {
    let machine = or_skip!(machine(this_test!()));
    for (words, said) in [
        ("run --watermarks 70,85 -- true", "low watermark"),
        ("run --watermarks 85 -- true", "HIGH,LOW"),
        ("run --cpu 0 -- true", "CPU budget"),
        ("run --rate=-1 -- true", "rate"),
        ("run --period 0 -- true", "not a time"),
        ("run --policy best -- true", "hawkeye-g"),
        ("run --profile fast -- true", "balanced"),
        ("run --max-promotions many -- true", "--max-promotions"),
        ("run --bloat-threshold 513 -- true", "bloat threshold"),
        ("run", "CMD"),
        ("attach", "PID"),
        ("attach 0", "PID"),
        ("attach --policy linux -- -5", "PID"),
        ("manage", "manage"),
    ] {
        machine.output(words).assert_refused(2, said);
    }
    let missing = "run -- /no/such/program";
    for (words, said) in [
        ("run --window 10 --period 5 -- true", "at most the period"),
        (missing, "can't start /no/such/program"),
        ("attach 4194000", "there is no process 4194000"),
        (
            "run --json /no/such/folder/a.json -- echo started",
            "can't create /no/such/folder/a.json",
        ),
        ("demo --json /no/such/folder/a.json", "can't create /no/such/folder/a.json"),
    ] {
        let output = machine.output(words);
        output.assert_refused(1, said);
        assert_eq!(output.out, "", "{words}");
    }
}
