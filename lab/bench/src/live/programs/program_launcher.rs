//! How programs are started: directly, or by `hawkeye run`.

use hawkeye_linux::processes::process::pids_of_process_and_descendants;
use nix::sys::signal::Signal;
use std::cell::{Cell, RefCell};
use std::ffi::{OsStr, OsString};
use std::process::Command;
use std::time::Instant;

thread_local! {
    static LAUNCHER: RefCell<Option<Vec<OsString>>> = const { RefCell::new(None) };
    static LATEST_START: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Starts programs as users do while `work` runs in this thread: by `launcher`, a command and its
/// first arguments; directly where it is empty.
pub(in crate::live) fn run_with_launcher<T>(
    launcher: Vec<OsString>,
    work: impl FnOnce() -> T,
) -> T {
    let before = LAUNCHER.replace(Some(launcher));
    let done = work();
    LAUNCHER.replace(before);
    done
}

/// Whether programs are started by a launcher now. It would inherit their cores.
pub(super) fn is_launcher_active() -> bool {
    LAUNCHER.with_borrow(|launcher| launcher.as_ref().is_some_and(|words| !words.is_empty()))
}

/// Whether programs must not request huge pages themselves. Otherwise there would be no base pages
/// to compare with; but a user's program requests them.
pub(super) fn must_start_on_base_pages() -> bool {
    LAUNCHER.with_borrow(Option::is_none)
}

/// When this thread last started a measured program. What was compiled or written to files for it
/// came before.
pub(in crate::live) fn latest_program_start() -> Option<Instant> {
    LATEST_START.get()
}

/// The signal that ends a program that was just started; `otherwise` without a launcher. A launcher
/// passes SIGTERM on and restores settings.
pub(super) fn end_signal(otherwise: Signal) -> Signal {
    match is_launcher_active() {
        true => Signal::SIGTERM,
        false => otherwise,
    }
}

/// A command that starts `program` now; its arguments follow.
pub(super) fn command_through_launcher(program: impl AsRef<OsStr>) -> Command {
    LATEST_START.set(Some(Instant::now()));
    LAUNCHER.with_borrow(|launcher| match launcher.as_ref().and_then(|words| words.split_first()) {
        Some((first, rest)) => {
            let mut command = Command::new(first);
            command.args(rest).arg(program.as_ref());
            command
        }
        None => Command::new(program),
    })
}

pub(in crate::live) fn process_name(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
    name.unwrap_or_default().trim_end().to_owned()
}

/// Whether it is a manager or one of its helpers, which are called `hawkeye-call` and
/// `hawkeye-reserve`.
pub(in crate::live) fn is_manager_process(pid: u32) -> bool {
    let name = process_name(pid);
    name == "hawkeye" || name.starts_with("hawkeye-") && !name.starts_with("hawkeye-lab")
}

/// The program itself, where `pid` is that of its `hawkeye run`.
pub(in crate::live) fn managed_program_pid(pid: u32) -> u32 {
    if !is_manager_process(pid) {
        return pid;
    }
    let mut family = pids_of_process_and_descendants(pid);
    family.find(|pid| !is_manager_process(*pid)).unwrap_or(pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launcher_comes_first_and_only_while_it_is_set() {
        let launcher = ["hawkeye", "run", "--"].map(OsString::from).to_vec();
        let command = run_with_launcher(launcher, || command_through_launcher("redis-server"));
        let words: Vec<_> = command.get_args().collect();
        assert_eq!(command.get_program(), "hawkeye");
        assert_eq!(words, ["run", "--", "redis-server"]);
        assert_eq!(command_through_launcher("x").get_program(), "x");
        assert!(must_start_on_base_pages());
        run_with_launcher(Vec::new(), || {
            assert_eq!(command_through_launcher("x").get_program(), "x");
            assert!(!is_launcher_active() && !must_start_on_base_pages());
        });
    }
}
