//! Programs in Python, each a script of ours around a library's work. They speak the workloads' line protocol.

use super::reader::{Reader, command};
use super::scratch::Scratch;
use super::{Program, packages};
use crate::error::BenchError;
use hawkeye_linux::LinuxError;
use hawkeye_workload::{Request, Workload};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const CONSOLE: &str = include_str!("python/console.py");
/// Debian's: its packages are not for any other.
const INTERPRETER: &str = "/usr/bin/python3";
/// Where its packages are.
const PACKAGES: &str = "/usr/lib/python3/dist-packages";
/// Where packages of PyPI are kept; only root can write there.
const FROM_PYPI: &str = "/var/cache/hawkeye/python";
/// How long a program may go on with the piece of work that it is in when it is told to stop.
const LAST_PIECE: Duration = Duration::from_secs(60);

/// One of the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Script {
    /// Conjugate gradients.
    Cg,
    /// Multigrid.
    Mg,
    /// Breadth-first search and PageRank.
    Graph,
    /// Joins and aggregations.
    Analytics,
}

impl Script {
    fn source(self) -> &'static str {
        match self {
            Self::Cg => include_str!("python/cg.py"),
            Self::Mg => include_str!("python/mg.py"),
            Self::Graph => include_str!("python/graph.py"),
            Self::Analytics => include_str!("python/analytics.py"),
        }
    }

    /// Files whose packages it needs of Debian.
    fn needs(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Mg => &[("numpy", "python3-numpy")],
            Self::Cg | Self::Graph => &[("numpy", "python3-numpy"), ("scipy", "python3-scipy")],
            Self::Analytics => &[("pip", "python3-pip")],
        }
    }

    fn install(self) -> Result<(), BenchError> {
        packages::need_file(Path::new(INTERPRETER), "python3")?;
        for (module, package) in self.needs() {
            packages::need_file(&Path::new(PACKAGES).join(module), package)?;
        }
        if self == Self::Analytics {
            need_duckdb()?;
        }
        Ok(())
    }

    /// Whether all that it takes is installed.
    #[cfg(test)]
    fn is_there(self) -> bool {
        let here = |(module, _): &(&str, &str)| Path::new(PACKAGES).join(module).exists();
        self.needs().iter().all(here)
            && (self != Self::Analytics || Path::new(FROM_PYPI).join("duckdb").exists())
    }
}

/// Starts one with about `mib` MiB of data.
pub(super) fn start(script: Script, mib: u64) -> Result<Steps, BenchError> {
    script.install()?;
    let folder = Scratch::new("python")?;
    folder.write("console.py", CONSOLE)?;
    let program = folder.write("program.py", script.source())?;
    let mut command = command(INTERPRETER);
    command
        .args(["-B".as_ref(), program.as_os_str()])
        .arg(mib.to_string());
    for threads in ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"] {
        command.env(threads, "1");
    }
    command
        .env("PYTHONPATH", FROM_PYPI)
        // It would advise huge pages for all of its larger arrays.
        .env("NUMPY_MADVISE_HUGEPAGE", "0")
        // Temporary arrays use the same memory every time, whoever made it huge.
        .env("MALLOC_MMAP_MAX_", "0")
        .env("MALLOC_TRIM_THRESHOLD_", (1u64 << 40).to_string());
    // By the time it is ready it has read its source.
    Ok(Steps(Reader::ready(Workload::spawn_command(command)?)?))
}

/// A program that looks at what it is told only between two pieces of work, which may take seconds.
pub(super) struct Steps(Reader);

impl Program for Steps {
    fn pid(&self) -> u32 {
        self.0.pid()
    }

    fn go(&mut self) -> Result<(), BenchError> {
        self.0.go()
    }

    fn stop(&mut self) -> Result<(), BenchError> {
        self.0.stop()?;
        // It answers as soon as it has paused.
        self.0.request(Request::Rss, LAST_PIECE)
    }

    fn rate(&mut self, length: Duration, mark: &mut dyn FnMut()) -> Result<f64, BenchError> {
        self.0.rate(length, mark)
    }
}

fn need_duckdb() -> Result<(), BenchError> {
    let folder = Path::new(FROM_PYPI);
    if folder.join("duckdb").exists() {
        return Ok(());
    }
    eprintln!("hawkeye: DuckDB is missing; installing it into {FROM_PYPI} (pip)");
    std::fs::create_dir_all(folder).map_err(LinuxError::file("creating", folder))?;
    let mut pip = Command::new(INTERPRETER);
    pip.args(["-m", "pip", "install", "--quiet", "--only-binary", ":all:"])
        .args(["--root-user-action", "ignore", "--target", FROM_PYPI])
        .arg("duckdb>=1.1,<3")
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let status = pip.status().map_err(|source| BenchError::Program {
        program: "pip, to install duckdb".into(),
        source,
    })?;
    if status.success() {
        return Ok(());
    }
    Err(BenchError::Impossible(format!(
        "DuckDB is not installed, and pip could not install it: it ended with {status}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::programs::testing::{not_here, works};
    use hawkeye_test_support::test_skips::TestName;
    use hawkeye_test_support::this_test;

    fn try_out(test: TestName, script: Script) {
        if script.is_there() {
            works(&mut start(script, 4).expect("starts"));
        } else {
            not_here(test, &format!("what {script:?} uses"));
        }
    }

    #[test]
    fn conjugate_gradients_work() {
        try_out(this_test!(), Script::Cg);
    }

    #[test]
    fn multigrid_works() {
        try_out(this_test!(), Script::Mg);
    }

    #[test]
    fn the_graph_is_traversed() {
        try_out(this_test!(), Script::Graph);
    }

    #[test]
    #[ignore = "installs DuckDB from PyPI where it is missing"]
    fn duckdb_joins() {
        works(&mut start(Script::Analytics, 4).expect("starts"));
    }
}
