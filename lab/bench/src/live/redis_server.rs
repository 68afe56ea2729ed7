//! A separate Redis server on a unix socket, queried by Redis' own programs.

use super::programs::scratch::Scratch;
use super::programs::{Running, answer_within, in_background, output_of, packages, redis_command};
use crate::live::prelude::*;
use hawkeye_linux::fields::field;
use nix::sys::signal::Signal;

pub struct RedisServer {
    server: Running,
    folder: Scratch,
}

/// Redis' memory, as reported by Redis and by the kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RedisMemory {
    /// Memory that Redis has allocated for its data, in bytes.
    pub used_bytes: u64,
    pub rss_bytes: u64,
}

impl RedisMemory {
    /// Share of the resident memory that is data, in per cent.
    pub fn useful_percent(&self) -> f64 {
        self.used_bytes as f64 * 100.0 / self.rss_bytes.max(1) as f64
    }
}

/// Most keys that one script stores or deletes: it must not block the server for long.
const PIECE: u64 = 50_000;

impl RedisServer {
    /// Starts the server and waits until it answers. `within` may wrap the command, for example to
    /// run it in a cgroup. Missing packages are installed.
    pub fn start(name: &str, within: impl FnOnce(Command) -> Command) -> Result<Self> {
        for (program, package) in [
            ("redis-server", "redis-server"),
            ("redis-cli", "redis-tools"),
            ("redis-benchmark", "redis-tools"),
        ] {
            packages::need(program, package)?;
        }
        let folder = Scratch::new(name)?;
        let mut command = within(redis_command(&folder));
        in_background(&mut command);
        let server = Running::start(&mut command, Signal::SIGKILL)?;
        let this = Self { server, folder };
        let answers = || Ok((this.cli(&["PING"])?.trim() == "PONG").then_some(()));
        if answer_within(Duration::from_secs(10), answers)?.is_none() {
            bail!("redis-server does not answer after 10 s");
        }
        Ok(this)
    }

    pub fn pid(&self) -> u32 {
        self.server.id()
    }

    /// Stores values of `value_bytes` under the keys from `from` up to but excluding `to`, named as
    /// redis-benchmark does.
    pub fn fill(&self, from: u64, to: u64, value_bytes: u64) -> Result<()> {
        // Redis holds the values of one script twice until the script ends.
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

    /// Deletes `percent` of the keys below `keys` at random. The allocator returns free memory at
    /// once instead of within ten seconds.
    pub fn delete(&self, keys: u64, percent: u32) -> Result<()> {
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

    /// Runs a script over keys in batches; each call must return OK.
    fn script(
        &self,
        script: &str,
        keys: std::ops::Range<u64>,
        piece: u64,
        words: &[&str],
    ) -> Result<()> {
        let mut from = keys.start;
        while from < keys.end {
            let to = (from + piece).min(keys.end);
            let (first, last) = (from.to_string(), to.to_string());
            self.told(
                &[&["EVAL", script, "0", &first, &last], words].concat(),
                "OK",
            )?;
            from = to;
        }
        Ok(())
    }

    /// Throughput of `requests` GETs of random keys, in requests per second.
    pub fn gets_per_s(&self, keys: u64, requests: u64) -> Result<f64> {
        let (keys, requests) = (keys.to_string(), requests.to_string());
        let mut command = Command::new("redis-benchmark");
        command.arg("-s").arg(self.folder.path().join("socket"));
        command.args(["-t", "get", "-n", &requests, "-r", &keys]);
        command.args(["-P", "16", "-c", "50", "--csv"]);
        let said = said_by(&mut command)?;
        // "test","rps",...  then  "GET","512345.67",...
        said.lines()
            .find_map(|line| {
                let rest = line.strip_prefix("\"GET\",\"")?;
                rest.split('"').next()?.parse().ok()
            })
            .ok_or_else(|| impossible!("redis-benchmark printed no figure"))
    }

    pub fn configure(&self, name: &str, value: &str) -> Result<()> {
        self.told(&["CONFIG", "SET", name, value], "OK")
    }

    /// Starts a forked child that writes all data to a file.
    pub fn begin_save(&self) -> Result<()> {
        self.told(&["BGSAVE"], "Background saving started")
    }

    /// Whether such a child is running.
    pub fn is_saving(&self) -> Result<bool> {
        let said = self.cli(&["INFO", "persistence"])?;
        Ok(said.contains("rdb_bgsave_in_progress:1"))
    }

    /// Whether the last such child wrote all data.
    pub fn last_save_succeeded(&self) -> Result<bool> {
        let said = self.cli(&["INFO", "persistence"])?;
        Ok(said.contains("rdb_last_bgsave_status:ok"))
    }

    pub fn memory(&self) -> Result<RedisMemory> {
        let said = self.cli(&["INFO", "memory"])?;
        let used_bytes = field(&said, "used_memory").and_then(|bytes| bytes.parse().ok());
        let gone = || impossible!("Redis told nothing of its memory: it is gone");
        Ok(RedisMemory {
            used_bytes: used_bytes.ok_or_else(gone)?,
            rss_bytes: hawkeye_linux::processes::process::rss_bytes(self.pid())?,
        })
    }

    /// Whether the server has ended, for example because the kernel killed it.
    pub fn is_gone(&mut self) -> bool {
        self.server.try_wait().is_ok_and(|status| status.is_some())
    }

    /// Sends a command; the answer must start with `expected`.
    fn told(&self, words: &[&str], expected: &str) -> Result<()> {
        let said = self.cli(words)?;
        if !said.starts_with(expected) {
            bail!("Redis refused {}: {:?}", words[0], said.trim());
        }
        Ok(())
    }

    fn cli(&self, words: &[&str]) -> Result<String> {
        let mut command = Command::new("redis-cli");
        said_by(
            command
                .arg("-s")
                .arg(self.folder.path().join("socket"))
                .args(words),
        )
    }
}

fn said_by(command: &mut Command) -> Result<String> {
    Ok(String::from_utf8_lossy(&output_of(command)?.stdout).into_owned())
}
