//! `hawkeye daemon`, and the commands that talk to it.

use crate::common::{
    DEADLINE, HAWKEYE, Machine, WORKLOADS, machine, patience, signal, until, wait,
};
use hawkeye_test_support::this_test;
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The one command that the tests' daemons may manage: others on this machine are left alone.
pub const NAME: &str = "hawkeye-minded";

pub const CONFIG: &str = r#"
[sampling]
period = "1 s"
window = "50 ms"
[limits]
cpu_percent = 100
[selection]
unmatched = "exclude"
look_every = "1 s"
min_resident = "16 MiB"
[[rule]]
name = "the test's"
match.command = "hawkeye-minded"
action = "include"
"#;

/// A daemon at work; killed when dropped.
pub struct Daemon<'a> {
    machine: &'a Machine,
    child: Child,
}

impl<'a> Daemon<'a> {
    pub fn start(machine: &'a Machine, more: &str) -> Self {
        Self::start_by(machine, &format!("{CONFIG}{more}"))
    }

    /// With `first` above all tables of its configuration, and `more` below them.
    fn start_with(machine: &'a Machine, first: &str, more: &str) -> Self {
        Self::start_by(machine, &format!("{first}{CONFIG}{more}"))
    }

    /// By a configuration of its own.
    pub fn start_by(machine: &'a Machine, text: &str) -> Self {
        Self::start_by_command(machine, text, |daemon| daemon)
    }

    /// The same, started by the command that `prepare` makes of the usual one.
    pub fn start_by_command(
        machine: &'a Machine,
        text: &str,
        prepare: impl FnOnce(Command) -> Command,
    ) -> Self {
        let config = machine.state.join("hawkeye.toml");
        fs::write(&config, text).expect("writes");
        let usual = machine.hawkeye(&format!("daemon --config {}", config.display()));
        let child = prepare(usual)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("hawkeye starts");
        let mut daemon = Self { machine, child };
        let ready = until(DEADLINE, || {
            machine.output("status").status.success()
                || daemon.child.try_wait().is_ok_and(|ended| ended.is_some())
        });
        let ended = daemon.child.try_wait().expect("it is our child");
        assert!(ready && ended.is_none(), "the daemon answers");
        daemon
    }

    pub fn json(&self, words: &str) -> Value {
        let output = self.machine.output(&format!("{words} --json"));
        let said = String::from_utf8_lossy(&output.stderr);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no JSON but {said}"))
    }

    pub fn status(&self) -> Value {
        self.json("status")
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn end(mut self) {
        signal(self.child.id(), libc::SIGTERM);
        assert_eq!(wait(&mut self.child, Duration::from_secs(30)), Some(0));
        assert!(!self.socket().exists(), "the socket is gone with it");
    }

    fn socket(&self) -> PathBuf {
        self.machine.state.join("hawkeye.sock")
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A program that the daemon is to find by itself.
pub struct Minded(Child);

impl Minded {
    pub fn start(machine: &Machine) -> Self {
        // A command is called what it is started as.
        let name = machine.state.join(NAME);
        let _ = std::os::unix::fs::symlink(WORKLOADS, &name);
        // Far more than any TLB holds: its walks cost what promoting takes many times over, however they are estimated.
        let words = "workload hot-spot --mib 192 --hot-mib 128 --quiet --seconds 1200";
        let child = Command::new(name)
            .args(words.split_whitespace())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("the workload starts");
        Self(child)
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// An address in the middle of its memory.
    pub fn address(&self) -> u64 {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid())).expect("reads");
        let range = |line: &str| {
            let (start, end) = line.split_whitespace().next()?.split_once('-')?;
            let number = |text| u64::from_str_radix(text, 16).ok();
            Some((number(start)?, number(end)?))
        };
        maps.lines()
            .filter_map(range)
            .find(|(start, end)| end - start >= 64 << 20)
            .map(|(start, _)| start + (32 << 20))
            .expect("its memory")
    }
}

impl Drop for Minded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_daemon_finds_a_process_promotes_it_and_says_why() {
    let Some(machine) = machine(this_test!()) else {
        return;
    };
    let program = Minded::start(&machine);
    // What page walks cost an emulated processor pays for no promotion.
    let by_coverage = "policy = \"hawkeye-g\"\n";
    let policy = if patience() > 1 { by_coverage } else { "" };
    let daemon = Daemon::start_with(&machine, policy, "");
    let promoted = || daemon.status()["totals"]["promoted"].as_u64().unwrap_or(0);
    assert!(until(DEADLINE, || promoted() > 0));
    let status = daemon.status();
    assert_eq!(status["managed"], 1, "{status}");
    assert_eq!(status["processes"][0]["pid"], program.pid());
    assert_eq!(status["processes"][0]["name"], NAME);

    let why = daemon.json(&format!("why {}", program.pid()));
    assert!(why["sample"]["regions"].as_u64() > Some(16), "{why}");
    assert!(why["latest"][0]["text"].to_string().contains("promoted"));
    let region = daemon.json(&format!("why {} {:#x}", program.pid(), program.address()));
    assert!(region["state"]["state"].is_string(), "{region}");
    let nowhere = daemon.json(&format!("why {} 4096", program.pid()));
    assert_eq!(nowhere["state"]["state"], "excluded", "{nowhere}");
    let other = machine.output(&format!("why {}", std::process::id()));
    let said = String::from_utf8_lossy(&other.stdout).into_owned();
    assert_eq!(other.status.code(), Some(1));
    assert!(said.contains("falls under no rule"), "{said}");
    daemon.end();
}

#[test]
fn root_pauses_and_others_only_read() {
    let Some(machine) = machine(this_test!()) else {
        return;
    };
    let program = Minded::start(&machine);
    let daemon = Daemon::start(&machine, "");
    assert!(until(DEADLINE, || daemon.status()["managed"] == 1));
    assert_eq!(daemon.json("pause")["changed"], true);
    assert_eq!(daemon.json("pause")["changed"], false);
    assert_eq!(daemon.status()["paused"], true);

    let copy = machine.state.join("hawkeye");
    fs::copy(HAWKEYE, &copy).expect("copies");
    let as_other = |words: &str| {
        Command::new(&copy)
            .args(words.split_whitespace())
            .env("HAWKEYE_STATE_DIR", &machine.state)
            .uid(65534)
            .gid(65534)
            .output()
            .expect("starts")
    };
    assert!(as_other("status").status.success());
    let why = as_other(&format!("why {}", program.pid()));
    let said = String::from_utf8_lossy(&why.stdout).into_owned();
    assert!(said.contains("is paused") && !said.contains("0x"), "{said}");
    for words in [
        "resume".to_owned(),
        format!("why {} {:#x}", program.pid(), program.address()),
    ] {
        let refused = as_other(&words);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(1));
        assert!(said.contains("only root"), "{said}");
    }
    assert_eq!(daemon.status()["paused"], true);
    assert_eq!(daemon.json("resume")["changed"], true);
    daemon.end();
}

#[test]
fn clients_that_stall_or_send_garbage_hold_nobody_up() {
    let Some(machine) = machine(this_test!()) else {
        return;
    };
    let daemon = Daemon::start(&machine, "");
    let connect = || UnixStream::connect(daemon.socket()).expect("connects");
    let silent: Vec<_> = (0..4).map(|_| connect()).collect();
    let mut endless = connect();
    // It is dropped in the middle.
    let _ = endless.write_all(&vec![b'x'; 8 << 20]);
    let mut garbage = connect();
    garbage.write_all(b"\xff\x00{]\n").expect("writes");
    let mut answer = String::new();
    garbage.read_to_string(&mut answer).expect("an answer");
    assert!(answer.contains("refused"), "{answer}");
    assert!(daemon.status()["uptime_s"].as_f64() > Some(0.0));
    drop(silent);
    daemon.end();
}

#[test]
fn metrics_and_journal_go_where_the_configuration_says_and_a_full_disk_stops_nothing() {
    let Some(machine) = machine(this_test!()) else {
        return;
    };
    // The port is free, or the daemon would not start.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("an address")
        .port();
    let recording = machine.state.join("recording");
    let more = format!(
        "[metrics]\nlisten = \"127.0.0.1:{port}\"\n[recording]\nfolder = {recording:?}\n[journal]\nfile = \"/dev/full\"\n"
    );
    let config = machine.state.join("hawkeye.toml");
    let daemon = Daemon::start(&machine, &more);
    daemon.json("pause");
    let lost = || {
        daemon.status()["journal"]["lost_entries"]
            .as_u64()
            .unwrap_or(0)
    };
    assert!(until(DEADLINE, || lost() > 0));
    assert!(daemon.status()["journal"]["trouble"].is_string());

    let mut scrape = std::net::TcpStream::connect(("127.0.0.1", port)).expect("connects");
    scrape
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .expect("asks");
    let mut text = String::new();
    scrape.read_to_string(&mut text).expect("an answer");
    assert!(text.contains("\nhawkeye_paused 1.0\n"), "{text}");

    // Elsewhere there is room, from the next reading of the configuration on.
    let journal = machine.state.join("journal.jsonl");
    let more = more.replace("/dev/full", &journal.display().to_string());
    fs::write(&config, format!("{CONFIG}{more}")).expect("writes");
    signal(daemon.child.id(), libc::SIGHUP);
    let written = || fs::read_to_string(&journal).unwrap_or_default();
    assert!(until(DEADLINE, || written().contains("\"reloaded\"")));
    assert_eq!(daemon.status()["paused"], true, "a pause outlives it");

    fs::write(&config, "policy = 7").expect("writes");
    signal(daemon.child.id(), libc::SIGHUP);
    let refused = || written().contains("\"refused\":\"");
    assert!(until(DEADLINE, refused), "{}", written());
    assert!(
        daemon.status()["uptime_s"].is_number(),
        "it goes on as before"
    );
    daemon.end();

    let output = machine.output(&format!("report --json {}", recording.display()));
    let recorded: Value = serde_json::from_slice(&output.stdout).expect("a report");
    let kinds = recorded["decisions"]["kinds"].as_array().expect("kinds");
    let told = |event: &str| kinds.iter().any(|kind| kind["event"] == event);
    assert!(told("paused") && told("reloaded"), "{recorded}");
    assert!(
        !recorded["machine"]["used_bytes"]["at_s"]
            .as_array()
            .expect("times")
            .is_empty()
    );
}

#[test]
fn without_a_daemon_that_is_said_and_a_killed_ones_socket_is_no_obstacle() {
    let Some(machine) = machine(this_test!()) else {
        return;
    };
    for words in [
        "status",
        "why 1",
        "pause",
        "resume --json",
        "top --once",
        "top --json",
    ] {
        let output = machine.output(words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("no daemon runs"), "{said}");
    }
    let mut killed = Daemon::start(&machine, "");
    signal(killed.child.id(), libc::SIGKILL);
    let _ = killed.child.wait();
    assert!(killed.socket().exists());
    let said = machine.output("status").stderr;
    assert!(String::from_utf8_lossy(&said).contains("no daemon runs"));
    let daemon = Daemon::start(&machine, "");
    let second = machine.output("daemon");
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(1));
    assert!(said.contains("already managed by"), "{said}");
    daemon.end();
}

#[test]
fn a_program_is_warm_from_its_start_where_a_rule_says_so() {
    let Some(machine) = machine(this_test!()) else {
        return;
    };
    let more = "warm = \"256 MiB\"\n[fault_ahead]\nmode = \"on\"\n";
    let daemon = Daemon::start(&machine, more);
    let program = machine.state.join(NAME);
    fs::copy(WORKLOADS, &program).expect("copies");
    let mut command = Command::new(&program);
    command.args([
        "workload",
        "touch",
        "--mib",
        "64",
        "--mapped-mib",
        "512",
        "--pages",
        "huge",
    ]);
    let mut touch = hawkeye_workload::Workload::spawn_command(command).expect("starts");
    let ready = touch.wait_ready().expect("is ready");
    // It touches nothing, so it is not large: only its start was seen.
    let resident = || hawkeye_linux::processes::process::rss_bytes(ready.pid).unwrap_or_default();
    assert!(
        until(DEADLINE, || resident() >= 256 << 20),
        "{} bytes",
        resident()
    );
    // Of these, the program's own code is not.
    let filled = || daemon.status()["fill"]["filled"].as_u64();
    assert!(
        until(DEADLINE, || filled() >= Some(128)),
        "{:?} regions",
        filled()
    );
    let left_alone = touch.finish().expect("ends");
    assert!(left_alone.success());
    daemon.end();
}
