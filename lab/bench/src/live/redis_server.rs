//! A separate Redis server on a unix socket, queried by Redis' own programs.

use super::programs::{
    RunningProcess, create_temporary_folder, debian_packages, prepare_for_background,
    redis_server_command, run_for_output,
};
use crate::live::prelude::*;
use hawkeye_linux::name_value_lines::find_value_by_name;
use nix::sys::signal::Signal;
use std::os::unix::net::UnixStream;
use tempfile::TempDir;

pub struct RedisServer {
    server: RunningProcess,
    folder: TempDir,
}

/// Redis' memory, as reported by Redis and by the kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RedisMemoryUse {
    /// Memory that Redis has allocated for its data, in bytes.
    pub used_bytes: u64,
    pub rss_bytes: u64,
}

impl RedisMemoryUse {
    /// Share of the resident memory that is data, in per cent.
    pub fn useful_percent(&self) -> f64 {
        self.used_bytes as f64 * 100.0 / self.rss_bytes.max(1) as f64
    }
}

/// Most keys that one script stores or deletes: it must not block the server for long.
const PIECE: u64 = 50_000;

impl RedisServer {
    /// Starts the server and waits until it listens. `within` may wrap the command, for example to
    /// run it in a cgroup. Missing packages are installed.
    pub fn start(within: impl FnOnce(Command) -> Command) -> BenchResult<Self> {
        for (program, package) in [
            ("redis-server", "redis-server"),
            ("redis-cli", "redis-tools"),
            ("redis-benchmark", "redis-tools"),
        ] {
            debian_packages::install_program_if_missing(program, package)?;
        }
        let folder = create_temporary_folder()?;
        let mut command = within(redis_server_command(folder.path()));
        prepare_for_background(&mut command);
        let mut server = RunningProcess::start(&mut command, Signal::SIGKILL)?;
        let socket = folder.path().join("socket");
        let listens = || UnixStream::connect(&socket).is_ok();
        server.wait_until_listening("redis-server", Duration::from_secs(10), listens)?;
        Ok(Self { server, folder })
    }

    pub fn pid(&self) -> u32 {
        self.server.child.id()
    }

    /// Stores values of `value_bytes` under the keys from `from` up to but excluding `to`, named as
    /// redis-benchmark does.
    pub fn store_values(&self, from: u64, to: u64, value_bytes: u64) -> BenchResult<()> {
        // Redis holds the values of one script twice until the script ends.
        let piece = (PIECE * 4096 / value_bytes.max(1)).clamp(1, PIECE);
        let value_bytes = value_bytes.to_string();
        self.run_lua_over_keys(
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
    pub fn delete_random_keys(&self, keys: u64, percent: u32) -> BenchResult<()> {
        let percent = percent.to_string();
        self.run_lua_over_keys(
            "math.randomseed(tonumber(ARGV[1]) + 1) \
             for i = tonumber(ARGV[1]), tonumber(ARGV[2]) - 1 do \
             if math.random() * 100 < tonumber(ARGV[3]) then redis.call('DEL', string.format('key:%012d', i)) end end \
             return 'OK'",
            0..keys,
            PIECE,
            &[&percent],
        )?;
        self.run_redis_cli(&["MEMORY", "PURGE"])?;
        Ok(())
    }

    fn run_lua_over_keys(
        &self,
        script: &str,
        keys: std::ops::Range<u64>,
        piece: u64,
        words: &[&str],
    ) -> BenchResult<()> {
        let mut from = keys.start;
        while from < keys.end {
            let to = (from + piece).min(keys.end);
            let (first, last) = (from.to_string(), to.to_string());
            let answer =
                self.run_redis_cli(&[&["EVAL", script, "0", &first, &last], words].concat())?;
            if !answer.starts_with("OK") {
                bail!("Redis refused a script over its keys: {:?}", answer.trim());
            }
            from = to;
        }
        Ok(())
    }

    /// Throughput of `requests` GETs of random keys, in requests per second.
    pub fn measure_gets_per_s(&self, keys: u64, requests: u64) -> BenchResult<f64> {
        let (keys, requests) = (keys.to_string(), requests.to_string());
        let mut command = Command::new("redis-benchmark");
        command.arg("-s").arg(self.folder.path().join("socket"));
        command.args(["-t", "get", "-n", &requests, "-r", &keys]);
        command.args(["-P", "16", "-c", "50", "--csv"]);
        let output = run_for_stdout(&mut command)?;
        // "test","rps",...  then  "GET","512345.67",...
        let rate = output.lines().find_map(|line| {
            let rest = line.strip_prefix("\"GET\",\"")?;
            rest.split('"').next()?.parse().ok()
        });
        rate.ok_or_else(|| impossible!("redis-benchmark printed no rate of GET requests"))
    }

    pub fn measure_memory_use(&self) -> BenchResult<RedisMemoryUse> {
        let info = self.run_redis_cli(&["INFO", "memory"])?;
        let used_bytes =
            find_value_by_name(&info, "used_memory").and_then(|bytes| bytes.parse().ok());
        let gone = || impossible!("Redis did not report its memory: the server has ended");
        Ok(RedisMemoryUse {
            used_bytes: used_bytes.ok_or_else(gone)?,
            rss_bytes: hawkeye_linux::processes::process::rss_bytes(self.pid())?,
        })
    }

    /// Whether the server has ended, for example because the kernel killed it.
    pub fn has_ended(&mut self) -> bool {
        self.server.child.try_wait().is_ok_and(|status| status.is_some())
    }

    fn run_redis_cli(&self, words: &[&str]) -> BenchResult<String> {
        let mut command = Command::new("redis-cli");
        command.arg("-s").arg(self.folder.path().join("socket"));
        run_for_stdout(command.args(words))
    }
}

fn run_for_stdout(command: &mut Command) -> BenchResult<String> {
    Ok(String::from_utf8_lossy(&run_for_output(command)?.stdout).into_owned())
}
