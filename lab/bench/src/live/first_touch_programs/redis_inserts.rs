//! Inserts large values into Redis, one after the other.

use super::timed_command::{CORE, command_on_core, start_with_sigterm_on_drop};
use crate::live::prelude::*;
use crate::live::programs::RunningProcess;
use crate::statistics::{quantile_of_sorted, sorted};
use hawkeye_workload::core_set::CoreSet;
use hawkeye_workload::create_memory_file;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, Write};
use std::net::TcpStream;

const PORT: u16 = 16380;
const VALUE_BYTES: u64 = 2 << 20;
/// How long the server may take to listen, and to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Returns inserts per second, and their mean and p99 in milliseconds.
pub(super) fn measure_redis_inserts(ahead: bool, gib: u64) -> BenchResult<[f64; 3]> {
    crate::live::programs::debian_packages::install_program_if_missing(
        "redis-server",
        "redis-server",
    )?;
    let words = format!("redis-server --port {PORT} --save '' --appendonly no --disable-thp no");
    let words: Vec<String> = words.split(' ').map(|word| word.replace('\'', "")).collect();
    let mut command = command_on_core(ahead, None, &words)?;
    command.stdout(std::process::Stdio::null());
    let mut server = start_with_sigterm_on_drop(command)?;
    let _on_its_core = CoreSet::from_core_numbers(&[CORE]).map(CoreSet::restrict_calling_thread);
    let result = insert_values(&mut server, gib);
    drop(server);
    result
}

fn insert_values(server: &mut RunningProcess, gib: u64) -> BenchResult<[f64; 3]> {
    let failed = |error: io::Error| impossible!("inserting values: {error}");
    let connect = || TcpStream::connect(("127.0.0.1", PORT));
    server.wait_until_listening("redis-server", PATIENCE, || connect().is_ok())?;
    let mut client = connect().and_then(RedisInsertClient::new).map_err(failed)?;
    let values = (gib << 30) / VALUE_BYTES;
    let mut latencies_ms = Vec::new();
    let begun = Instant::now();
    for key in 0..values {
        let sent = Instant::now();
        client.send_set_and_wait(key).map_err(failed)?;
        latencies_ms.push(sent.elapsed().as_secs_f64() * 1e3);
    }
    let seconds = begun.elapsed().as_secs_f64();
    let latencies_ms = sorted(latencies_ms);
    let mean_ms = latencies_ms.iter().sum::<f64>() / values as f64;
    let p99_ms = quantile_of_sorted(&latencies_ms, 990).unwrap_or_default();
    Ok([values as f64 / seconds, mean_ms, p99_ms])
}

/// Values go from the page cache to the socket without a copy (`sendfile`).
struct RedisInsertClient {
    stream: TcpStream,
    answers: BufReader<TcpStream>,
    value: File,
}

impl RedisInsertClient {
    fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut value = create_memory_file(0)?;
        value.write_all(&vec![b'x'; VALUE_BYTES as usize])?;
        value.write_all(b"\r\n")?;
        let answers = BufReader::new(stream.try_clone()?);
        Ok(Self { stream, answers, value })
    }

    fn send_set_and_wait(&mut self, key: u64) -> io::Result<()> {
        let head = format!("*3\r\n$3\r\nSET\r\n$16\r\nkey:{key:012}\r\n${VALUE_BYTES}\r\n");
        self.stream.write_all(head.as_bytes())?;
        self.value.rewind()?;
        io::copy(&mut self.value, &mut self.stream)?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        if answer == "+OK\r\n" {
            return Ok(());
        }
        Err(io::Error::other(format!("the server answered {answer:?}")))
    }
}
