//! How programs are started: directly, or by `hawkeye run`.

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::process::Command;

thread_local! {
    static LAUNCHER: RefCell<Vec<OsString>> = const { RefCell::new(Vec::new()) };
}

/// Starts programs by `launcher`, a command and its first arguments, while `work` runs in this
/// thread.
pub(in crate::live) fn with_launcher<T>(launcher: Vec<OsString>, work: impl FnOnce() -> T) -> T {
    let before = LAUNCHER.replace(launcher);
    let done = work();
    LAUNCHER.replace(before);
    done
}

/// Whether programs are started by a launcher now. It would inherit their cores.
pub(super) fn has_launcher() -> bool {
    LAUNCHER.with_borrow(|launcher| !launcher.is_empty())
}

/// A command that starts `program`; its arguments follow.
pub(super) fn program_command(program: impl AsRef<OsStr>) -> Command {
    LAUNCHER.with_borrow(|launcher| match launcher.split_first() {
        Some((first, rest)) => {
            let mut command = Command::new(first);
            command.args(rest).arg(program.as_ref());
            command
        }
        None => Command::new(program),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launcher_comes_first_and_only_while_it_is_set() {
        let launcher = ["hawkeye", "run", "--"].map(OsString::from).to_vec();
        let command = with_launcher(launcher, || program_command("redis-server"));
        let words: Vec<_> = command.get_args().collect();
        assert_eq!(command.get_program(), "hawkeye");
        assert_eq!(words, ["run", "--", "redis-server"]);
        assert_eq!(program_command("x").get_program(), "x");
    }
}
