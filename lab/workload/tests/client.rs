//! The workload that asks servers, against one that knows one value and loses it after a while.

use hawkeye_workload::{Event, HandleError, Pace, Request, Workload};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);
const A_MOMENT: Duration = Duration::from_millis(200);

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

/// Where a server listens; removed when dropped.
struct Socket(PathBuf);

impl Drop for Socket {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).unwrap();
    }
}

fn client(name: &str, gets: usize) -> (Workload, Socket) {
    let path = std::env::temp_dir().join(format!("hawkeye-{}-{name}", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || serve(listener, gets));
    let socket = path.to_str().unwrap();
    let words = "ask --dialect memcached --keys 100 --value-bytes 3 --socket";
    let mut client = Workload::spawn(
        env!("CARGO_BIN_EXE_hawkeye-workload"),
        words.split(' ').chain([socket]),
    )
    .unwrap();
    client.wait_ready().unwrap();
    (client, Socket(path))
}

#[test]
fn answers_are_counted_while_it_is_told_to_ask() {
    let (mut client, _socket) = client("counts", usize::MAX);
    for _ in 0..2 {
        client.command(Request::Go).unwrap();
        assert!(client.measure(A_MOMENT).unwrap() > 0.0);
        client.command(Request::Stop).unwrap();
        // It is in one round at the most, and then says nothing.
        let silent = std::iter::repeat_with(|| client.next_event(10 * A_MOMENT));
        let last = silent.take(50).find(Result::is_err);
        assert!(
            matches!(last, Some(Err(HandleError::Timeout(_)))),
            "{last:?}"
        );
    }
    let pace = Pace {
        length: A_MOMENT,
        questions_per_s: 100,
        writes_percent: 50,
    };
    let answer = client.request(Request::Latencies(pace), SOON).unwrap();
    let Event::Answered(latencies) = answer else {
        panic!("{answer:?}")
    };
    assert_eq!(latencies.questions, 20);
    let refused = client.request(Request::Verify, SOON).unwrap_err();
    assert!(refused.to_string().contains("cannot verify"), "{refused}");
}

#[test]
fn a_lost_key_ends_it_with_what_was_answered() {
    let (mut client, _socket) = client("loses", 40);
    client.command(Request::Go).unwrap();
    let error = client.measure(SOON).unwrap_err().to_string();
    assert!(error.contains("\"END\" instead of \"VALUE key:"), "{error}");
}

#[test]
fn where_nobody_listens_is_told() {
    let words = "ask --dialect redis --keys 1 --socket /nonexistent/socket";
    let program = env!("CARGO_BIN_EXE_hawkeye-workload");
    let mut client = Workload::spawn(program, words.split(' ')).unwrap();
    let error = client.wait_ready().unwrap_err().to_string();
    assert!(
        error.contains("connecting to /nonexistent/socket"),
        "{error}"
    );
}
