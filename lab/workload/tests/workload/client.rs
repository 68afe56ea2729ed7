//! Tests the client workload with a server that stores one value. The server loses it after a
//! while, and delays all connections once.

use super::{SOON, start};
use hawkeye_workload::{
    AnswerLatencies, RequestSchedule, WorkloadEvent, WorkloadProcess, WorkloadProcessError,
    WorkloadRequest,
};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const A_MOMENT: Duration = Duration::from_millis(200);
const STALL: Duration = Duration::from_millis(300);
const KEYS: usize = 100;

struct Server {
    most: usize,
    /// The number of the get that is delayed, together with all requests that arrive meanwhile.
    stall_at: usize,
    gets: usize,
    stored: Vec<String>,
}

impl Server {
    fn answer(&mut self, line: &str) -> String {
        if let Some(key) = line.strip_prefix("delete ") {
            self.stored.retain(|stored| stored != key);
            return "DELETED\r\n".to_owned();
        }
        let Some(key) = line.strip_prefix("get ") else {
            let key = line.split(' ').nth(1).unwrap();
            self.stored.push(key.into());
            return "STORED\r\n".to_owned();
        };
        self.gets += 1;
        if self.gets == self.stall_at {
            std::thread::sleep(STALL);
        }
        match self.gets > self.most {
            true => "END\r\n".to_owned(),
            false => format!("VALUE {key} 0 3\r\nxxx\r\nEND\r\n"),
        }
    }
}

fn serve(mut stream: UnixStream, server: &Mutex<Server>) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    while let Some(Ok(line)) = lines.next() {
        if line.starts_with("set ") {
            lines.next();
        }
        let answer = server.lock().unwrap().answer(&line);
        // The client has closed the connection, so the server ends.
        if stream.write_all(answer.as_bytes()).is_err() {
            break;
        }
    }
}

struct Asking {
    client: WorkloadProcess,
    server: Arc<Mutex<Server>>,
    socket: PathBuf,
}

impl Drop for Asking {
    fn drop(&mut self) {
        std::fs::remove_file(&self.socket).unwrap();
    }
}

fn asking(name: &str, most: usize, stall_at: usize) -> Asking {
    let socket = std::env::temp_dir().join(format!("hawkeye-{}-{name}", std::process::id()));
    let listener = UnixListener::bind(&socket).unwrap();
    let server = Arc::new(Mutex::new(Server { most, stall_at, gets: 0, stored: Vec::new() }));
    let shared = Arc::clone(&server);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, server) = (stream.unwrap(), Arc::clone(&shared));
            std::thread::spawn(move || serve(stream, &server));
        }
    });
    let socket_path = socket.display();
    let mut client = start(&format!(
        "ask --dialect memcached --keys {KEYS} --value-bytes 3 --socket {socket_path}"
    ));
    client.wait_ready().unwrap();
    Asking { client, server, socket }
}

impl Asking {
    fn latencies(&mut self, length: Duration, per_s: u32, writes_percent: u8) -> AnswerLatencies {
        let request = WorkloadRequest::Latencies(RequestSchedule {
            length,
            questions_per_s: per_s,
            writes_percent,
        });
        let answered = self.client.request_value(request, SOON, |event| match event {
            WorkloadEvent::Answered(latencies) => Some(latencies),
            _ => None,
        });
        answered.unwrap()
    }
}

#[test]
fn a_part_of_the_keys_is_deleted() {
    let mut asking = asking("deletes", usize::MAX, 0);
    let client = &mut asking.client;
    client.send_request(WorkloadRequest::Go).unwrap();
    client.measure_rate(A_MOMENT).unwrap();
    client.send_request(WorkloadRequest::Stop).unwrap();
    let deleted = client.request_value(WorkloadRequest::Delete(80), SOON, |event| match event {
        WorkloadEvent::Deleted { keys } => Some(keys as usize),
        _ => None,
    });
    let deleted = deleted.unwrap();
    assert!((50..100).contains(&deleted), "{deleted}");
    assert_eq!(asking.server.lock().unwrap().stored.len(), KEYS - deleted);
}

#[test]
fn answers_are_counted_while_it_is_told_to_ask() {
    let mut asking = asking("counts", usize::MAX, 0);
    let client = &mut asking.client;
    for _ in 0..2 {
        client.send_request(WorkloadRequest::Go).unwrap();
        assert!(client.measure_rate(A_MOMENT).unwrap() > 0.0);
        client.send_request(WorkloadRequest::Stop).unwrap();
        // It is in at most one round, and then reports nothing.
        let silent = std::iter::repeat_with(|| client.next_event(10 * A_MOMENT));
        let last = silent.take(50).find(Result::is_err);
        assert!(matches!(last, Some(Err(WorkloadProcessError::Timeout(_)))), "{last:?}");
    }
    assert_eq!(asking.latencies(A_MOMENT, 100, 50).questions, 20);
    let refused = asking.client.request_and_wait(WorkloadRequest::Verify, SOON).unwrap_err();
    assert!(refused.to_string().contains("cannot verify"), "{refused}");
}

#[test]
fn a_lost_key_ends_it_with_what_was_answered() {
    let mut asking = asking("loses", 40, 0);
    asking.client.send_request(WorkloadRequest::Go).unwrap();
    let error = asking.client.measure_rate(SOON).unwrap_err().to_string();
    assert!(error.contains("\"END\" instead of \"VALUE key:"), "{error}");
}

#[test]
fn a_socket_without_a_listener_is_an_error() {
    let mut client = start("ask --dialect redis --keys 1 --socket /nonexistent/socket");
    let error = client.wait_ready().unwrap_err().to_string();
    assert!(error.contains("connecting to /nonexistent/socket"), "{error}");
}

#[test]
fn a_request_behind_a_slow_answer_counts_as_slow() {
    let mut asking = asking("stall", usize::MAX, 200);
    let latencies = asking.latencies(Duration::from_secs(1), 500, 0);
    assert_eq!(latencies.questions, 500);
    assert_eq!(asking.server.lock().unwrap().gets, 500);
    // 150 of the 500 were due meanwhile, and only one of them had been sent. Measured from the time
    // of sending, 32 would be slow.
    let stall_us = STALL.as_micros() as f64;
    assert!(latencies.longest_us >= stall_us, "{latencies:?}");
    assert!(latencies.p99_us >= stall_us * 0.9, "{latencies:?}");
    assert!(latencies.p50_us <= latencies.p99_us && latencies.p99_us <= latencies.p999_us);
    assert!(latencies.p999_us <= latencies.longest_us);
}

#[test]
fn new_keys_are_inserted() {
    let mut asking = asking("inserts", usize::MAX, 0);
    let latencies = asking.latencies(Duration::from_secs(1), 500, 20);
    let server = asking.server.lock().unwrap();
    let mut stored = server.stored[KEYS..].to_vec();
    assert!((60..140).contains(&latencies.inserted), "{latencies:?}");
    assert_eq!(stored.len() as u64, latencies.inserted);
    assert_eq!(server.gets as u64 + latencies.inserted, 500);
    stored.sort();
    assert_eq!(stored[0], "key:000000000100");
    stored.dedup();
    assert_eq!(stored.len() as u64, latencies.inserted, "each is a new one");
}
