//! Standard output and standard error, for all commands.
//!
//! A reader such as `head` may close the pipe before everything is written. A command then goes on
//! and ends as usual. `println!` would panic instead, and the default action of SIGPIPE would end a
//! manager before it restores settings. `eprintln!` would panic where a terminal has closed, too.

use anyhow::{Context, Result};
use std::io::{ErrorKind, Write};

pub fn print_to_stdout(text: &str) -> Result<()> {
    write_unless_pipe_closed(std::io::stdout(), text).context("can't write to standard output")
}

/// Writes a message. Where that fails, no place is left to report it.
pub fn print_to_stderr(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Writes a text. It is no error if the reader has closed the pipe.
fn write_unless_pipe_closed(mut to: impl Write, text: &str) -> std::io::Result<()> {
    match to.write_all(text.as_bytes()).and_then(|()| to.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_reader_that_has_gone_is_no_error_and_a_full_disk_is_one() {
        let (reader, writer) = UnixStream::pair().expect("a socket pair");
        drop(reader);
        assert!(write_unless_pipe_closed(writer, "text\n").is_ok());
        let full = OpenOptions::new().write(true).open("/dev/full");
        let full = full.expect("the device can be opened");
        assert!(write_unless_pipe_closed(full, "text\n").is_err());
    }
}
