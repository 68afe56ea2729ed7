//! Hash maps with look-ups of random keys: one in a Java virtual machine, and sparsehash's
//! `dense_hash_map`. They use the workloads' line protocol.

use super::protocol_program::{ProtocolProgram, command};
use super::{packages, temporary_folder, write};
use crate::error::BenchError;
use crate::live::prelude::*;
use hawkeye_workload::HotKeys;
use tempfile::TempDir;

/// The header that shows by its presence whether sparsehash is installed.
const SPARSEHASH: &str = "/usr/include/sparsehash/dense_hash_map";

/// Compiled here. Dropping it deletes it, which does not affect a running instance.
pub(in crate::live) struct CompiledProgram {
    folder: TempDir,
}

impl CompiledProgram {
    pub(in crate::live) fn with_sparsehash(source: &str) -> BenchResult<Self> {
        packages::need_program("g++", "g++")?;
        packages::need_file(Path::new(SPARSEHASH), "libsparsehash-dev")?;
        let folder = temporary_folder()?;
        let source = write(&folder, "program.cc", source)?;
        let program = Self { folder };
        let mut compiler = Command::new("g++");
        compiler.args(["-O2", "-pthread", "-o"]);
        compiler.arg(program.path()).arg(&source);
        let status = compiler
            .status()
            .map_err(BenchError::program_error("g++"))?;
        if !status.success() {
            bail!("compiling a program with g++ failed: {status}");
        }
        Ok(program)
    }

    pub(in crate::live) fn path(&self) -> PathBuf {
        self.folder.path().join("program")
    }
}

/// Rounds a table's size down to a power of two.
fn power_of_two(mib: u64) -> u64 {
    1 << mib.max(1).ilog2()
}

pub(super) fn start_sparsehash(mib: u64, hot: HotKeys) -> BenchResult<ProtocolProgram> {
    let program = CompiledProgram::with_sparsehash(include_str!("sparsehash.cc"))?;
    let mut command = command(program.path());
    command.arg(power_of_two(mib).to_string()).args(hot.words());
    ProtocolProgram::ready(WorkloadProcess::spawn_command(command)?)
}

pub(super) fn start_java(mib: u64, hot: HotKeys) -> BenchResult<ProtocolProgram> {
    packages::need_program("javac", "default-jdk-headless")?;
    let table_mib = power_of_two(mib);
    let folder = temporary_folder()?;
    let source = write(&folder, "HashLookup.java", include_str!("HashLookup.java"))?;
    let mut command = command("java");
    // The serial collector works in the program's own thread and only at an allocation. The young
    // generation holds what the compiler leaves, the old one only the table.
    let heap = table_mib + 256;
    command
        .args(["-XX:+UseSerialGC", "-XX:+AlwaysPreTouch", "-Xmn128m"])
        .args([format!("-Xms{heap}m"), format!("-Xmx{heap}m")])
        .arg(&source)
        .arg(table_mib.to_string())
        .args(hot.words());
    // A ready program has compiled its source, so the file may go.
    ProtocolProgram::ready(WorkloadProcess::spawn_command(command)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::programs::testing::{TENTH, skip_without, works};
    use hawkeye_test_support::this_test;

    #[test]
    fn java_looks_keys_up() {
        if !packages::is_there("javac") {
            return skip_without(this_test!(), "javac");
        }
        works(&mut start_java(3, TENTH).expect("starts"));
    }

    #[test]
    fn sparsehash_looks_keys_up() {
        if !packages::is_there("g++") || !Path::new(SPARSEHASH).exists() {
            return skip_without(this_test!(), "sparsehash");
        }
        for hot in [HotKeys::UNIFORM, TENTH] {
            works(&mut start_sparsehash(3, hot).expect("starts"));
        }
    }
}
