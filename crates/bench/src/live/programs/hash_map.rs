//! A hash map in a Java virtual machine. It speaks the workloads' line protocol.

use super::packages;
use super::reader::Reader;
use crate::live::BenchError;
use crate::workload::Workload;
use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = include_str!("HashLookup.java");

/// Starts it with a table of `mib` MiB, rounded down to a power of two.
pub(super) fn start(mib: u64) -> Result<Reader, BenchError> {
    packages::need("javac", "default-jdk-headless")?;
    let table_mib = 1 << mib.max(1).ilog2();
    let source = Source::write()?;
    let mut command = Command::new("java");
    // The serial collector works in the program's own thread and never without an allocation; the young
    // generation holds what the compiler leaves, the old one the table alone.
    let heap = table_mib + 256;
    command
        .args(["-XX:+UseSerialGC", "-XX:+AlwaysPreTouch", "-Xmn128m"])
        .args([format!("-Xms{heap}m"), format!("-Xmx{heap}m")])
        .arg(&source.path)
        .arg(table_mib.to_string());
    hawkeye_linux::stop::let_signals_through(&mut command);
    // By the time it is ready it has compiled its source.
    Reader::ready(Workload::spawn_command(command)?)
}

/// The program's source where `java` can read it; deleted when dropped.
struct Source {
    path: PathBuf,
}

impl Source {
    fn write() -> Result<Self, BenchError> {
        let name = format!("hawkeye-bench-{}-HashLookup.java", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, SOURCE).map_err(hawkeye_linux::LinuxError::file("writing", &path))?;
        Ok(Self { path })
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::programs::Program;
    use std::io::Write;
    use std::time::Duration;

    /// A line for the count of skipped tests (scripts/test.sh).
    fn skip(line: &str) {
        eprintln!("SKIPPED {line}");
        if let Some(path) = std::env::var_os("HAWKEYE_SKIPPED_TESTS") {
            let mut file = std::fs::File::options()
                .create(true)
                .append(true)
                .open(path)
                .expect("opens");
            writeln!(file, "{line}").expect("notes the skipped test");
        }
    }

    #[test]
    fn it_speaks_the_line_protocol() {
        if !packages::is_there("javac") {
            skip("it_speaks_the_line_protocol: there is no javac here");
            return;
        }
        let mut map = start(3).expect("starts");
        for _ in 0..2 {
            map.go().expect("goes");
            let rate = map.rate(Duration::from_millis(200)).expect("says its rate");
            assert!(rate > 0.0);
            map.stop().expect("stops");
        }
    }
}
