//! Runs the programs of `hawkeye demo`, and the demo itself where it is not permitted. Needs no
//! privileges.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Sends these commands to a program, 50 ms apart, and closes its standard input. Returns whether
/// it exits with success, and its answers. It first prints the address of its memory.
fn run(words: &str, commands: &[&str]) -> (bool, Vec<String>) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_hawkeye"))
        .arg("demo-program")
        .args(words.split_whitespace())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let mut input = child.stdin.take().expect("the stream is a pipe");
    for command in commands {
        writeln!(input, "{command}").expect("the command can be sent");
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(input);
    let ended = child.wait_with_output().expect("the program ends");
    let said = String::from_utf8(ended.stdout).expect("the answers are UTF-8");
    let mut lines = said.lines().map(str::to_owned);
    let start = lines.next().expect("an address");
    let start = u64::from_str_radix(start.trim_start_matches("0x"), 16);
    assert_eq!(start.expect("an address") % (2 << 20), 0);
    (ended.status.success(), lines.collect())
}

#[test]
fn the_reader_counts_what_it_reads_from_go_to_stop() {
    // At the end of the input it still reads memory. All or none of that may be hot.
    for words in [
        "--mib 8 --hot-mib 2 --hot-percent 90",
        "--mib 4 --hot-mib 0 --hot-percent 50 --huge",
        "--mib 4 --hot-mib 4 --hot-percent 50 --huge",
    ] {
        let commands = ["go", "stop", "go", "stop", "go"];
        let (success, answers) = run(&format!("reader {words}"), &commands);
        assert!(success, "{words}");
        assert_eq!(answers.len(), 2, "{words}: {answers:?}");
        for said in answers {
            let (reads, seconds) = said.split_once(' ').expect("two numbers");
            assert!(reads.parse::<u64>().expect("a number") > 0, "{said}");
            assert!(seconds.parse::<f64>().expect("a number") > 0.0, "{said}");
        }
    }
}

#[test]
fn the_bloated_program_finds_its_memory_unchanged() {
    let (success, answers) = run("bloated --mib 4 --used-pages 100", &["verify"]);
    assert!(success);
    assert_eq!(answers, ["0"]);
}

#[test]
fn an_unknown_command_ends_the_demo_programs() {
    for words in ["reader --mib 2 --hot-mib 1 --hot-percent 50", "bloated --mib 2 --used-pages 1"] {
        assert!(!run(words, &["jump"]).0);
    }
}

#[test]
fn without_privileges_the_demo_says_why_and_exits_with_3() {
    /// A user without privileges.
    const UNPRIVILEGED: u32 = 65534;
    let folder = tempfile::tempdir().expect("a temporary folder");
    // Other users may have no access to the build folder.
    let program = folder.path().join("hawkeye");
    std::fs::copy(env!("CARGO_BIN_EXE_hawkeye"), &program).expect("the program can be copied");
    let open = |path: &Path| std::fs::set_permissions(path, Permissions::from_mode(0o755));
    open(folder.path()).and_then(|()| open(&program)).expect("permissions can be set");
    let mut demo = Command::new(&program);
    demo.arg("demo").env_remove("HAWKEYE_STATE_DIR").current_dir("/");
    if nix::unistd::geteuid().is_root() {
        demo.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
    }
    let ended = demo.output().expect("the program runs");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(3), "{said}");
    assert_eq!(said.matches("ermission denied").count(), 1, "{said}");
    assert!(said.contains("hawkeye doctor"), "{said}");
}
