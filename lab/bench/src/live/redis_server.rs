//! A Redis server of our own on a unix socket, asked by Redis' own programs.

use super::programs::{in_background, packages};
use crate::error::BenchError;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Killed when dropped.
pub struct RedisServer {
    child: Child,
    socket: PathBuf,
}

/// What Redis says of its memory, and the kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RedisMemory {
    /// What it has allocated for its data, in bytes.
    pub used_bytes: u64,
    /// Resident, in bytes.
    pub rss_bytes: u64,
}

impl RedisMemory {
    /// How much of what is resident is data, in per cent.
    pub fn useful_percent(&self) -> f64 {
        self.used_bytes as f64 * 100.0 / self.rss_bytes.max(1) as f64
    }
}

/// Keys stored or deleted by one script: it must not block the server for long.
const PIECE: u64 = 50_000;

impl RedisServer {
    /// Starts it and waits until it answers; `within` may run the command in a place of its own. What is missing is installed.
    ///
    /// # Errors
    /// It can't be installed or started.
    pub fn start(name: &str, within: impl FnOnce(Command) -> Command) -> Result<Self, BenchError> {
        for (program, package) in [
            ("redis-server", "redis-server"),
            ("redis-cli", "redis-tools"),
            ("redis-benchmark", "redis-tools"),
        ] {
            packages::need(program, package)?;
        }
        let socket = format!("hawkeye-bench-{}-{name}.socket", std::process::id());
        let socket = std::env::temp_dir().join(socket);
        let mut command = Command::new("redis-server");
        command
            .args(["--port", "0", "--save", "", "--appendonly", "no"])
            .args(["--disable-thp", "no", "--unixsocket"])
            .arg(&socket);
        let mut command = within(command);
        in_background(&mut command);
        let child = command
            .spawn()
            .map_err(|source| program_error("redis-server", source))?;
        let this = Self { child, socket };
        let deadline = Instant::now() + Duration::from_secs(10);
        while this.cli(&["PING"])?.trim() != "PONG" {
            if Instant::now() > deadline {
                let message = "redis-server does not answer after 10 s".to_owned();
                return Err(BenchError::Impossible(message));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(this)
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stores values of so many bytes under the keys from `from` to before `to`, named as redis-benchmark does.
    ///
    /// # Errors
    /// The server is gone, or refuses.
    pub fn fill(&self, from: u64, to: u64, value_bytes: u64) -> Result<(), BenchError> {
        // What one script stores is held twice until it ends.
        let piece = (PIECE * 4096 / value_bytes.max(1)).clamp(1, PIECE);
        let value_bytes = value_bytes.to_string();
        self.script(
            "local v = string.rep('x', tonumber(ARGV[3])) \
             for i = tonumber(ARGV[1]), tonumber(ARGV[2]) - 1 do \
             redis.call('SET', string.format('key:%012d', i), v) end return 'OK'",
            from..to,
            piece,
            &[&value_bytes],
        )
    }

    /// Deletes so many per cent of the keys before `keys`, at random, and has the allocator give back what is free
    /// now instead of within ten seconds.
    ///
    /// # Errors
    /// The server is gone.
    pub fn delete(&self, keys: u64, percent: u32) -> Result<(), BenchError> {
        let percent = percent.to_string();
        self.script(
            "math.randomseed(tonumber(ARGV[1]) + 1) \
             for i = tonumber(ARGV[1]), tonumber(ARGV[2]) - 1 do \
             if math.random() * 100 < tonumber(ARGV[3]) then redis.call('DEL', string.format('key:%012d', i)) end end \
             return 'OK'",
            0..keys,
            PIECE,
            &[&percent],
        )?;
        self.cli(&["MEMORY", "PURGE"])?;
        Ok(())
    }

    /// Runs a script over keys, piece by piece; it must return OK.
    fn script(
        &self,
        script: &str,
        keys: std::ops::Range<u64>,
        piece: u64,
        words: &[&str],
    ) -> Result<(), BenchError> {
        let mut from = keys.start;
        while from < keys.end {
            let to = (from + piece).min(keys.end);
            let (first, last) = (from.to_string(), to.to_string());
            let call = [&["EVAL", script, "0", &first, &last], words].concat();
            let said = self.cli(&call)?;
            if said.trim() != "OK" {
                let said = said.trim();
                return Err(BenchError::Impossible(format!("Redis refused: {said:?}")));
            }
            from = to;
        }
        Ok(())
    }

    /// Throughput of GETs of random keys over `requests` of them, in requests per second.
    ///
    /// # Errors
    /// The server is gone.
    pub fn gets_per_s(&self, keys: u64, requests: u64) -> Result<f64, BenchError> {
        let (keys, requests) = (keys.to_string(), requests.to_string());
        let mut command = Command::new("redis-benchmark");
        command.arg("-s").arg(&self.socket);
        command.args(["-t", "get", "-n", &requests, "-r", &keys]);
        command.args(["-P", "16", "-c", "50", "--csv"]);
        let said = output(&mut command)?;
        // "test","rps",...  then  "GET","512345.67",...
        said.lines()
            .find_map(|line| {
                let rest = line.strip_prefix("\"GET\",\"")?;
                rest.split('"').next()?.parse().ok()
            })
            .ok_or_else(|| BenchError::Impossible("redis-benchmark printed no figure".into()))
    }

    /// Sets one of its parameters.
    ///
    /// # Errors
    /// The server is gone, or does not know it.
    pub fn configure(&self, name: &str, value: &str) -> Result<(), BenchError> {
        let said = self.cli(&["CONFIG", "SET", name, value])?;
        if said.trim() == "OK" {
            return Ok(());
        }
        let said = said.trim();
        Err(BenchError::Impossible(format!(
            "Redis refused to set {name}: {said:?}"
        )))
    }

    /// Forks a child that writes all data to a file.
    ///
    /// # Errors
    /// The server is gone, or can't fork.
    pub fn begin_save(&self) -> Result<(), BenchError> {
        let said = self.cli(&["BGSAVE"])?;
        if said.contains("started") {
            return Ok(());
        }
        let said = said.trim();
        Err(BenchError::Impossible(format!(
            "Redis refused to save: {said:?}"
        )))
    }

    /// Whether such a child is at work.
    ///
    /// # Errors
    /// `redis-cli` can't be run.
    pub fn is_saving(&self) -> Result<bool, BenchError> {
        let said = self.cli(&["INFO", "persistence"])?;
        Ok(said.contains("rdb_bgsave_in_progress:1"))
    }

    /// Whether the last such child wrote all.
    ///
    /// # Errors
    /// `redis-cli` can't be run.
    pub fn last_save_succeeded(&self) -> Result<bool, BenchError> {
        let said = self.cli(&["INFO", "persistence"])?;
        Ok(said.contains("rdb_last_bgsave_status:ok"))
    }

    /// Its memory now.
    ///
    /// # Errors
    /// The server is gone.
    pub fn memory(&self) -> Result<RedisMemory, BenchError> {
        let said = self.cli(&["INFO", "memory"])?;
        let used = said
            .lines()
            .find_map(|line| line.strip_prefix("used_memory:"));
        let used_bytes = used.and_then(|bytes| bytes.trim().parse().ok());
        let gone = || BenchError::Impossible("Redis told nothing of its memory: it is gone".into());
        Ok(RedisMemory {
            used_bytes: used_bytes.ok_or_else(gone)?,
            rss_bytes: hawkeye_linux::processes::process::rss_bytes(self.pid())?,
        })
    }

    /// Whether it has ended, as when the kernel killed it.
    pub fn is_gone(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    fn cli(&self, words: &[&str]) -> Result<String, BenchError> {
        let mut command = Command::new("redis-cli");
        output(command.arg("-s").arg(&self.socket).args(words))
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.socket);
    }
}

fn output(command: &mut Command) -> Result<String, BenchError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|source| program_error(&program, source))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn program_error(program: &str, source: std::io::Error) -> BenchError {
    BenchError::Program {
        program: program.to_owned(),
        source,
    }
}
