//! A hash map in a Java virtual machine. It speaks the workloads' line protocol.

use super::packages;
use super::reader::{Reader, command};
use super::scratch::Scratch;
use crate::error::BenchError;
use hawkeye_workload::{Hot, Workload};

const SOURCE: &str = include_str!("HashLookup.java");

/// Starts it with a table of `mib` MiB, rounded down to a power of two.
pub(super) fn start(mib: u64, hot: Hot) -> Result<Reader, BenchError> {
    packages::need("javac", "default-jdk-headless")?;
    let table_mib = 1 << mib.max(1).ilog2();
    let folder = Scratch::new("java")?;
    let source = folder.write("HashLookup.java", SOURCE)?;
    let mut command = command("java");
    // The serial collector works in the program's own thread and never without an allocation; the young
    // generation holds what the compiler leaves, the old one the table alone.
    let heap = table_mib + 256;
    command
        .args(["-XX:+UseSerialGC", "-XX:+AlwaysPreTouch", "-Xmn128m"])
        .args([format!("-Xms{heap}m"), format!("-Xmx{heap}m")])
        .arg(&source)
        .arg(table_mib.to_string())
        .args(hot.words());
    // By the time it is ready it has compiled its source.
    Reader::ready(Workload::spawn_command(command)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::programs::testing::{TENTH, not_here, works};
    use hawkeye_test_support::this_test;

    #[test]
    fn it_speaks_the_line_protocol() {
        if !packages::is_there("javac") {
            not_here(this_test!(), "javac");
            return;
        }
        works(&mut start(3, TENTH).expect("starts"));
    }
}
