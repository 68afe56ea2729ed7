//! Error numbers of the kernel.

use serde::{Deserialize, Serialize};

/// An error number that calls into processes give. Its `Display` is the symbolic name.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Deserialize,
    Serialize,
    strum::Display,
    strum::EnumString,
)]
pub enum Errno {
    /// Permission denied.
    EACCES,
    /// Try again.
    EAGAIN,
    /// Bad file descriptor.
    EBADF,
    /// Device or resource busy.
    EBUSY,
    /// Bad address.
    EFAULT,
    /// Interrupted by a signal.
    EINTR,
    /// Invalid argument: the memory is not of a kind that the call works on.
    EINVAL,
    /// Input or output error.
    EIO,
    /// Out of memory; for a promotion: no huge page was available.
    ENOMEM,
    /// The kernel does not implement the call.
    ENOSYS,
    /// Not permitted.
    EPERM,
    /// No such process.
    ESRCH,
    /// Any other.
    #[serde(rename = "other")]
    #[strum(serialize = "other")]
    Other,
}
