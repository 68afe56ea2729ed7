//! Lines of a stream, read by a thread.

use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::{self, Receiver};

/// What `parse` finds in the lines of a stream, as they come.
pub fn spawn_line_reader_thread<T: Send + 'static>(
    stream: impl Read + Send + 'static,
    parse: impl Fn(&str) -> Option<T> + Send + 'static,
) -> Receiver<T> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let lines = BufReader::new(stream).lines().map_while(Result::ok);
        for parsed in lines.filter_map(|line| parse(&line)) {
            if sender.send(parsed).is_err() {
                break;
            }
        }
    });
    receiver
}
