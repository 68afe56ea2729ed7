//! A torture test by another program: `stress-ng` verifies its memory while the daemon promotes and
//! recovers as fast as it can.

use crate::common::{
    StartedProcess, TestMachine, from_environment, machine, or_skip, signal, time_limit_factor,
    until,
};
use crate::daemon::RunningDaemon;
use hawkeye_live_test_support::ksm::KsmGuard;
use hawkeye_test_support::this_test;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Length in seconds, unless `HAWKEYE_STRESS_SECONDS` sets it.
const SECONDS: u64 = 30;
/// Promotion and recovery take turns of this length.
const TURN: Duration = Duration::from_secs(3);
/// One turn of this many is recovery's.
const TURNS: u32 = 4;
/// How much the daemon's memory may grow after it has warmed up. Its journal and its profiles have
/// limits.
const GROWTH_BYTES: u64 = 24 << 20;
/// A few megabytes each, so that many are managed at the same time.
const STRESSORS: &str = "--vm 2 --vm-bytes 192M --vm-keep --madvise 1 --userfaultfd 1 --fork 1 --mremap 1 \
     --mremap-bytes 32M --mlock 1 --mmap 1 --mmap-bytes 64M --msync 1 --vm-rw 1 --vm-rw-bytes 32M";

/// The daemon's configuration; `high` is the share of memory in use at which recovery starts.
fn config(high: u32) -> String {
    let low = high - 1;
    format!(
        r#"
policy = "hawkeye-g"
[sampling]
period = "100 ms"
window = "10 ms"
newest_weight = 1
slowdown_percent = 100
cpu_share_percent = 100
[limits]
cpu_percent = 100
[memory]
high_percent = {high}
low_percent = {low}
pressure_limit_percent = 100
bloat_pages = 1
[selection]
unmatched = "exclude"
look_every = "1 s"
min_resident = "2 MiB"
[[rule]]
name = "stress-ng"
match.command = "stress-ng*"
action = "include"
"#
    )
}

#[test]
fn stress_ng_finds_no_error_and_the_daemon_leaks_nothing() {
    let test = this_test!();
    let machine = or_skip!(machine(test));
    if !has_stress_ng() {
        test.skip("stress-ng is not installed");
        return;
    }
    let seconds = from_environment("HAWKEYE_STRESS_SECONDS", SECONDS);
    let mut log = KernelLog::from_now();
    let daemon = RunningDaemon::start_by(&machine, &config(85));
    let idle = HeldResources::by(daemon.pid());
    let begun = Instant::now();
    let ksm = KsmGuard::start();
    let mut most_merged = 0;
    let mut stress = StressNg::start(&machine, seconds);
    let warm_after = Duration::from_secs(seconds / 3).min(Duration::from_secs(600));
    let (mut warm, mut turns, mut turn) = (None, 0, Instant::now());
    let code = loop {
        if let Some(status) = stress.0.try_wait().expect("the child can be waited for") {
            break status.code();
        }
        let at_most = Duration::from_secs(seconds) + Duration::from_secs(120) * time_limit_factor();
        assert!(begun.elapsed() < at_most, "stress-ng does not end");
        if warm.is_none() && begun.elapsed() >= warm_after {
            warm = Some(HeldResources::by(daemon.pid()));
        }
        if turn.elapsed() >= TURN {
            (turns, turn) = (turns + 1, Instant::now());
            if ksm.is_some() {
                most_merged = most_merged.max(KsmGuard::pages_sharing());
            }
            let takes_back = turns % TURNS == 0;
            reload(&machine, &daemon, if takes_back { 2 } else { 85 });
            // Memory that KSM may merge is left alone while KSM runs, and promoted once it has
            // stopped.
            if ksm.is_some() {
                let run = if turns % 2 == 0 { "1" } else { "0" };
                fs::write(KsmGuard::path("run"), run).expect("KSM can be controlled");
            }
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    let said = fs::read_to_string(machine.state.join("stress-ng.log")).unwrap_or_default();
    assert_eq!(code, Some(0), "stress-ng: {said}");
    for bad in ["fail:", "error:"] {
        assert!(!said.contains(bad), "{said}");
    }

    // The daemon is alive, has acted, and releases what belongs to ended processes.
    reload(&machine, &daemon, 85);
    let status = daemon.status();
    let total = |name: &str| status["totals"][name].as_u64().unwrap_or(0);
    eprintln!("{seconds} s of stress-ng: {}", status["totals"]);
    eprintln!("at most {most_merged} pages were merged");
    assert!(total("samples") > 0 && total("promoted") > 0, "{status}");
    daemon.wait_for_status(Duration::from_secs(30), |status| status["managed"] == 0);
    let warm = warm.expect("stress-ng ran longer than the warm-up");
    // Threads that answered requests end a moment later.
    let settled =
        |end: &HeldResources| end.descriptors <= idle.descriptors && end.threads <= idle.threads;
    until(Duration::from_secs(20), || settled(&HeldResources::by(daemon.pid())));
    let end = HeldResources::by(daemon.pid());
    eprintln!("the daemon held: idle {idle:?}, warm {warm:?}, at the end {end:?}");
    assert!(settled(&end), "{idle:?} {end:?}");
    let most = warm.anonymous_bytes.max(idle.anonymous_bytes) + GROWTH_BYTES;
    assert!(end.anonymous_bytes <= most, "{warm:?} {end:?}");
    daemon.end();
    let splats = log.kernel_errors();
    assert!(splats.is_empty(), "the kernel's log: {splats:#?}");
}

fn has_stress_ng() -> bool {
    let found = Command::new("stress-ng").arg("--version").output();
    found.is_ok_and(|output| output.status.success())
}

fn reload(machine: &TestMachine, daemon: &RunningDaemon<'_>, high: u32) {
    fs::write(machine.state.join("hawkeye.toml"), config(high)).expect("the file can be written");
    signal(daemon.pid(), libc::SIGHUP);
}

struct StressNg(StartedProcess);

impl StressNg {
    fn start(machine: &TestMachine, seconds: u64) -> Self {
        let log = File::create(machine.state.join("stress-ng.log")).expect("a file");
        let words = format!("{STRESSORS} --verify --oomable --timeout {seconds}s");
        let mut command = Command::new("stress-ng");
        // SAFETY: prctl is async-signal-safe, and these arguments are no pointers.
        unsafe {
            command.pre_exec(|| {
                // KSM may merge all its memory. Kernels before 6.4 can't do that; there KSM merges
                // only what it advises itself.
                libc::prctl(libc::PR_SET_MEMORY_MERGE, 1, 0, 0, 0);
                Ok(())
            });
        }
        command.args(words.split_whitespace());
        command.arg("--temp-path").arg(&machine.state);
        command.stdin(Stdio::null()).stderr(log.try_clone().expect("a descriptor"));
        Self(StartedProcess(command.stdout(log).spawn().expect("stress-ng starts")))
    }
}

impl Drop for StressNg {
    fn drop(&mut self) {
        // On SIGINT it ends its stressors itself.
        if self.0.try_wait().is_ok_and(|status| status.is_none()) {
            signal(self.0.id(), libc::SIGINT);
            let child = &mut self.0;
            let ends = || child.try_wait().is_ok_and(|status| status.is_some());
            until(Duration::from_secs(20), ends);
        }
    }
}

#[derive(Debug)]
struct HeldResources {
    descriptors: usize,
    threads: u64,
    anonymous_bytes: u64,
}

impl HeldResources {
    fn by(pid: u32) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process exists");
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let word = line.and_then(|rest| rest.split_whitespace().next());
            let number = word.and_then(|word| word.parse::<u64>().ok());
            number.expect("a number")
        };
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd"));
        Self {
            descriptors: descriptors.expect("the process exists").count(),
            threads: number("Threads:"),
            anonymous_bytes: number("RssAnon:") << 10,
        }
    }
}

struct KernelLog(File);

/// First words of the kernel's reports of its own faults.
const SPLATS: [&str; 9] = [
    "WARNING:",
    "BUG:",
    "BUG ",
    "Oops",
    "kernel BUG",
    "general protection fault",
    "Bad page",
    "refcount_t:",
    "blocked for more than",
];

impl KernelLog {
    fn from_now() -> Self {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NONBLOCK);
        let file = options.open("/dev/kmsg");
        let mut file = file.expect("the kernel log can be opened");
        file.seek(SeekFrom::End(0)).expect("the end of the kernel log can be reached");
        Self(file)
    }

    fn kernel_errors(&mut self) -> Vec<String> {
        let mut found = Vec::new();
        let mut record = [0; 8192];
        loop {
            match self.0.read(&mut record) {
                Ok(bytes) => {
                    let text = String::from_utf8_lossy(record.get(..bytes).unwrap_or_default());
                    let line = text.split_once(';').map_or("", |(_, line)| line);
                    if SPLATS.iter().any(|splat| line.contains(splat)) {
                        found.push(line.trim_end().to_owned());
                    }
                }
                // Records that were overwritten before they were read.
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return found,
                Err(error) => panic!("/dev/kmsg: {error}"),
            }
        }
    }
}
