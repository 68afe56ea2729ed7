//! A command ends without a message when its reader, as `head` does, closes the pipe.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Output, Stdio};

fn hawkeye_without_reader(words: &[&str]) -> Output {
    let (reader, writer) = UnixStream::pair().expect("a socket pair");
    drop(reader);
    Command::new(env!("CARGO_BIN_EXE_hawkeye"))
        .args(words)
        .stdout(OwnedFd::from(writer))
        .stderr(Stdio::piped())
        .spawn()
        .and_then(|child| child.wait_with_output())
        .expect("hawkeye runs")
}

#[test]
fn a_command_without_a_reader_ends_quietly() {
    let config = tempfile::NamedTempFile::new().expect("a temporary file");
    let path = config.path().to_str().expect("the path is UTF-8");
    for words in [&["daemon", "--check", "--config", path][..], &["doctor", "--help"]] {
        let output = hawkeye_without_reader(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.is_empty(), "{words:?}: {said}");
        assert!(output.status.success(), "{words:?}: {}", output.status);
    }
}
