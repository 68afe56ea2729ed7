//! Hash maps with look-ups of random keys: one in a Java virtual machine, sparsehash's
//! `dense_hash_map`, and a map of Go. They use the workloads' line protocol.

use super::protocol_program::{ProtocolProgram, protocol_program_command};
use super::{create_temporary_folder, debian_packages, write_file_in_folder};
use crate::error::BenchError;
use crate::live::prelude::*;
use hawkeye_workload::HotKeyShares;
use tempfile::TempDir;

/// The header that shows by its presence whether sparsehash is installed.
const SPARSEHASH: &str = "/usr/include/sparsehash/dense_hash_map";

/// Where Go's own installer puts its compiler, which is not always in `PATH`.
const GO: &str = "/usr/local/go/bin/go";
/// The name of a compiled program's file.
const PROGRAM: &str = "program";

/// The Go compiler, if it is installed.
pub(in crate::live) fn find_go_compiler() -> Option<PathBuf> {
    let own = PathBuf::from(GO);
    debian_packages::find_in_path("go").or_else(|| own.exists().then_some(own))
}

/// Compiled here. Dropping it deletes it, which does not affect a running instance.
pub(in crate::live) struct CompiledProgram {
    folder: TempDir,
}

impl CompiledProgram {
    pub(in crate::live) fn install_sparsehash_and_compile(source: &str) -> BenchResult<Self> {
        debian_packages::install_program_if_missing("g++", "g++")?;
        debian_packages::install_file_if_missing(Path::new(SPARSEHASH), "libsparsehash-dev")?;
        let mut compiler = Command::new("g++");
        compiler.args(["-O2", "-pthread"]);
        Self::compile_source(compiler, "program.cc", source)
    }

    pub(in crate::live) fn compile_c(source: &str) -> BenchResult<Self> {
        // gcc alone comes without the C library's headers.
        debian_packages::install_program_if_missing("cc", "build-essential")?;
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-pthread"]);
        Self::compile_source(compiler, "program.c", source)
    }

    pub(in crate::live) fn compile_go(source: &str) -> BenchResult<Self> {
        let compiler = match find_go_compiler() {
            Some(compiler) => compiler,
            None => {
                debian_packages::install_program_if_missing("go", "golang-go")?;
                "go".into()
            }
        };
        let mut compiler = Command::new(compiler);
        compiler.env("GOTOOLCHAIN", "local").arg("build");
        Self::compile_source(compiler, "program.go", source)
    }

    fn compile_source(mut compiler: Command, file: &str, source: &str) -> BenchResult<Self> {
        let folder = create_temporary_folder()?;
        let source = write_file_in_folder(&folder, file, source)?;
        let program = folder.path().join(PROGRAM);
        compiler.args(["-o".as_ref(), program.as_os_str(), source.as_os_str()]);
        let name = compiler.get_program().to_string_lossy().into_owned();
        let failed = BenchError::program_error_mapper(&name);
        let status = compiler.status().map_err(failed)?;
        if !status.success() {
            bail!("compiling a program with {name} failed: {status}");
        }
        Ok(Self { folder })
    }

    pub(in crate::live) fn path(&self) -> PathBuf {
        self.folder.path().join(PROGRAM)
    }

    pub(in crate::live) fn into_folder(self) -> TempDir {
        self.folder
    }
}

/// Rounds a table's size down to a power of two.
fn round_down_to_power_of_two(mib: u64) -> u64 {
    1 << mib.max(1).ilog2()
}

pub(super) fn start_sparsehash_map(mib: u64, hot: HotKeyShares) -> BenchResult<ProtocolProgram> {
    let program = CompiledProgram::install_sparsehash_and_compile(include_str!("sparsehash.cc"))?;
    let mut command = protocol_program_command(program.path());
    command.arg(round_down_to_power_of_two(mib).to_string()).args(hot.to_option_values());
    ProtocolProgram::from_workload_when_ready(WorkloadProcess::spawn_command(command)?)
}

pub(super) fn start_java_hash_map(mib: u64, hot: HotKeyShares) -> BenchResult<ProtocolProgram> {
    debian_packages::install_program_if_missing("javac", "default-jdk-headless")?;
    let table_mib = round_down_to_power_of_two(mib);
    let folder = create_temporary_folder()?;
    let source = write_file_in_folder(&folder, "HashLookup.java", include_str!("HashLookup.java"))?;
    let mut command = protocol_program_command("java");
    // The serial collector works in the program's own thread and only at an allocation. The young
    // generation holds what the compiler leaves, the old one only the table.
    let heap = table_mib + 256;
    command
        .args(["-XX:+UseSerialGC", "-XX:+AlwaysPreTouch", "-Xmn128m"])
        .args([format!("-Xms{heap}m"), format!("-Xmx{heap}m")])
        .arg(&source)
        .arg(table_mib.to_string())
        .args(hot.to_option_values());
    // A ready program has compiled its source, so the file may go.
    ProtocolProgram::from_workload_when_ready(WorkloadProcess::spawn_command(command)?)
}

/// A map of Go. Its values are most of a heap of this size.
pub(super) fn start_go_map(mib: u64) -> BenchResult<ProtocolProgram> {
    let program = CompiledProgram::compile_go(include_str!("map_lookup.go"))?;
    let mut command = protocol_program_command(program.path());
    command.arg(mib.max(1).to_string());
    ProtocolProgram::from_workload_when_ready(WorkloadProcess::spawn_command(command)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::programs::testing::{TENTH, assert_works, skip_without};
    use hawkeye_test_support::this_test;

    #[test]
    fn java_looks_keys_up() {
        if !debian_packages::is_in_path("javac") {
            return skip_without(this_test!(), "javac");
        }
        assert_works(&mut start_java_hash_map(3, TENTH).expect("starts"));
    }

    #[test]
    fn sparsehash_looks_keys_up() {
        if !debian_packages::is_in_path("g++") || !Path::new(SPARSEHASH).exists() {
            return skip_without(this_test!(), "sparsehash");
        }
        for hot in [HotKeyShares::UNIFORM, TENTH] {
            assert_works(&mut start_sparsehash_map(3, hot).expect("starts"));
        }
    }

    #[test]
    fn go_looks_keys_up() {
        if find_go_compiler().is_none() {
            return skip_without(this_test!(), "Go");
        }
        assert_works(&mut start_go_map(3).expect("starts"));
    }
}
