//! Error numbers of the kernel.

use serde::Serialize;
use std::fmt;

/// An error number that calls into processes give. Its `Display` is the symbolic name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Errno {
    /// Permission denied.
    EACCES,
    /// Try again.
    EAGAIN,
    /// Bad file descriptor.
    EBADF,
    /// Somebody else holds on to it.
    EBUSY,
    /// Bad address.
    EFAULT,
    /// Interrupted by a signal.
    EINTR,
    /// Invalid argument: the memory is not of the kind that the call works on.
    EINVAL,
    /// Input or output error.
    EIO,
    /// No memory; for a promotion: no huge page could be had.
    ENOMEM,
    /// The kernel does not have the call.
    ENOSYS,
    /// Not permitted.
    EPERM,
    /// No such process.
    ESRCH,
    /// Any other.
    #[serde(rename = "other")]
    Other,
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other => f.write_str("other"),
            named => write!(f, "{named:?}"),
        }
    }
}
