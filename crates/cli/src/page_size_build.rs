//! The build for this kernel's page sizes. They are constants of a build, because loops over the
//! pages of a region and their tables depend on them. Where kernels may have base pages of 16 KiB,
//! the package has a second program for these.

use crate::output::print_to_stderr;
use hawkeye_linux::probe::base_page_bytes_of_kernel;
use hawkeye_policy::BASE_PAGE_BYTES;
use std::env;
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Base pages that another build is for, and its name.
const OTHER_BUILD: (u64, &str) = (16 << 10, "hawkeye-16k");

/// Goes on as the build for this kernel's base pages, where there is one. Otherwise this build
/// goes on, and says what it cannot do.
pub fn go_on_as_build_for_kernel() {
    let (page_bytes, name) = OTHER_BUILD;
    if BASE_PAGE_BYTES == page_bytes || base_page_bytes_of_kernel() != page_bytes {
        return;
    }
    let Ok(program) = env::current_exe() else { return };
    let path = other_build_path(&program, name);
    // A build of the wrong size must not start itself for ever.
    if !path.is_file() || program.file_name() == Some(OsStr::new(name)) {
        return;
    }
    let mut arguments = env::args_os();
    let mut command = Command::new(&path);
    command.arg0(arguments.next().unwrap_or_else(|| name.into())).args(arguments);
    let error = command.exec();
    print_to_stderr(&format!("hawkeye: {} can't be started: {error}\n", path.display()));
}

/// Where the package has it: `/usr/lib/hawkeye` beside `/usr/bin`. Not beside the program, where
/// another user may have put a file, as in `/tmp`.
fn other_build_path(program: &Path, name: &str) -> PathBuf {
    let folder = program.parent().unwrap_or(Path::new("/"));
    folder.join("../lib/hawkeye").join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_build_is_where_the_package_has_it() {
        let path = other_build_path(Path::new("/usr/bin/hawkeye"), "hawkeye-16k");
        assert_eq!(path, Path::new("/usr/bin/../lib/hawkeye/hawkeye-16k"));
    }
}
