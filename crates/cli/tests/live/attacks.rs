//! What an unprivileged user can do to a daemon, tried as such a user.

use crate::common::{HAWKEYE, Machine, machine, signal, until};
use crate::daemon::{CONFIG, Daemon, Minded, NAME};
use hawkeye_test_support::this_test;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

const NOBODY: u32 = 65_534;
/// A third user, beside root and the attacker.
const OTHER: u32 = 65_533;
/// A user that no file knows: its name is asked of the name service.
const UNNAMED: u32 = 3_999_999_000;
/// The longest wait for something that takes seconds. What is blocked takes longer.
const SOON: Duration = Duration::from_secs(30);

/// Compiles a C program or library of the tests, readable for every user.
fn compile(machine: &Machine, source: &str, name: &str, options: &[&str]) -> PathBuf {
    let folder = machine.state.join("compiled");
    fs::create_dir_all(&folder).expect("a folder");
    let c = folder.join(format!("{name}.c"));
    fs::write(&c, source).expect("writes");
    let made = folder.join(name);
    let status = Command::new("cc")
        .args(["-O1", "-Wall", "-o"])
        .arg(&made)
        .args(options)
        .arg(&c)
        .status();
    assert!(status.expect("cc starts").success(), "{name} compiles");
    made
}

/// The helper, under the name of the programs that the tests' daemons manage.
fn helper(machine: &Machine) -> PathBuf {
    compile(machine, include_str!("attacks/helper.c"), NAME, &[])
}

/// A helper at work; killed when dropped.
struct Helper {
    child: Child,
    /// What it said when it was ready.
    said: u64,
    /// It may say more.
    _out: BufReader<ChildStdout>,
}

impl Helper {
    fn start(program: &Path, words: &str, user: u32) -> Self {
        let mut command = Command::new(program);
        command.args(words.split_whitespace()).uid(user).gid(user);
        Self::start_command(command)
    }

    fn start_command(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the helper starts");
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().expect("is piped"));
        out.read_line(&mut line).expect("reads");
        let said = line.trim().parse().expect("the helper is ready");
        Self {
            child,
            said,
            _out: out,
        }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether the daemon manages a process.
fn manages(daemon: &Daemon<'_>, pid: u32) -> bool {
    let status = daemon.status();
    let processes = status["processes"].as_array();
    let mut processes = processes.into_iter().flatten();
    processes.any(|process| process["pid"] == pid)
}

/// Runs a copy of the program that every user may execute.
fn hawkeye_as(machine: &Machine, user: u32, words: &str) -> Output {
    let copy = machine.state.join("hawkeye");
    if !copy.exists() {
        fs::copy(HAWKEYE, &copy).expect("copies");
    }
    Command::new(&copy)
        .args(words.split_whitespace())
        .env("HAWKEYE_STATE_DIR", &machine.state)
        .uid(user)
        .gid(user)
        .output()
        .expect("starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The tests' configuration with this many slots.
fn with_slots(slots: usize) -> String {
    CONFIG.replace(
        "unmatched =",
        &format!("max_processes = {slots}\nunmatched ="),
    )
}

#[test]
fn idle_forks_of_one_process_take_one_slot() {
    let Some(machine) = machine(this_test!()) else {
        return;
    };
    let attacker = Helper::start(&helper(&machine), "forks 64 30", NOBODY);
    let daemon = Daemon::start_by(&machine, &with_slots(8));
    assert!(until(SOON, || manages(&daemon, attacker.pid())));
    let database = Minded::start(&machine);
    assert!(
        until(SOON, || manages(&daemon, database.pid())),
        "{}",
        daemon.status()
    );
    assert_eq!(daemon.status()["managed"], 2, "{}", daemon.status());
    daemon.end();
}

#[test]
fn a_user_that_has_filled_all_slots_loses_one_to_a_larger_process_of_another() {
    let Some(machine) = machine(this_test!()) else {
        return;
    };
    let attacker = Helper::start(&helper(&machine), "apart 32 12", NOBODY);
    let daemon = Daemon::start_by(&machine, &with_slots(6));
    let full = || daemon.status()["managed"] == 6;
    assert!(until(SOON, full), "{}", daemon.status());
    let database = Minded::start(&machine);
    assert!(
        until(SOON, || manages(&daemon, database.pid())),
        "{}",
        daemon.status()
    );
    assert!(full(), "{}", daemon.status());
    let family = hawkeye_linux::processes::process::family(attacker.pid());
    let mut family: BTreeSet<u32> = family.collect();
    family.remove(&attacker.pid());
    assert_eq!(family.len(), 12);
    let waits = |pid: &u32| {
        let why = text(&machine.output(&format!("why {pid}")).stdout);
        why.contains("has no slot")
    };
    assert_eq!(family.iter().filter(|pid| waits(pid)).count(), 7);
    daemon.end();
}

#[test]
fn idle_connections_to_the_metrics_port_keep_no_scraper_out() {
    let Some(machine) = machine(this_test!()) else {
        return;
    };
    let port = TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("an address")
        .port();
    let metrics = format!("[metrics]\nlisten = \"127.0.0.1:{port}\"\n");
    let daemon = Daemon::start(&machine, &metrics);
    let attacker = Helper::start(&helper(&machine), &format!("tcp {port} 64"), NOBODY);
    assert_eq!(attacker.said, 64);
    let mut scrape = TcpStream::connect(("127.0.0.1", port)).expect("connects");
    scrape
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .expect("asks");
    let mut answer = String::new();
    scrape.read_to_string(&mut answer).expect("an answer");
    assert!(answer.contains("\nhawkeye_paused 0"), "{answer}");
    daemon.end();
}

#[test]
fn idle_connections_to_the_socket_keep_no_other_user_out() {
    let Some(machine) = machine(this_test!()) else {
        return;
    };
    let daemon = Daemon::start(&machine, "");
    let socket = machine.state.join("hawkeye.sock");
    let words = format!("unix {} 64", socket.display());
    let attacker = Helper::start(&helper(&machine), &words, NOBODY);
    assert_eq!(attacker.said, 64);
    for user in [OTHER, 0] {
        let asked = hawkeye_as(&machine, user, "status");
        assert!(asked.status.success(), "{user}: {}", text(&asked.stderr));
    }
    daemon.end();
}

/// Asks as an unprivileged user about an address of a process; whether that was allowed.
fn user_may_ask(machine: &Machine, daemon: &Daemon<'_>, pid: u32, address: u64) -> bool {
    assert!(until(SOON, || manages(daemon, pid)), "{}", daemon.status());
    let answer = hawkeye_as(machine, NOBODY, &format!("why {pid} {address:#x}"));
    let said = text(&answer.stdout) + &text(&answer.stderr);
    let refused = said.contains("only root and its owner");
    assert_eq!(answer.status.success(), !refused, "{said}");
    assert_eq!(said.contains("Region 0x"), !refused, "{said}");
    // The kernel itself is the judge.
    let reads = Command::new("cat")
        .arg(format!("/proc/{pid}/maps"))
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .expect("cat starts");
    assert_eq!(reads.status.success(), !refused, "{said}");
    !refused
}

#[test]
fn addresses_are_told_to_those_who_may_read_the_maps_of_the_process() {
    let Some(machine) = machine(this_test!()) else {
        return;
    };
    let program = helper(&machine);
    let daemon = Daemon::start(&machine, "");
    let asked = |helper: &Helper| user_may_ask(&machine, &daemon, helper.pid(), helper.said);

    assert!(
        asked(&Helper::start(&program, "hold 32", NOBODY)),
        "its own"
    );
    assert!(!asked(&Helper::start(&program, "hold 32", OTHER)));
    assert!(!asked(&Helper::start(&program, "hold 32 nodump", NOBODY)));
    // Root's until a moment ago, and able to become it again.
    assert!(!asked(&Helper::start(&program, "hold 32 drop", 0)));
    assert!(!asked(&Helper::start(&program, "hold 32 seteuid", 0)));

    let mut of_another_group = Command::new(&program);
    of_another_group.args(["hold", "32"]).uid(NOBODY).gid(OTHER);
    assert!(!asked(&Helper::start_command(of_another_group)));
    daemon.end();
}

#[test]
fn a_managed_process_that_becomes_an_excluded_program_is_let_go() {
    let Some(machine) = machine(this_test!()) else {
        return;
    };
    let program = helper(&machine);
    let excluded = machine.state.join("hawkeye-other");
    fs::copy(&program, &excluded).expect("copies");
    let daemon = Daemon::start(&machine, "");
    let words = format!("become 64 {}", excluded.display());
    let process = Helper::start(&program, &words, NOBODY);
    assert!(until(SOON, || manages(&daemon, process.pid())));
    signal(process.pid(), libc::SIGUSR1);
    // A verdict of before would hold for a minute.
    assert!(
        until(SOON, || !manages(&daemon, process.pid())),
        "{}",
        daemon.status()
    );
    let resident = hawkeye_linux::processes::process::rss_bytes(process.pid());
    assert!(resident.is_ok_and(|bytes| bytes >= 64 << 20), "it is there");
    daemon.end();
}

/// A daemon with a name service that never answers.
fn start_without_names<'a>(machine: &'a Machine, config: &str) -> Daemon<'a> {
    let name = "libnss_silent.so.2";
    let source = include_str!("attacks/nss_silent.c");
    compile(machine, source, name, &["-shared", "-fPIC", "-xc"]);
    let services = machine.state.join("nsswitch.conf");
    fs::write(&services, "passwd: files silent\ngroup: files\n").expect("writes");
    Daemon::start_by_command(machine, config, |daemon| {
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
    let Some(machine) = machine(test) else {
        return;
    };
    if !Path::new("/etc/nsswitch.conf").exists() {
        test.skip("there is no /etc/nsswitch.conf to replace");
        return;
    }
    // Whether this user is excluded depends on its name.
    let by_name =
        "[[rule]]\nname = \"by name\"\nmatch.user = \"operator\"\naction = \"exclude\"\n[[rule]]";
    let config = CONFIG.replacen("[[rule]]", by_name, 1);
    let config = format!("policy = \"hawkeye-g\"\n{config}");
    let stranger = Helper::start(&helper(&machine), "hold 64", UNNAMED);
    let daemon = start_without_names(&machine, &config);

    let why = || text(&machine.output(&format!("why {}", stranger.pid())).stdout);
    let answer = why().split_whitespace().collect::<Vec<_>>().join(" ");
    let expected = format!("the name service tells the name of user {UNNAMED}");
    assert!(answer.contains(&expected), "{answer}");
    assert!(answer.contains("by name"), "{answer}");

    // Management goes on: another program is found and looked at again and again.
    let program = Minded::start(&machine);
    assert!(until(SOON, || manages(&daemon, program.pid())));
    assert!(!manages(&daemon, stranger.pid()));
    let windows = |status: &Value| status["totals"]["samples"].as_u64().unwrap_or(0);
    let before = windows(&daemon.status());
    assert!(
        until(SOON, || windows(&daemon.status()) > before + 1),
        "{}",
        daemon.status()
    );
    daemon.end();
}
