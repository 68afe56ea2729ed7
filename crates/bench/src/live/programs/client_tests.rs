//! Tests of the client, against a server that knows one value and loses it after a while.

use super::*;
use crate::live::programs::dialect::Dialect;
use crate::live::programs::hot::Hot;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

const QUESTIONS: Questions = Questions {
    dialect: Dialect::Memcached,
    keys: 100,
    value_bytes: 3,
    hot: Hot::UNIFORM,
    pause: Duration::ZERO,
};

/// Answers gets of each connection until there were so many.
fn serve(listener: UnixListener, gets: usize) {
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        std::thread::spawn(move || {
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let mut left = gets;
            while let Some(Ok(line)) = lines.next() {
                let answer = match line.strip_prefix("get ") {
                    Some(_) if left == 0 => "END\r\n".to_owned(),
                    Some(key) => {
                        left -= 1;
                        format!("VALUE {key} 0 3\r\nxxx\r\nEND\r\n")
                    }
                    None => {
                        lines.next();
                        "STORED\r\n".to_owned()
                    }
                };
                // The client is gone: so are we.
                if stream.write_all(answer.as_bytes()).is_err() {
                    break;
                }
            }
        });
    }
}

fn client(name: &str, gets: usize) -> Client {
    let path = std::env::temp_dir().join(format!("hawkeye-{}-{name}", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || serve(listener, gets));
    let client = Client::connect(&path, QUESTIONS, None).unwrap();
    std::fs::remove_file(path).unwrap();
    client
}

/// Waits until `done`, and no longer than any machine takes.
fn wait_for(mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < deadline, "it never came");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn answers_are_counted_while_it_is_told_to_ask() {
    let mut client = client("counts", usize::MAX);
    assert_eq!(client.answers().unwrap(), 0);
    client.go();
    wait_for(|| client.answers().unwrap() > 1000);
    client.stop();
    // It is in one round at the most.
    std::thread::sleep(Duration::from_millis(50));
    let stopped = client.answers().unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert!(client.answers().unwrap() - stopped <= (CONNECTIONS * PIPELINE) as u64);
    client.go();
    wait_for(|| client.answers().unwrap() > stopped + 1000);
}

#[test]
fn a_lost_key_ends_it_with_what_was_answered() {
    let mut client = client("loses", 40);
    client.go();
    let mut error = None;
    wait_for(|| {
        error = client.answers().err();
        error.is_some()
    });
    let error = error.map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("\"END\" instead of \"VALUE key:"), "{error}");
    assert!(client.answers().is_err(), "it does not come back");
}
