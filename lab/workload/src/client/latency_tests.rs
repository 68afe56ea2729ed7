//! Tests against a server that holds everybody up once.

use super::*;
use crate::client::{Dialect, Hot};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};

const QUESTIONS: Questions = Questions {
    dialect: Dialect::Memcached,
    keys: 100,
    value_bytes: 3,
    hot: Hot::UNIFORM,
};
const STALL: Duration = Duration::from_millis(300);

/// What the server has been asked.
#[derive(Default)]
struct Seen {
    gets: u64,
    stored: Vec<String>,
}

/// Answers, one question at a time whichever connection it comes on; holds the `stall_at`th get up.
fn serve(listener: UnixListener, seen: Arc<Mutex<Seen>>, stall_at: u64) {
    for stream in listener.incoming() {
        let (stream, seen) = (stream.unwrap(), Arc::clone(&seen));
        std::thread::spawn(move || answer(stream, &seen, stall_at));
    }
}

fn answer(mut stream: UnixStream, seen: &Mutex<Seen>, stall_at: u64) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    while let Some(Ok(line)) = lines.next() {
        let answer = if let Some(key) = line.strip_prefix("get ") {
            let mut seen = seen.lock().unwrap();
            seen.gets += 1;
            if seen.gets == stall_at {
                std::thread::sleep(STALL);
            }
            format!("VALUE {key} 0 3\r\nxxx\r\nEND\r\n")
        } else {
            lines.next();
            let key = line.split(' ').nth(1).unwrap();
            seen.lock().unwrap().stored.push(key.into());
            "STORED\r\n".to_owned()
        };
        // The client is gone: so are we.
        if stream.write_all(answer.as_bytes()).is_err() {
            break;
        }
    }
}

fn measured(name: &str, writes_percent: u8, stall_at: u64) -> (Latencies, Arc<Mutex<Seen>>) {
    let path = std::env::temp_dir().join(format!("hawkeye-{}-{name}", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    let seen = Arc::new(Mutex::new(Seen::default()));
    let shared = Arc::clone(&seen);
    std::thread::spawn(move || serve(listener, shared, stall_at));
    let pace = Pace {
        length: Duration::from_secs(1),
        questions_per_s: 500,
        writes_percent,
    };
    let latencies = latencies(&path, QUESTIONS, pace).unwrap();
    std::fs::remove_file(path).unwrap();
    (latencies, seen)
}

#[test]
fn whoever_waits_behind_a_slow_answer_is_counted() {
    let (latencies, seen) = measured("stall", 0, 200);
    assert_eq!(latencies.questions, 500);
    assert_eq!(seen.lock().unwrap().gets, 500);
    // 150 of the 500 were due meanwhile, and only one of them had been asked: with the time from asking, 32 would be
    // slow.
    let stall_us = STALL.as_micros() as f64;
    assert!(latencies.longest_us >= stall_us, "{latencies:?}");
    assert!(latencies.p99_us >= stall_us * 0.9, "{latencies:?}");
    assert!(latencies.p50_us <= latencies.p99_us && latencies.p99_us <= latencies.p999_us);
    assert!(latencies.p999_us <= latencies.longest_us);
}

#[test]
fn new_keys_are_inserted() {
    let (latencies, seen) = measured("inserts", 20, 0);
    let seen = seen.lock().unwrap();
    assert!((60..140).contains(&latencies.inserted), "{latencies:?}");
    assert_eq!(seen.stored.len() as u64, latencies.inserted);
    assert_eq!(seen.gets + latencies.inserted, 500);
    let mut stored = seen.stored.clone();
    stored.sort();
    assert_eq!(stored[0], "key:000000000100");
    stored.dedup();
    assert_eq!(stored.len() as u64, latencies.inserted, "each is a new one");
}

#[test]
fn answers_that_met_a_wait_are_left_out() {
    let ms = Duration::from_millis;
    let answers: Vec<Answer> = (0..100)
        .map(|n| Answer {
            due: ms(10 * n),
            // Whoever is due from 200 ms on waits until 300 ms.
            came: ms(10 * n + 1).max(if (20..30).contains(&n) {
                ms(300)
            } else {
                ms(0)
            }),
        })
        .collect();
    let waits = [Wait {
        from: ms(195),
        to: ms(299),
    }];
    let latencies = latencies_of(&answers, 0, Some(&waits)).unwrap();
    let with_cores = latencies.with_cores.unwrap();
    assert_eq!(with_cores.percent, 90.0);
    assert!(
        latencies.p999_us > 99e3 && with_cores.p999_us < 1.1e3,
        "{latencies:?}"
    );
    let unknown = latencies_of(&answers, 0, None).unwrap();
    assert_eq!(unknown.with_cores, None);
}
