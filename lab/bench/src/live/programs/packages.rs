//! Debian packages that experiments take, installed when they are missing.

use crate::error::BenchError;
use std::path::Path;
use std::process::{Command, Stdio};

/// Makes sure that `program` can be started, by installing `package` where it is missing; says so.
///
/// # Errors
/// It is missing and cannot be installed.
pub fn need(program: &str, package: &str) -> Result<(), BenchError> {
    bring(program, package, || is_there(program))
}

/// The same for a file, such as a library's header.
///
/// # Errors
/// It is missing and cannot be installed.
pub fn need_file(file: &Path, package: &str) -> Result<(), BenchError> {
    bring(&file.display().to_string(), package, || file.exists())
}

fn bring(what: &str, package: &str, is_there: impl Fn() -> bool) -> Result<(), BenchError> {
    if is_there() {
        return Ok(());
    }
    eprintln!("hawkeye: {what} is missing; installing {package} (apt-get)");
    // Where one source of several cannot be reached, the others may do.
    let installed = apt_get(&["update"]).and(apt_get(&[
        "install",
        "-y",
        "--no-install-recommends",
        package,
    ]));
    match installed {
        Ok(()) if is_there() => Ok(()),
        Ok(()) => Err(BenchError::Impossible(format!(
            "{what} is not installed, and `apt-get install {package}` did not bring it"
        ))),
        Err(error) => Err(BenchError::Program {
            program: format!("apt-get, to install {package} ({what} is missing)"),
            source: error,
        }),
    }
}

fn apt_get(words: &[&str]) -> std::io::Result<()> {
    Command::new("apt-get")
        .arg("-q")
        .args(words)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .map(drop)
}

/// Whether a program can be started.
pub(super) fn is_there(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| Path::is_file(&folder.join(program)))
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_there_is_not_installed() {
        assert!(super::need("sh", "no-such-package").is_ok());
        assert!(!super::is_there("hawkeye-no-such-program"));
    }
}
