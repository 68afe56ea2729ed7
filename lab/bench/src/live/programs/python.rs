//! Programs in Python: our scripts around the work of a library. They use the workloads' line
//! protocol.

use super::protocol_program::{ProtocolProgram, protocol_program_command};
use super::{create_temporary_folder, debian_packages, program_launcher, write_file_in_folder};
use crate::error::BenchError;
use crate::live::prelude::*;

const CONSOLE: &str = include_str!("python/console.py");
/// Debian's interpreter: Debian's packages are only for this one.
const INTERPRETER: &str = "/usr/bin/python3";
const PACKAGES: &str = "/usr/lib/python3/dist-packages";
/// The folder of packages from PyPI; only root can write there.
const FROM_PYPI: &str = "/var/cache/hawkeye/python";
/// How long a program may take to finish its current piece of work after a request to stop.
const LAST_PIECE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PythonScript {
    Cg,
    Mg,
    Graph,
    Analytics,
}

impl PythonScript {
    fn source(self) -> &'static str {
        match self {
            Self::Cg => include_str!("python/cg.py"),
            Self::Mg => include_str!("python/mg.py"),
            Self::Graph => include_str!("python/graph.py"),
            Self::Analytics => include_str!("python/analytics.py"),
        }
    }

    /// Files that the script needs, and the Debian packages that contain them.
    fn needed_debian_packages(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Mg => &[("numpy", "python3-numpy")],
            Self::Cg | Self::Graph => &[("numpy", "python3-numpy"), ("scipy", "python3-scipy")],
            Self::Analytics => &[("pip", "python3-pip")],
        }
    }

    fn install_needed_packages(self) -> BenchResult<()> {
        debian_packages::install_file_if_missing(Path::new(INTERPRETER), "python3")?;
        for (module, package) in self.needed_debian_packages() {
            debian_packages::install_file_if_missing(&Path::new(PACKAGES).join(module), package)?;
        }
        if self == Self::Analytics {
            install_duckdb_if_missing()?;
        }
        Ok(())
    }

    #[cfg(test)]
    fn is_installed(self) -> bool {
        let here = |(module, _): &(&str, &str)| Path::new(PACKAGES).join(module).exists();
        self.needed_debian_packages().iter().all(here)
            && (self != Self::Analytics || Path::new(FROM_PYPI).join("duckdb").exists())
    }
}

pub(super) fn start_script(script: PythonScript, mib: u64) -> BenchResult<ProtocolProgram> {
    script.install_needed_packages()?;
    let folder = create_temporary_folder()?;
    write_file_in_folder(&folder, "console.py", CONSOLE)?;
    let program = write_file_in_folder(&folder, "program.py", script.source())?;
    let mut command = protocol_program_command(INTERPRETER);
    command.args(["-B".as_ref(), program.as_os_str()]).arg(mib.to_string());
    for threads in ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"] {
        command.env(threads, "1");
    }
    command
        .env("PYTHONPATH", FROM_PYPI)
        // Temporary arrays reuse the same memory every time, whether it is huge or not.
        .env("MALLOC_MMAP_MAX_", "0")
        .env("MALLOC_TRIM_THRESHOLD_", (1u64 << 40).to_string());
    if program_launcher::must_start_on_base_pages() {
        // NumPy would advise huge pages for all of its larger arrays.
        command.env("NUMPY_MADVISE_HUGEPAGE", "0");
    }
    // A ready program has read its source, so the file may go.
    let mut program =
        ProtocolProgram::from_workload_when_ready(WorkloadProcess::spawn_command(command)?)?;
    program.last_piece = Some(LAST_PIECE);
    Ok(program)
}

fn install_duckdb_if_missing() -> BenchResult<()> {
    let folder = Path::new(FROM_PYPI);
    if folder.join("duckdb").exists() {
        return Ok(());
    }
    eprintln!("hawkeye-lab: DuckDB is missing; installing it into {FROM_PYPI} (pip)");
    std::fs::create_dir_all(folder).map_err(LinuxError::wrap_io_error("creating", folder))?;
    let mut pip = Command::new(INTERPRETER);
    pip.args(["-m", "pip", "install", "--quiet", "--only-binary", ":all:"])
        .args(["--root-user-action", "ignore", "--target", FROM_PYPI])
        .arg("duckdb>=1.1,<3")
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let failed = BenchError::program_error_mapper("pip, to install duckdb");
    let status = pip.status().map_err(failed)?;
    if status.success() {
        return Ok(());
    }
    bail!("installing DuckDB with pip into {FROM_PYPI} failed: {status}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::programs::testing::{assert_works, skip_without};
    use hawkeye_test_support::this_test;

    #[test]
    fn scripts_work() {
        for script in [PythonScript::Cg, PythonScript::Mg, PythonScript::Graph] {
            if script.is_installed() {
                assert_works(&mut start_script(script, 4).expect("starts"));
            } else {
                skip_without(this_test!(), &format!("what {script:?} uses"));
            }
        }
    }

    #[test]
    #[ignore = "installs DuckDB from PyPI where it is missing"]
    fn duckdb_joins() {
        assert_works(&mut start_script(PythonScript::Analytics, 4).expect("starts"));
    }
}
