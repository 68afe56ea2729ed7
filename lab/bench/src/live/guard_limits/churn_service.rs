//! Services that are filled, mostly emptied, and filled again with values of another size.
//! Allocators then give back parts of huge pages, and khugepaged makes regions huge in which little
//! is left.

use super::churn_load::{ChurnLoad, CommandWrapper, DELETED_PERCENT, WorkClock};
use super::mariadb_churn::MariaDbChurn;
use crate::live::prelude::*;
use crate::live::programs::hash_maps::CompiledProgram;
use crate::live::programs::{
    create_temporary_folder, debian_packages, run_for_successful_stdout, write_file_in_folder,
};
use crate::live::redis_server::RedisServer;
use hawkeye_linux::stop_signals::unblock_signals_in_child;
use std::ffi::OsStr;
use tempfile::TempDir;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChurnService {
    Redis,
    /// With jemalloc in place of malloc, in the settings that are usual for Ruby and Python.
    Python,
    Go,
    Jvm,
    MariaDb,
}

/// Longest time of a load.
const AT_MOST: Duration = Duration::from_secs(600);

const PYTHON: &str = "/usr/bin/python3";
/// What Ruby and Python services are often given against growth: memory goes back after a second.
const JEMALLOC_SETTINGS: &str = "MALLOC_CONF=dirty_decay_ms:1000,narenas:2";

impl ChurnService {
    pub(super) const ALL: [Self; 5] =
        [Self::Redis, Self::Python, Self::Go, Self::Jvm, Self::MariaDb];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Redis => "Redis",
            Self::Python => "Python with jemalloc",
            Self::Go => "Go",
            Self::Jvm => "JVM",
            Self::MariaDb => "MariaDB",
        }
    }
}

/// A service with what it needs to be started many times.
pub(super) enum PreparedService {
    Redis,
    MariaDb(MariaDbChurn),
    /// A program that carries the load itself.
    Program {
        command: Command,
        _files: TempDir,
    },
}

impl PreparedService {
    /// Installs and compiles what is missing.
    pub(super) fn prepare(service: ChurnService, load: &ChurnLoad) -> BenchResult<Self> {
        let (mut command, files) = match service {
            ChurnService::Redis => return Ok(Self::Redis),
            ChurnService::MariaDb => return Ok(Self::MariaDb(MariaDbChurn::prepare()?)),
            ChurnService::Python => python_command()?,
            ChurnService::Go => {
                let program = CompiledProgram::compile_go(include_str!("churn.go"))?;
                (Command::new(program.path()), program.into_folder())
            }
            ChurnService::Jvm => java_command(load)?,
        };
        let numbers = [load.mib, load.deletions, load.pause.as_millis() as u64];
        command.args(numbers.map(|number| number.to_string()));
        Ok(Self::Program { command, _files: files })
    }

    /// Starts the service, carries the load out and ends the service. Returns the operations per
    /// second of work.
    pub(super) fn run_load(
        &self,
        load: &ChurnLoad,
        within: CommandWrapper<'_>,
    ) -> BenchResult<f64> {
        match self {
            Self::Redis => run_redis_load(load, within),
            Self::MariaDb(service) => service.run_load(load, within),
            Self::Program { command, .. } => run_program(within(command), load),
        }
    }
}

fn run_program(mut command: Command, load: &ChurnLoad) -> BenchResult<f64> {
    unblock_signals_in_child(&mut command);
    let mut program = WorkloadProcess::spawn_command(command)?;
    program.wait_ready()?;
    std::thread::sleep(load.settle);
    match program.request_and_wait(WorkloadRequest::Go, AT_MOST)? {
        WorkloadEvent::Finished { elapsed_s, accesses } => Ok(accesses as f64 / elapsed_s),
        other => bail!("unexpected event of a service: {other:?}"),
    }
}

fn jemalloc_library() -> PathBuf {
    debian_packages::library_file("libjemalloc.so.2")
}

/// `env` sets the variables, which a wrapper does not pass on.
fn python_command() -> BenchResult<(Command, TempDir)> {
    let jemalloc = jemalloc_library();
    debian_packages::install_file_if_missing(&jemalloc, "libjemalloc2")?;
    debian_packages::install_file_if_missing(Path::new(PYTHON), "python3")?;
    let folder = create_temporary_folder()?;
    write_file_in_folder(&folder, "console.py", include_str!("../programs/python/console.py"))?;
    let script = write_file_in_folder(&folder, "churn.py", include_str!("churn.py"))?;
    let mut command = Command::new("env");
    command.arg(format!("LD_PRELOAD={}", jemalloc.display()));
    command.args([JEMALLOC_SETTINGS.as_ref(), OsStr::new(PYTHON), "-B".as_ref()]).arg(script);
    Ok((command, folder))
}

/// A JVM that gives memory back: G1 with periodic collections.
fn java_command(load: &ChurnLoad) -> BenchResult<(Command, TempDir)> {
    debian_packages::install_program_if_missing("javac", "default-jdk-headless")?;
    let folder = create_temporary_folder()?;
    let source = write_file_in_folder(&folder, "Churn.java", include_str!("Churn.java"))?;
    let mut compiler = Command::new("javac");
    compiler.arg("-d").arg(folder.path()).arg(source);
    run_for_successful_stdout(compiler)?;
    let mut command = Command::new("java");
    command
        .args(["-XX:+UseG1GC", "-XX:G1PeriodicGCInterval=1000"])
        .args(["-XX:MinHeapFreeRatio=10", "-XX:MaxHeapFreeRatio=30"])
        .arg(format!("-Xmx{}m", 2 * load.mib))
        .arg("-cp")
        .args([folder.path().as_os_str(), "Churn".as_ref()]);
    Ok((command, folder))
}

/// Sizes of Redis' values, stored in turn.
const REDIS_VALUE_BYTES: [u64; 2] = [1000, 16_000];
const REDIS_GETS_PER_MIB: u64 = 2000;

fn run_redis_load(load: &ChurnLoad, within: CommandWrapper<'_>) -> BenchResult<f64> {
    let [small, _] = REDIS_VALUE_BYTES;
    let server = RedisServer::start(|command| within(&command))?;
    let mut clock = WorkClock::default();
    let mut keys = (load.mib << 20) / small;
    let half = keys / 2;
    server.store_values(0, half, small)?;
    std::thread::sleep(load.settle);
    clock.time(keys - half, || server.store_values(half, keys, small))?;
    let full_bytes = server.measure_memory_use()?.used_bytes;
    let gets = load.mib * REDIS_GETS_PER_MIB;
    clock.time(gets, || server.measure_gets_per_s(keys, gets))?;
    for n in 0..load.deletions {
        clock.time(keys, || server.delete_random_keys(keys, DELETED_PERCENT))?;
        clock.time(gets / 4, || server.measure_gets_per_s(keys, gets / 4))?;
        std::thread::sleep(load.pause);
        let value_bytes = REDIS_VALUE_BYTES[usize::from(n % 2 == 0)];
        let free = full_bytes.saturating_sub(server.measure_memory_use()?.used_bytes);
        let new = free / value_bytes;
        clock.time(new, || server.store_values(keys, keys + new, value_bytes))?;
        keys += new;
        clock.time(gets, || server.measure_gets_per_s(keys, gets))?;
    }
    Ok(clock.operations_per_s())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::programs::MARIADB_SERVER;
    use crate::live::programs::debian_packages::is_in_path;
    use crate::live::programs::hash_maps::find_go_compiler;
    use hawkeye_test_support::test_skips::TestName;
    use hawkeye_test_support::this_test;

    const LOAD: ChurnLoad = ChurnLoad {
        mib: 8,
        deletions: 2,
        settle: Duration::ZERO,
        pause: Duration::from_millis(10),
    };

    fn assert_load_is_carried(service: ChurnService) {
        let prepared = PreparedService::prepare(service, &LOAD).expect("is installed");
        let as_it_is = |command: &Command| {
            let mut same = Command::new(command.get_program());
            same.args(command.get_args());
            same
        };
        for _ in 0..2 {
            let per_s = prepared.run_load(&LOAD, &as_it_is).expect("works");
            assert!(per_s.is_finite() && per_s > 0.0, "{per_s}");
        }
    }

    fn check_load(test: TestName, service: ChurnService, installed: bool) {
        match installed {
            true => assert_load_is_carried(service),
            false => test.skip(&format!("{} is not installed", service.name())),
        }
    }

    #[test]
    fn redis_carries_its_load() {
        check_load(this_test!(), ChurnService::Redis, is_in_path("redis-benchmark"));
    }

    #[test]
    fn python_carries_its_load() {
        let installed = Path::new(PYTHON).exists() && jemalloc_library().exists();
        check_load(this_test!(), ChurnService::Python, installed);
    }

    #[test]
    fn go_carries_its_load() {
        check_load(this_test!(), ChurnService::Go, find_go_compiler().is_some());
    }

    #[test]
    fn a_jvm_carries_its_load() {
        check_load(this_test!(), ChurnService::Jvm, is_in_path("javac"));
    }

    #[test]
    fn mariadb_carries_its_load() {
        check_load(this_test!(), ChurnService::MariaDb, is_in_path(MARIADB_SERVER));
    }
}
