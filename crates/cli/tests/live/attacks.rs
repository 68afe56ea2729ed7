//! Attacks of an unprivileged user on a daemon, run as such a user.

use crate::common::{
    CommandOutput, NOBODY, Spoken, TestMachine, compile, figure, machine, machine_with_compiler,
    or_skip, signal,
};
use crate::daemon::{CONFIG, DiscoveredProgram, NAME, RunningDaemon};
use hawkeye_test_support::this_test;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A third user, besides root and the attacker.
const OTHER: u32 = 65_533;
/// A user without an entry in a file, so that its name is looked up in the name service.
const UNNAMED: u32 = 3_999_999_000;
/// Deadline for something that takes seconds. If it is blocked, it takes longer.
const SOON: Duration = Duration::from_secs(30);

/// The helper, under the name of the programs that the tests' daemons manage.
fn helper(machine: &TestMachine) -> PathBuf {
    compile(machine, include_str!("attacks/helper.c"), NAME, &[])
}

struct AttackHelper(Spoken, u64);

impl AttackHelper {
    fn start(program: &Path, words: &str, user: u32) -> Self {
        let mut command = Command::new(program);
        command.args(words.split_whitespace()).uid(user).gid(user);
        Self::start_command(command)
    }

    fn start_command(mut command: Command) -> Self {
        let (helper, line) = Spoken::start(&mut command);
        let said = line.trim().parse().expect("the helper prints a number");
        Self(helper, said)
    }

    fn pid(&self) -> u32 {
        self.0.child.id()
    }
}

fn manages(status: &Value, pid: u32) -> bool {
    let processes = status["processes"].as_array();
    let mut processes = processes.into_iter().flatten();
    processes.any(|process| process["pid"] == pid)
}

fn with_slots(slots: usize) -> String {
    CONFIG.replace("unmatched =", &format!("max_processes = {slots}\nunmatched ="))
}

#[test]
fn idle_forks_of_one_process_take_one_slot() {
    let machine = or_skip!(machine_with_compiler(this_test!()));
    let attacker = AttackHelper::start(&helper(&machine), "forks 64 30", NOBODY);
    let daemon = RunningDaemon::start_by(&machine, &with_slots(8));
    daemon.wait_for_status(SOON, |status| manages(status, attacker.pid()));
    let database = DiscoveredProgram::start(&machine);
    daemon.wait_for_status(SOON, |status| manages(status, database.pid()));
    assert_eq!(daemon.status()["managed"], 2, "{}", daemon.status());
    daemon.end();
}

#[test]
fn a_user_that_has_filled_all_slots_loses_one_to_a_larger_process_of_another() {
    let machine = or_skip!(machine_with_compiler(this_test!()));
    let attacker = AttackHelper::start(&helper(&machine), "apart 32 12", NOBODY);
    let daemon = RunningDaemon::start_by(&machine, &with_slots(6));
    daemon.wait_for_status(SOON, |status| status["managed"] == 6);
    let database = DiscoveredProgram::start(&machine);
    daemon.wait_for_status(SOON, |status| manages(status, database.pid()));
    assert_eq!(daemon.status()["managed"], 6, "{}", daemon.status());
    let family = hawkeye_linux::processes::process::pids_of_process_and_descendants(attacker.pid());
    let mut family: BTreeSet<u32> = family.collect();
    family.remove(&attacker.pid());
    assert_eq!(family.len(), 12);
    let waits = |pid: &u32| {
        let why = machine.output(&format!("why {pid}"));
        why.out.contains("has no slot")
    };
    assert_eq!(family.iter().filter(|pid| waits(pid)).count(), 7);
    daemon.end();
}

#[test]
fn a_program_that_takes_the_metrics_port_does_not_stop_the_daemon() {
    let machine = or_skip!(machine(this_test!()));
    let squatter = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = squatter.local_addr().expect("it has an address");
    let daemon = RunningDaemon::start(&machine, &format!("[metrics]\nlisten = \"{address}\"\n"));
    let status = daemon.status();
    assert!(status["metrics_error"].to_string().contains("can't listen"), "{status}");
    daemon.end();
}

#[test]
fn idle_connections_to_the_socket_do_not_block_other_users() {
    let machine = or_skip!(machine_with_compiler(this_test!()));
    let daemon = RunningDaemon::start(&machine, "");
    let socket = machine.state.join("hawkeye.sock");
    let words = format!("unix {} 64", socket.display());
    let attacker = AttackHelper::start(&helper(&machine), &words, NOBODY);
    assert_eq!(attacker.1, 64);
    for user in [OTHER, 0] {
        machine.output_as(user, "status").assert_success();
    }
    daemon.end();
}

/// Asks about an address of a process as an unprivileged user. Returns whether that was allowed.
fn user_may_ask(machine: &TestMachine, daemon: &RunningDaemon<'_>, pid: u32, address: u64) -> bool {
    daemon.wait_for_status(SOON, |status| manages(status, pid));
    let answer = machine.output_as(NOBODY, &format!("why {pid} {address:#x}"));
    let refused = answer.err.contains("only root and the process's owner");
    let said = answer.out + &answer.err;
    assert_eq!(answer.code == Some(0), !refused, "{said}");
    assert_eq!(said.contains("Region 0x"), !refused, "{said}");
    // The kernel itself decides.
    let mut cat = Command::new("cat");
    cat.arg(format!("/proc/{pid}/maps")).uid(NOBODY).gid(NOBODY);
    assert_eq!(CommandOutput::of(&mut cat).code == Some(0), !refused, "{said}");
    !refused
}

#[test]
fn addresses_are_shown_only_to_users_that_may_read_the_maps_of_the_process() {
    let machine = or_skip!(machine_with_compiler(this_test!()));
    let program = helper(&machine);
    let daemon = RunningDaemon::start(&machine, "");
    let asked = |helper: &AttackHelper| user_may_ask(&machine, &daemon, helper.pid(), helper.1);

    let own = AttackHelper::start(&program, "hold 32", NOBODY);
    assert!(asked(&own), "its owner may ask");
    assert!(!asked(&AttackHelper::start(&program, "hold 32", OTHER)));
    assert!(!asked(&AttackHelper::start(&program, "hold 32 nodump", NOBODY)));
    // The first was root until a moment ago, and the second can become root again.
    assert!(!asked(&AttackHelper::start(&program, "hold 32 drop", 0)));
    assert!(!asked(&AttackHelper::start(&program, "hold 32 seteuid", 0)));

    let mut of_another_group = Command::new(&program);
    of_another_group.args(["hold", "32"]).uid(NOBODY).gid(OTHER);
    assert!(!asked(&AttackHelper::start_command(of_another_group)));
    daemon.end();
}

#[test]
fn a_managed_process_that_becomes_an_excluded_program_is_no_longer_managed() {
    let machine = or_skip!(machine_with_compiler(this_test!()));
    let program = helper(&machine);
    let excluded = machine.state.join("hawkeye-other");
    fs::copy(&program, &excluded).expect("the file can be copied");
    let daemon = RunningDaemon::start(&machine, "");
    let words = format!("become 64 {}", excluded.display());
    let process = AttackHelper::start(&program, &words, NOBODY);
    daemon.wait_for_status(SOON, |status| manages(status, process.pid()));
    signal(process.pid(), libc::SIGUSR1);
    // An older verdict would hold for a minute.
    daemon.wait_for_status(SOON, |status| !manages(status, process.pid()));
    let resident = hawkeye_linux::processes::process::rss_bytes(process.pid());
    assert!(resident.is_ok_and(|bytes| bytes >= 64 << 20), "the process still runs");
    daemon.end();
}

fn start_without_names<'a>(machine: &'a TestMachine, config: &str) -> RunningDaemon<'a> {
    let name = "libnss_silent.so.2";
    let source = include_str!("attacks/nss_silent.c");
    compile(machine, source, name, &["-shared", "-fPIC", "-xc"]);
    let services = machine.state.join("nsswitch.conf");
    fs::write(&services, "passwd: files silent\ngroup: files\n").expect("the file can be written");
    RunningDaemon::start_by_command(machine, config, |daemon| {
        let mut command = Command::new("unshare");
        let script = "mount --bind \"$0\" /etc/nsswitch.conf && exec \"$@\"";
        command
            .args(["--mount", "--propagation", "private", "sh", "-c", script])
            .arg(&services)
            .arg(daemon.get_program())
            .args(daemon.get_args())
            .env("HAWKEYE_STATE_DIR", &machine.state)
            .env("LD_LIBRARY_PATH", machine.state.join("compiled"));
        command
    })
}

#[test]
fn a_name_service_that_never_answers_stops_neither_answers_nor_management() {
    let test = this_test!();
    let machine = or_skip!(machine_with_compiler(test));
    if !Path::new("/etc/nsswitch.conf").exists() {
        test.skip("there is no /etc/nsswitch.conf to replace");
        return;
    }
    // Whether this user is excluded depends on its name.
    let by_name =
        "[[rule]]\nname = \"by name\"\nmatch.user = \"operator\"\naction = \"exclude\"\n[[rule]]";
    let config = CONFIG.replacen("[[rule]]", by_name, 1);
    let config = format!("policy = \"hawkeye-g\"\n{config}");
    let stranger = AttackHelper::start(&helper(&machine), "hold 64", UNNAMED);
    let daemon = start_without_names(&machine, &config);

    let why = machine.output(&format!("why {}", stranger.pid())).out;
    let answer = why.split_whitespace().collect::<Vec<_>>().join(" ");
    let expected = format!("the name service returns the name of user {UNNAMED}");
    assert!(answer.contains(&expected), "{answer}");
    assert!(answer.contains("by name"), "{answer}");

    // Management goes on: the daemon finds another program and samples it repeatedly.
    let program = DiscoveredProgram::start(&machine);
    daemon.wait_for_status(SOON, |status| manages(status, program.pid()));
    let before = daemon.status();
    assert!(!manages(&before, stranger.pid()));
    let windows = |status: &Value| figure(&status["totals"], "samples");
    daemon.wait_for_status(SOON, |status| windows(status) > windows(&before) + 1);
    daemon.end();
}
