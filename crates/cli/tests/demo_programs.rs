//! Runs the programs of `hawkeye demo`. Needs no privileges.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

struct Program {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Program {
    /// Starts a program. It first prints the address of its memory.
    fn start(words: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_hawkeye"))
            .arg("demo-program")
            .args(words.split_whitespace())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        let input = child.stdin.take().expect("the stream is a pipe");
        let output = BufReader::new(child.stdout.take().expect("the stream is a pipe"));
        let mut program = Self {
            child,
            input,
            output,
        };
        let start = program.answer();
        let start = u64::from_str_radix(start.trim_start_matches("0x"), 16);
        assert_eq!(start.expect("an address") % (2 << 20), 0);
        program
    }

    fn tell(&mut self, word: &str) {
        writeln!(self.input, "{word}").expect("the command can be sent");
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.output
            .read_line(&mut line)
            .expect("the answer can be read");
        line.trim_end().to_owned()
    }

    /// Whether it exits with success after its standard input is closed.
    fn ends_well(self) -> bool {
        let Self {
            mut child, input, ..
        } = self;
        drop(input);
        child
            .wait()
            .expect("the program can be waited for")
            .success()
    }
}

#[test]
fn the_reader_counts_what_it_reads_from_go_to_stop() {
    let mut reader = Program::start("reader --mib 8 --hot-mib 2 --hot-percent 90");
    for _ in 0..2 {
        reader.tell("go");
        std::thread::sleep(Duration::from_millis(50));
        reader.tell("stop");
        let said = reader.answer();
        let (reads, seconds) = said.split_once(' ').expect("two numbers");
        assert!(reads.parse::<u64>().expect("a number") > 0, "{said}");
        assert!(seconds.parse::<f64>().expect("a number") > 0.0, "{said}");
    }
    // Also while it reads memory.
    reader.tell("go");
    assert!(reader.ends_well());
}

#[test]
fn the_reader_accepts_all_or_no_hot_memory() {
    for hot_mib in [0, 4] {
        let words = format!("reader --mib 4 --hot-mib {hot_mib} --hot-percent 50 --huge");
        let mut reader = Program::start(&words);
        reader.tell("go");
        reader.tell("stop");
        assert!(reader.answer().contains(' '));
        assert!(reader.ends_well());
    }
}

#[test]
fn the_bloated_program_finds_its_memory_unchanged() {
    let mut bloated = Program::start("bloated --mib 4 --used-pages 100");
    bloated.tell("verify");
    assert_eq!(bloated.answer(), "0");
    assert!(bloated.ends_well());
}

#[test]
fn an_unknown_command_ends_the_demo_programs() {
    for words in [
        "reader --mib 2 --hot-mib 1 --hot-percent 50",
        "bloated --mib 2 --used-pages 1",
    ] {
        let mut program = Program::start(words);
        program.tell("jump");
        assert!(!program.ends_well());
    }
}
