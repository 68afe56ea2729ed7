//! The build for this kernel's page sizes. They are constants of a build, because loops over the
//! pages of a region and their tables depend on them. Where kernels may have base pages of 16 KiB,
//! the package has a second program for these.

use crate::output::print_to_stderr;
use hawkeye_linux::probe::base_page_bytes_of_kernel;
use hawkeye_policy::BASE_PAGE_BYTES;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
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
    // A build of the wrong size must not start itself for ever.
    if program.file_name() == Some(OsStr::new(name)) {
        return;
    }
    let Some(path) = resolve_if_safe(&other_build_path(&program, name), &program) else { return };
    let mut arguments = env::args_os();
    let mut command = Command::new(&path);
    command.arg0(arguments.next().unwrap_or_else(|| name.into())).args(arguments);
    let error = command.exec();
    print_to_stderr(&format!("hawkeye: {} can't be started: {error}\n", path.display()));
}

/// The path without links, where the file and its folders belong to the owner of `program` or to
/// root, and no other user may write there. In a folder with the sticky bit others can't replace
/// them. `None` if it is missing, or another user may have put it there.
fn resolve_if_safe(path: &Path, program: &Path) -> Option<PathBuf> {
    let owner = fs::metadata(program).ok()?.uid();
    let path = path.canonicalize().ok().filter(|path| path.is_file())?;
    let is_safe = |path: &Path| {
        fs::metadata(path).is_ok_and(|found| {
            let is_closed =
                found.mode() & 0o022 == 0 || found.is_dir() && found.mode() & 0o1000 != 0;
            [0, owner].contains(&found.uid()) && is_closed
        })
    };
    path.ancestors().all(is_safe).then_some(path)
}

/// Where the package has it: `/usr/lib/hawkeye` beside `/usr/bin`.
fn other_build_path(program: &Path, name: &str) -> PathBuf {
    let folder = program.parent().unwrap_or(Path::new("/"));
    folder.join("../lib/hawkeye").join(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_where_another_user_may_write_is_not_started() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let [program, inner] = ["hawkeye", "lib/hawkeye"].map(|name| folder.path().join(name));
        fs::create_dir_all(&inner).expect("a folder can be made");
        let path = inner.join("hawkeye-16k");
        fs::write(&program, "").expect("the file can be written");
        assert_eq!(resolve_if_safe(&path, &program), None, "it is missing");
        fs::write(&path, "").expect("the file can be written");
        let set_mode = |path: &Path, mode| {
            let mode = fs::Permissions::from_mode(mode);
            fs::set_permissions(path, mode).expect("the mode can be set");
        };
        set_mode(&path, 0o755);
        [&inner, &folder.path().join("lib")].into_iter().for_each(|it| set_mode(it, 0o755));
        assert!(resolve_if_safe(&path, &program).is_some());
        for open in [path.clone(), inner.clone(), folder.path().join("lib")] {
            set_mode(&open, 0o777);
            assert_eq!(resolve_if_safe(&path, &program), None, "{}", open.display());
            set_mode(&open, 0o755);
        }
    }

    #[test]
    fn the_other_build_is_where_the_package_has_it() {
        let path = other_build_path(Path::new("/usr/bin/hawkeye"), "hawkeye-16k");
        assert_eq!(path, Path::new("/usr/bin/../lib/hawkeye/hawkeye-16k"));
    }
}
