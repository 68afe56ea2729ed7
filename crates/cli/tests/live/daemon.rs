//! `hawkeye daemon`, and the commands that talk to it.

use crate::common::{
    DEADLINE, NOBODY, StartedProcess, TestMachine, WORKLOADS, figure, is_emulated, machine,
    or_skip, signal, started_by, until, wait,
};
use hawkeye_linux::processes::process::rss_bytes;
use hawkeye_test_support::this_test;
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// The only command that the tests' daemons manage; other processes on this machine are left alone.
pub const NAME: &str = "hawkeye-minded";

/// The policy of a daemon that is to promote: on an emulated processor page walks are so cheap that
/// no promotion pays.
pub fn promoting_policy() -> &'static str {
    if is_emulated() { "policy = \"hawkeye-g\"\n" } else { "" }
}

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

pub struct RunningDaemon<'a> {
    machine: &'a TestMachine,
    child: StartedProcess,
}

impl<'a> RunningDaemon<'a> {
    pub fn start(machine: &'a TestMachine, more: &str) -> Self {
        Self::start_by(machine, &format!("{CONFIG}{more}"))
    }

    /// Starts a daemon with this configuration.
    pub fn start_by(machine: &'a TestMachine, text: &str) -> Self {
        Self::start_by_command(machine, text, |daemon| daemon)
    }

    /// The same, with the command that `prepare` makes of the usual one.
    pub fn start_by_command(
        machine: &'a TestMachine,
        text: &str,
        prepare: impl FnOnce(Command) -> Command,
    ) -> Self {
        let config = machine.state.join("hawkeye.toml");
        fs::write(&config, text).expect("the file can be written");
        let usual = machine.hawkeye(&format!("daemon --config {}", config.display()));
        let child = StartedProcess::quietly(&mut prepare(usual));
        let mut daemon = Self { machine, child };
        let ready = until(DEADLINE, || {
            machine.output("status").code == Some(0)
                || daemon.child.try_wait().is_ok_and(|ended| ended.is_some())
        });
        let ended = daemon.child.try_wait().expect("the child can be waited for");
        assert!(ready && ended.is_none(), "the daemon answers");
        daemon
    }

    pub fn json(&self, words: &str) -> Value {
        self.machine.output(&format!("{words} --json")).json()
    }

    pub fn status(&self) -> Value {
        self.json("status")
    }

    /// Waits until the daemon's status meets a condition.
    pub fn wait_for_status(&self, at_most: Duration, is_so: impl Fn(&Value) -> bool) {
        let mut status = Value::Null;
        let in_time = until(at_most, || {
            status = self.status();
            is_so(&status)
        });
        assert!(in_time, "{status}");
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn end(mut self) {
        signal(self.child.id(), libc::SIGTERM);
        assert_eq!(wait(&mut self.child, Duration::from_secs(30)), Some(0));
        assert!(!self.socket().exists(), "the socket is removed");
    }

    fn socket(&self) -> PathBuf {
        self.machine.state.join("hawkeye.sock")
    }
}

pub struct DiscoveredProgram(StartedProcess);

impl DiscoveredProgram {
    pub fn start(machine: &TestMachine) -> Self {
        // A command has the name of the file that it is started from.
        let name = machine.state.join(NAME);
        let _ = std::os::unix::fs::symlink(WORKLOADS, &name);
        // Far more than any TLB holds. Its walks cost many times what a promotion does, whatever
        // method estimates them.
        let words = "workload hot-spot --mib 192 --hot-mib 128 --quiet --seconds 1200";
        let mut program = Command::new(name);
        Self(StartedProcess::quietly(program.args(words.split_whitespace())))
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// An address in the middle of its memory.
    pub fn address(&self) -> u64 {
        let maps =
            fs::read_to_string(format!("/proc/{}/maps", self.pid())).expect("the file can be read");
        let range = |line: &str| {
            let (start, end) = line.split_whitespace().next()?.split_once('-')?;
            let number = |text| u64::from_str_radix(text, 16).ok();
            Some((number(start)?, number(end)?))
        };
        let mut ranges = maps.lines().filter_map(range);
        let memory = ranges.find(|(start, end)| end - start >= 64 << 20);
        let (start, _) = memory.expect("the program has a mapping of 64 MiB");
        start + (32 << 20)
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}

fn scrape(port: u16) -> String {
    let mut stream =
        TcpStream::connect(("127.0.0.1", port)).expect("the daemon accepts the connection");
    let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(request).expect("the request can be sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn the_daemon_finds_and_promotes_a_process_and_explains_why() {
    let machine = or_skip!(machine(this_test!()));
    let program = DiscoveredProgram::start(&machine);
    let policy = promoting_policy();
    let daemon = RunningDaemon::start_by(&machine, &format!("{policy}{CONFIG}"));
    daemon.wait_for_status(DEADLINE, |it| figure(&it["totals"], "promoted") > 0);
    let status = daemon.status();
    assert_eq!(status["managed"], 1, "{status}");
    assert_eq!(status["processes"][0]["pid"], program.pid());
    assert_eq!(status["processes"][0]["name"], NAME);

    let why = daemon.json(&format!("why {}", program.pid()));
    assert!(why["sample"]["regions"].as_u64() > Some(16), "{why}");
    assert!(why["latest"][0]["text"].to_string().contains("promoted"));
    // The mappings are listed by a call with a short time limit.
    let nowhere = || daemon.json(&format!("why {} 4096", program.pid()));
    assert!(until(DEADLINE, || nowhere()["state"]["state"] == "excluded"), "{}", nowhere());
    let other = machine.output(&format!("why {}", std::process::id()));
    assert_eq!(other.code, Some(1));
    assert!(other.out.contains("matches no rule"), "{other:?}");
    daemon.end();
}

#[test]
fn only_root_may_pause_and_other_users_may_read() {
    let machine = or_skip!(machine(this_test!()));
    let program = DiscoveredProgram::start(&machine);
    let daemon = RunningDaemon::start(&machine, "");
    daemon.wait_for_status(DEADLINE, |status| status["managed"] == 1);
    assert_eq!(daemon.json("pause")["changed"], true);
    assert_eq!(daemon.json("pause")["changed"], false);
    assert_eq!(daemon.status()["paused"], true);

    machine.output_as(NOBODY, "status").assert_success();
    let said = machine.output_as(NOBODY, &format!("why {}", program.pid())).out;
    assert!(said.contains("is paused") && !said.contains("0x"), "{said}");
    for words in ["resume".to_owned(), format!("why {} {:#x}", program.pid(), program.address())] {
        let refused = machine.output_as(NOBODY, &words);
        refused.assert_refused(1, "only root");
    }
    assert_eq!(daemon.status()["paused"], true);
    assert_eq!(daemon.json("resume")["changed"], true);
    daemon.end();
}

#[test]
fn metrics_and_journal_follow_the_configuration_and_a_full_disk_stops_nothing() {
    let machine = or_skip!(machine(this_test!()));
    let port = free_port();
    let recording = machine.state.join("recording");
    let more = format!(
        "[metrics]\nlisten = \"127.0.0.1:{port}\"\n[recording]\nfolder = {recording:?}\n[journal]\nfile = \"/dev/full\"\n"
    );
    let config = machine.state.join("hawkeye.toml");
    let daemon = RunningDaemon::start(&machine, &more);
    daemon.json("pause");
    daemon.wait_for_status(DEADLINE, |it| figure(&it["journal"], "lost_entries") > 0);
    assert!(daemon.status()["journal"]["trouble"].is_string());

    let text = scrape(port);
    assert!(text.contains("\nhawkeye_paused 1.0\n"), "{text}");

    // The new path has room, after the next reload of the configuration.
    let journal = machine.state.join("journal.jsonl");
    let more = more.replace("/dev/full", &journal.display().to_string());
    fs::write(&config, format!("{CONFIG}{more}")).expect("the file can be written");
    signal(daemon.child.id(), libc::SIGHUP);
    let written = || fs::read_to_string(&journal).unwrap_or_default();
    assert!(until(DEADLINE, || written().contains("\"reloaded\"")));
    assert_eq!(daemon.status()["paused"], true, "the pause outlasts a reload");

    fs::write(&config, "policy = 7").expect("the file can be written");
    signal(daemon.child.id(), libc::SIGHUP);
    let refused = || written().contains("\"refused\":\"");
    assert!(until(DEADLINE, refused), "{}", written());
    let answers = daemon.status()["uptime_s"].is_number();
    assert!(answers, "the daemon still answers");
    daemon.end();

    let words = format!("report --json {}", recording.display());
    let recorded = machine.output(&words).json();
    let kinds = recorded["decisions"]["kinds"].as_array().expect("kinds");
    let told = |event: &str| kinds.iter().any(|kind| kind["event"] == event);
    assert!(told("paused") && told("reloaded"), "{recorded}");
    let times = recorded["machine"]["used_bytes"]["at_s"].as_array();
    assert!(!times.expect("times").is_empty());
}

#[test]
fn a_missing_daemon_is_reported_and_a_stale_socket_is_replaced() {
    let machine = or_skip!(machine(this_test!()));
    for words in ["status", "why 1", "pause", "resume --json", "top --once", "top --json"] {
        machine.output(words).assert_refused(1, "no daemon runs");
    }
    let mut killed = RunningDaemon::start(&machine, "");
    signal(killed.child.id(), libc::SIGKILL);
    let _ = killed.child.wait();
    assert!(killed.socket().exists());
    machine.output("status").assert_refused(1, "no daemon runs");
    let daemon = RunningDaemon::start(&machine, "");
    let second = machine.output("daemon");
    second.assert_refused(1, "already managed by");
    daemon.end();
}

#[test]
fn a_rule_can_prefault_a_program_at_its_start() {
    let machine = or_skip!(machine(this_test!()));
    let more = "warm = \"256 MiB\"\n[fault_ahead]\nmode = \"on\"\n";
    let daemon = RunningDaemon::start(&machine, more);
    let program = machine.state.join(NAME);
    fs::copy(WORKLOADS, &program).expect("the file can be copied");
    let mut command = Command::new(&program);
    let words = "workload touch --mib 64 --mapped-mib 512 --pages huge";
    command.args(words.split_whitespace());
    let (touch, ready) = started_by(command);
    // The program touches nothing, so it is not large: the daemon saw only its start.
    let resident = || rss_bytes(ready.pid).unwrap_or_default();
    let warm = until(DEADLINE, || resident() >= 256 << 20);
    assert!(warm, "{} bytes", resident());
    // Some of these regions belong to the program's own code.
    daemon.wait_for_status(DEADLINE, |it| it["fill"]["filled"].as_u64() >= Some(128));
    let left_alone = touch.close_input_and_wait().expect("the workload ends");
    assert!(left_alone.success());
    daemon.end();
}
