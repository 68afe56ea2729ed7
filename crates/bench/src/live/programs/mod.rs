//! Programs to measure, all used in one way: started, set going, timed by their CPU time, stopped.

mod client;
mod cores;
mod dialect;
mod hash_map;
pub mod huge;
pub mod packages;
mod reader;
mod server;
pub mod speed;

use super::error::BenchError;
use super::host::Host;
use crate::workload::Workload;
use std::path::Path;
use std::time::Duration;

/// A program that works when it is told to. Dropping it ends it.
pub trait Program: Send {
    /// Its process.
    fn pid(&self) -> u32;
    /// Has it work from now on.
    fn go(&mut self) -> Result<(), BenchError>;
    /// Has it pause.
    fn stop(&mut self) -> Result<(), BenchError>;
    /// Operations per second of wall-clock time over the next `length`; it must have been set going.
    fn rate(&mut self, length: Duration) -> Result<f64, BenchError>;
}

/// The programs that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A workload of ours that reads memory, as on the command line but for `--mib`.
    Reader {
        /// Its name in tables.
        name: &'static str,
        /// The workload and its options.
        words: &'static str,
    },
    /// Redis, asked for random keys.
    Redis,
    /// memcached, asked for random keys.
    Memcached,
    /// A hash map in a Java virtual machine, asked for random keys.
    JavaHashMap,
}

const fn reader(name: &'static str, words: &'static str) -> Kind {
    Kind::Reader { name, words }
}

/// Those that estimates of overhead are tried on.
pub const NINE: [Kind; 9] = [
    reader("random", "random"),
    reader("zipf", "zipf"),
    reader("sequential", "sequential"),
    reader("stride 4 KiB", "stride --stride-bytes 4096"),
    reader("stride 64 KiB", "stride --stride-bytes 65536"),
    reader("pointer chase", "chase"),
    Kind::Redis,
    Kind::Memcached,
    Kind::JavaHashMap,
];

impl Kind {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reader { name, .. } => name,
            Self::Redis => "Redis",
            Self::Memcached => "memcached",
            Self::JavaHashMap => "JVM hash map",
        }
    }

    /// Starts it under base pages with about `mib` MiB of data, and waits until it has them. Packages
    /// that it takes and that are missing are installed. It does not work yet.
    pub fn start(self, host: &Host, mib: u64) -> Result<Box<dyn Program>, BenchError> {
        Ok(match self {
            Self::Reader { words, .. } => Box::new(reader::start(host, words, mib)?),
            Self::Redis => Box::new(server::redis(mib, server::Load::Full)?),
            Self::Memcached => Box::new(server::memcached(mib)?),
            Self::JavaHashMap => Box::new(hash_map::start(mib)?),
        })
    }

    /// What it takes of memory for so much data, in bytes.
    pub fn resident_bytes(self, mib: u64) -> u64 {
        let bytes = mib << 20;
        match self {
            Self::Reader { .. } => bytes,
            // Their allocators round sizes up; the JVM's heap has room beside the table.
            Self::Redis | Self::Memcached | Self::JavaHashMap => bytes * 3 / 2,
        }
    }
}

/// Starts a workload of ours, given as on the command line of `program`, told to wait.
pub fn start_reader(program: &Path, words: &str) -> Result<Box<dyn Program>, BenchError> {
    let words = format!("workload {words} --report-ms 100 --wait");
    let workload = Workload::spawn(program, words.split_whitespace())?;
    Ok(Box::new(reader::Reader::ready(workload)?))
}

/// A workload of ours that is ready and waits.
pub(super) fn ready_reader(workload: Workload, pid: u32) -> Box<dyn Program> {
    Box::new(reader::Reader::of(workload, pid))
}

/// Starts Redis with `mib` MiB of data and hardly anything to do.
pub fn idle_redis(mib: u64) -> Result<Box<dyn Program>, BenchError> {
    Ok(Box::new(server::redis(mib, server::Load::Light)?))
}
