//! A Redis server of our own, on a port of its own.

use super::super::error::BenchError;
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PORT: &str = "16379";

/// Who manages the server.
pub enum Managing<'a> {
    /// Nobody.
    Not,
    /// `hawkeye run` starts it.
    Run(&'a Path),
    /// `hawkeye attach` manages it from then on.
    Attach(&'a Path),
}

/// Killed when dropped.
pub struct Server {
    /// The server, or `hawkeye run` around it.
    started: Child,
    /// `hawkeye attach`.
    manager: Option<Child>,
    pid: u32,
}

/// The manager may work faster here than it would by default: a run lasts seconds, not hours.
const MANAGING: [&str; 4] = ["--cpu", "50", "--window", "0.1"];

impl Server {
    /// Starts it and waits until it answers.
    pub fn start(managing: Managing<'_>) -> Result<Self, BenchError> {
        let server = [
            "redis-server",
            "--port",
            PORT,
            "--save",
            "",
            "--appendonly",
            "no",
            "--disable-thp",
            "no",
        ];
        let mut command = match &managing {
            Managing::Run(hawkeye) => {
                let mut command = Command::new(hawkeye);
                command
                    .arg("run")
                    .args(MANAGING)
                    .arg("--json")
                    .arg(summary_file());
                command.arg("--").args(server);
                command.env("HAWKEYE_STATE_DIR", state_dir());
                command
            }
            Managing::Not | Managing::Attach(_) => {
                let mut command = Command::new(server[0]);
                command.args(&server[1..]);
                command
            }
        };
        let started = spawn(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
        let mut this = Self {
            pid: started.id(),
            started,
            manager: None,
        };
        let deadline = Instant::now() + Duration::from_secs(10);
        this.pid = loop {
            match this.info("process_id") {
                Ok(pid) => break pid as u32,
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        };
        if let Managing::Attach(hawkeye) = managing {
            let mut command = Command::new(hawkeye);
            command
                .arg("attach")
                .args(MANAGING)
                .arg("--json")
                .arg(summary_file())
                .arg(this.pid.to_string());
            command.env("HAWKEYE_STATE_DIR", state_dir());
            this.manager = Some(spawn(command.stdout(Stdio::null()).stderr(Stdio::null()))?);
        }
        Ok(this)
    }

    /// Stores `keys` values of 4 KiB under the keys that redis-benchmark asks for.
    pub fn fill(&self, keys: u64) -> Result<(), BenchError> {
        self.script(
            "local v = string.rep('x', 4096) \
             for i = tonumber(ARGV[1]), tonumber(ARGV[2]) - 1 do \
             redis.call('SET', string.format('key:%012d', i), v) end",
            keys,
        )
    }

    /// Reads random keys for a while.
    pub fn load(&self, keys: u64, length: Duration) -> Result<(), BenchError> {
        let until = Instant::now() + length;
        while Instant::now() < until {
            self.gets_per_s(keys)?;
        }
        Ok(())
    }

    /// Deletes four of five keys, at random.
    pub fn delete_four_of_five(&self, keys: u64) -> Result<(), BenchError> {
        self.script(
            "math.randomseed(tonumber(ARGV[1]) + 1) \
             for i = tonumber(ARGV[1]), tonumber(ARGV[2]) - 1 do \
             if math.random() < 0.8 then redis.call('DEL', string.format('key:%012d', i)) end end",
            keys,
        )
    }

    /// Runs a script over all keys, in pieces that don't block the server for long.
    fn script(&self, script: &str, keys: u64) -> Result<(), BenchError> {
        const PIECE: u64 = 50_000;
        let mut from = 0;
        while from < keys {
            let to = (from + PIECE).min(keys);
            cli(&["EVAL", script, "0", &from.to_string(), &to.to_string()])?;
            from = to;
        }
        Ok(())
    }

    /// Throughput of GETs of random keys, in requests per second.
    pub fn gets_per_s(&self, keys: u64) -> Result<f64, BenchError> {
        let keys = keys.to_string();
        let arguments = [
            "-p", PORT, "-t", "get", "-n", "600000", "-r", &keys, "-P", "16", "-c", "50", "--csv",
        ];
        let output = output("redis-benchmark", &arguments)?;
        // "test","rps",...  then  "GET","512345.67",...
        output
            .lines()
            .find_map(|line| {
                line.strip_prefix("\"GET\",\"")?
                    .split('"')
                    .next()?
                    .parse()
                    .ok()
            })
            .ok_or_else(|| BenchError::Impossible("redis-benchmark printed no figure".into()))
    }

    /// Resident memory, in bytes.
    pub fn rss_bytes(&self) -> Result<u64, BenchError> {
        Ok(hawkeye_linux::process::rss_bytes(self.pid)?)
    }

    /// Stops it, and whoever manages it; the manager's summary.
    pub fn stop(mut self) -> Result<Option<Value>, BenchError> {
        // It closes the connection instead of answering.
        let _ = cli(&["SHUTDOWN", "NOSAVE"]);
        let children = std::iter::once(&mut self.started).chain(&mut self.manager);
        for child in children {
            child
                .wait()
                .map_err(|source| program_error("redis-server", source))?;
        }
        let summary = std::fs::read(summary_file()).ok();
        let _ = std::fs::remove_file(summary_file());
        Ok(summary.and_then(|json| serde_json::from_slice(&json).ok()))
    }

    fn info(&self, field: &str) -> Result<u64, BenchError> {
        cli(&["INFO", "server"])?
            .lines()
            .find_map(|line| {
                line.strip_prefix(field)?
                    .strip_prefix(':')?
                    .trim()
                    .parse()
                    .ok()
            })
            .ok_or_else(|| BenchError::Impossible(format!("redis told no {field}")))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = Command::new("redis-cli")
            .args(["-p", PORT, "SHUTDOWN", "NOSAVE"])
            .output();
        for child in std::iter::once(&mut self.started).chain(&mut self.manager) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The experiment itself holds the machine; a manager that it starts needs a lock of its own.
fn state_dir() -> std::path::PathBuf {
    std::env::temp_dir().join(format!("hawkeye-bench-{}", std::process::id()))
}

fn summary_file() -> std::path::PathBuf {
    state_dir().with_extension("json")
}

fn cli(words: &[&str]) -> Result<String, BenchError> {
    output("redis-cli", &[&["-p", PORT], words].concat())
}

fn output(program: &str, words: &[&str]) -> Result<String, BenchError> {
    let output = Command::new(program)
        .args(words)
        .output()
        .map_err(|source| program_error(program, source))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn spawn(command: &mut Command) -> Result<Child, BenchError> {
    hawkeye_linux::stop::let_signals_through(command);
    let program = command.get_program().to_string_lossy().into_owned();
    command
        .spawn()
        .map_err(|source| program_error(&program, source))
}

fn program_error(program: &str, source: std::io::Error) -> BenchError {
    BenchError::Program {
        program: program.to_owned(),
        source,
    }
}
