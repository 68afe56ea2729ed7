//! Servers of keys and values, each with a client of ours on a unix socket.

use super::cores::Cores;
use super::{Program, packages};
use crate::error::BenchError;
use hawkeye_workload::{Event, HandleError, Hot, Latencies, Pace, Request, Workload};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How much a server is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// As much as it answers.
    Full,
    /// A few per cent of that.
    Light,
}

impl Load {
    fn pause(self) -> Duration {
        match self {
            Self::Full => Duration::ZERO,
            Self::Light => Duration::from_millis(50),
        }
    }
}

const REDIS_VALUE_BYTES: u64 = 4096;
const MEMCACHED_VALUE_BYTES: u64 = 1024;
/// A client may take so long to say what it has seen.
const ANSWER: Duration = Duration::from_secs(30);
/// How long a server may take to listen.
const START: Duration = Duration::from_secs(10);

/// A server and its client.
pub(super) struct Server {
    // The client goes first: its questions would find nobody.
    client: Workload,
    process: Process,
}

/// Redis with values of 4 KiB. `client` is the command of the workload `ask`.
pub(super) fn redis(client: Command, mib: u64, hot: Hot, load: Load) -> Result<Server, BenchError> {
    packages::need("redis-server", "redis-server")?;
    let socket = Socket::new("redis");
    let mut command = Command::new("redis-server");
    command
        .args(["--port", "0", "--save", "", "--appendonly", "no"])
        // It may be given huge pages, as long as nobody gives them unasked.
        .args(["--disable-thp", "no", "--unixsocket"])
        .arg(&socket.path);
    let pause = load.pause().as_millis().to_string();
    let mut asking = asking(client, "redis", mib, REDIS_VALUE_BYTES, hot);
    asking.args(["--pause-ms", &pause]);
    Server::start(command, socket, asking)
}

/// memcached with values of 1 KiB and one thread.
pub(super) fn memcached(client: Command, mib: u64, hot: Hot) -> Result<Server, BenchError> {
    packages::need("memcached", "memcached")?;
    let socket = Socket::new("memcached");
    let mut command = Command::new("memcached");
    // Twice the memory of the values, so that none is evicted.
    command
        .args(["-u", "root", "-t", "1", "-m", &(2 * mib).to_string(), "-s"])
        .arg(&socket.path);
    let asking = asking(client, "memcached", mib, MEMCACHED_VALUE_BYTES, hot);
    Server::start(command, socket, asking)
}

/// The command of a client that stores and asks for so much.
fn asking(mut client: Command, dialect: &str, mib: u64, value_bytes: u64, hot: Hot) -> Command {
    let keys = ((mib << 20) / value_bytes).to_string();
    let [hot_keys, hot_questions] = hot.words();
    client
        .args(["--dialect", dialect, "--keys", &keys])
        .args(["--value-bytes", &value_bytes.to_string()])
        .args(["--hot-keys-percent", &hot_keys])
        .args(["--hot-questions-percent", &hot_questions]);
    client
}

impl Server {
    fn start(
        mut command: Command,
        socket: Socket,
        mut client: Command,
    ) -> Result<Self, BenchError> {
        let name = command.get_program().to_string_lossy().into_owned();
        in_background(&mut command);
        if let Some(cores) = Cores::divided() {
            cores.server.keep(&mut command);
            cores.client.keep(&mut client);
        }
        let child = command.spawn().map_err(|source| BenchError::Program {
            program: name.clone(),
            source,
        })?;
        let mut process = Process { child, socket };
        process.wait_until_it_listens(&name)?;
        client.arg("--socket").arg(&process.socket.path);
        let mut client = Workload::spawn_command(client)?;
        client.wait_ready()?;
        Ok(Self { client, process })
    }
}

impl Program for Server {
    fn pid(&self) -> u32 {
        self.process.child.id()
    }

    fn go(&mut self) -> Result<(), BenchError> {
        Ok(self.client.command(Request::Go)?)
    }

    fn stop(&mut self) -> Result<(), BenchError> {
        Ok(self.client.command(Request::Stop)?)
    }

    fn rate(&mut self, length: Duration, mark: &mut dyn FnMut()) -> Result<f64, BenchError> {
        Ok(self.client.measure_marked(length, mark)?)
    }

    fn works_in_one_thread(&self) -> bool {
        true
    }

    fn latencies(&mut self, pace: Pace) -> Result<Option<Latencies>, BenchError> {
        let at_most = pace.at_most() + ANSWER;
        match self.client.request(Request::Latencies(pace), at_most)? {
            Event::Answered(latencies) => Ok(Some(latencies)),
            other => Err(HandleError::Protocol(format!("{other:?}")).into()),
        }
    }
}

/// Has a server say nothing, and end with us.
pub(in crate::live) fn in_background(command: &mut Command) {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    hawkeye_linux::stop::let_signals_through(command);
    die_with_us(command);
}

/// Has the server end with the thread that starts it, even where that is killed: it holds gigabytes.
pub(in crate::live) fn die_with_us(command: &mut Command) {
    // SAFETY: between fork and exec nothing is done but one system call.
    unsafe {
        command.pre_exec(|| Ok(set_pdeathsig(Signal::SIGKILL)?));
    }
}

/// The server's process; killed when dropped.
struct Process {
    child: Child,
    socket: Socket,
}

impl Process {
    fn wait_until_it_listens(&mut self, name: &str) -> Result<(), BenchError> {
        let deadline = Instant::now() + START;
        while UnixStream::connect(&self.socket.path).is_err() {
            let ended = self.child.try_wait().ok().flatten();
            if let Some(status) = ended {
                let message = format!("{name} ended at its start: {status}");
                return Err(BenchError::Impossible(message));
            }
            if Instant::now() > deadline {
                let message = format!("{name} did not listen within {} s", START.as_secs());
                return Err(BenchError::Impossible(message));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to kill, and the wait returns at once.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where a server listens; removed when dropped.
struct Socket {
    path: PathBuf,
}

impl Socket {
    fn new(name: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let file = format!("hawkeye-bench-{}-{name}-{number}", std::process::id());
        Self {
            path: std::env::temp_dir().join(file),
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file::<&Path>(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::programs::testing::{TENTH, not_here, works};
    use hawkeye_test_support::this_test;

    /// The workload `ask`: this program ([`super::super::testing`]).
    fn client() -> Command {
        let mut command = Command::new(std::env::current_exe().expect("is known"));
        command.args(["workload", "ask"]);
        command
    }

    /// It answers pipelined questions, and single ones at a pace.
    fn try_out(mut server: Server) {
        works(&mut server);
        let pace = Pace {
            length: Duration::from_millis(200),
            questions_per_s: 200,
            writes_percent: 50,
        };
        for _ in 0..2 {
            let answers = server.latencies(pace).expect("answers").expect("can");
            assert_eq!(answers.questions, 40);
            assert!((1..40).contains(&answers.inserted), "{answers:?}");
        }
        works(&mut server);
    }

    #[test]
    fn redis_answers() {
        if !packages::is_there("redis-server") {
            return not_here(this_test!(), "Redis");
        }
        try_out(redis(client(), 4, TENTH, Load::Full).expect("starts"));
    }

    #[test]
    fn memcached_answers() {
        if !packages::is_there("memcached") {
            return not_here(this_test!(), "memcached");
        }
        try_out(memcached(client(), 4, TENTH).expect("starts"));
    }

    #[test]
    fn a_server_that_ends_at_once_is_told() {
        let started = Server::start(Command::new("false"), Socket::new("false"), client());
        let error = started.map(drop).expect_err("there is no server");
        assert!(error.to_string().starts_with("false ended"), "{error}");
    }
}
