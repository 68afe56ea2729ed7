//! A limit of this program's own memory, for commands that read files of unknown origin.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::sync::OnceLock;

static MESSAGE: OnceLock<String> = OnceLock::new();

/// Makes this program end with status 1 and `message` where it would need more than `most_bytes`.
///
/// The Parquet library allocates what a file declares. Rust aborts where memory cannot be had, so
/// an error cannot be returned.
pub fn exit_above_memory_limit(most_bytes: u64, message: String) {
    // The first message stays.
    let _ = MESSAGE.set(message + "\n");
    let handler = print_message_and_exit as extern "C" fn(libc::c_int);
    // SAFETY: the handler makes only calls that are allowed in one.
    unsafe { libc::signal(libc::SIGABRT, handler as libc::sighandler_t) };
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_AS) else { return };
    if let Err(error) = setrlimit(Resource::RLIMIT_AS, soft.min(most_bytes), hard) {
        tracing::warn!("can't limit the memory of this program: {error}");
    }
}

extern "C" fn print_message_and_exit(_: libc::c_int) {
    let message = MESSAGE.get().map_or("", String::as_str);
    // SAFETY: both calls are allowed in a signal handler, and the message is never freed.
    unsafe {
        libc::write(libc::STDERR_FILENO, message.as_ptr().cast(), message.len());
        libc::_exit(1);
    }
}
