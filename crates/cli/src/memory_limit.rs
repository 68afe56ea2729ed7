//! A limit of this program's own memory, for commands that read files of unknown origin.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::path::Path;
use std::sync::OnceLock;

static MESSAGE: OnceLock<String> = OnceLock::new();

/// Limits this program to `most_bytes` of memory, or to the user's own limit if that is less. Where
/// `work` needs more, the program ends with status 1 and a message that names the `file`.
///
/// The Parquet library allocates what a file declares. Rust aborts where memory cannot be had, so
/// an error cannot be returned.
pub fn with_memory_limit<T>(most_bytes: u64, file: &Path, work: impl FnOnce() -> T) -> T {
    let Ok((of_user, hard)) = getrlimit(Resource::RLIMIT_AS) else { return work() };
    // The first message stays.
    let _ = MESSAGE.set(message(file, most_bytes, of_user));
    let handler = print_message_and_exit as extern "C" fn(libc::c_int);
    // SAFETY: the handler makes only calls that are allowed in one.
    unsafe { libc::signal(libc::SIGABRT, handler as libc::sighandler_t) };
    if let Err(error) = setrlimit(Resource::RLIMIT_AS, of_user.min(most_bytes), hard) {
        tracing::warn!("can't limit the memory of this program: {error}");
    }
    let done = work();
    // Lifting it cannot fail: the hard limit was not changed.
    let _ = setrlimit(Resource::RLIMIT_AS, of_user, hard);
    // SAFETY: the default action runs no code of this program.
    unsafe { libc::signal(libc::SIGABRT, libc::SIG_DFL) };
    done
}

fn message(file: &Path, most_bytes: u64, of_user: u64) -> String {
    let (limit, advice) = match of_user < most_bytes {
        true => ("your limit (`ulimit -v`)", "raise the limit, or "),
        false => ("the most that a file of its length should need", ""),
    };
    format!(
        "hawkeye: {} needs over {} MiB of memory, {limit}, or it is damaged or not from hawkeye; {advice}record or copy it again\n",
        file.display(),
        of_user.min(most_bytes) >> 20
    )
}

extern "C" fn print_message_and_exit(_: libc::c_int) {
    let message = MESSAGE.get().map_or("", String::as_str);
    // SAFETY: both calls are allowed in a signal handler, and the message is never freed.
    unsafe {
        libc::write(libc::STDERR_FILENO, message.as_ptr().cast(), message.len());
        libc::_exit(1);
    }
}
