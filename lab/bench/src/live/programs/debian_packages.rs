//! Debian packages that experiments need; they are installed if they are missing.

use crate::error::{BenchError, BenchResult, bail, impossible};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Ensures that `program` can be started: installs `package` if it is missing, and reports that.
pub fn install_program_if_missing(program: &str, package: &str) -> BenchResult<()> {
    install_if_missing(program, package, || is_in_path(program))
}

/// The same for a file, such as a library's header.
pub fn install_file_if_missing(file: &Path, package: &str) -> BenchResult<()> {
    install_if_missing(&file.display().to_string(), package, || file.exists())
}

fn install_if_missing(what: &str, package: &str, is_there: impl Fn() -> bool) -> BenchResult<()> {
    if is_there() {
        return Ok(());
    }
    eprintln!("hawkeye-lab: {what} is missing; installing {package} (apt-get)");
    // If one of several sources is unreachable, the others may be enough.
    let words = ["install", "-y", "--no-install-recommends", package];
    let installed = run_apt_get(&["update"]).and(run_apt_get(&words));
    let failed = format!("apt-get, to install {package} ({what} is missing)");
    installed.map_err(BenchError::program_error_mapper(failed))?;
    if !is_there() {
        bail!("{what} is still missing after `apt-get install {package}`: install it by hand");
    }
    Ok(())
}

fn run_apt_get(words: &[&str]) -> std::io::Result<()> {
    Command::new("apt-get")
        .arg("-q")
        .args(words)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .map(drop)
}

pub(in crate::live) fn is_in_path(program: &str) -> bool {
    find_in_path(program).is_some()
}

/// The file of a program in `PATH`.
pub(in crate::live) fn find_in_path(program: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut files = std::env::split_paths(&folders).map(|folder| folder.join(program));
    files.find(|file| file.is_file())
}

/// The file of a shared library where Debian's packages for this architecture have theirs.
pub(in crate::live) fn library_file(name: &str) -> PathBuf {
    format!("/usr/lib/{}-linux-gnu/{name}", std::env::consts::ARCH).into()
}

/// The program `hawkeye`: beside this one, or in `PATH`.
pub(in crate::live) fn find_hawkeye_program() -> BenchResult<PathBuf> {
    let own = std::env::current_exe().map_err(BenchError::program_error_mapper("hawkeye-lab"))?;
    let beside = own.with_file_name("hawkeye");
    if beside.exists() {
        return Ok(beside);
    }
    find_in_path("hawkeye").ok_or_else(|| {
        impossible!("the program hawkeye is neither beside hawkeye-lab nor in PATH: build it with `make build`")
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_present_program_is_not_installed() {
        assert!(super::install_program_if_missing("sh", "no-such-package").is_ok());
        assert!(!super::is_in_path("hawkeye-no-such-program"));
    }
}
