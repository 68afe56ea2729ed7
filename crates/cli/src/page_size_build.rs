//! The build for this kernel's page sizes. They are constants of a build, because loops over the
//! pages of a region and their tables depend on them. The package for arm64 has a second program,
//! for base pages of 16 KiB.

use crate::output::print_to_stderr;
use hawkeye_linux::probe::base_page_bytes_of_kernel;
use hawkeye_policy::BASE_PAGE_BYTES;
use std::env;
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
    let mut paths = other_build_paths(&program, name).into_iter();
    let Some(path) = paths.find(|path| path.is_file()) else { return };
    let mut arguments = env::args_os();
    let mut command = Command::new(&path);
    command.arg0(arguments.next().unwrap_or_else(|| name.into())).args(arguments);
    let error = command.exec();
    print_to_stderr(&format!("hawkeye: {} can't be started: {error}\n", path.display()));
}

/// Beside the program, as cargo builds it, and where the package has it.
fn other_build_paths(program: &Path, name: &str) -> [PathBuf; 2] {
    let folder = program.parent().unwrap_or(Path::new("/"));
    [folder.join(name), folder.join("../lib/hawkeye").join(name)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_build_is_beside_the_program_or_in_the_library_folder() {
        let paths = other_build_paths(Path::new("/usr/bin/hawkeye"), "hawkeye-16k");
        let expected = ["/usr/bin/hawkeye-16k", "/usr/bin/../lib/hawkeye/hawkeye-16k"];
        assert_eq!(paths, expected.map(PathBuf::from));
    }
}
