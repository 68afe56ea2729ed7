//! Who a process is, as far as a person would describe it: by command, user and where it runs.

use serde::Serialize;
use std::fmt;

/// What rules look at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Identity {
    /// Its name as `ps` and `top` show it: at most 15 bytes, and a program may change it.
    pub command: String,
    /// The name of the file it executes, without the folder; `None` where that can't be read.
    pub executable: Option<String>,
    /// Its effective user's name, or the number where the user has none or the name is not known yet.
    pub user: String,
    /// Whether the name of its user is still being looked up.
    #[serde(skip)]
    pub user_pending: bool,
    /// Its effective user's number.
    pub uid: u32,
    /// Path of its cgroup, from the root of the hierarchy ("/" is the root itself).
    pub cgroup: String,
    /// The systemd unit it belongs to, as `systemctl` names it.
    pub unit: Option<String>,
    /// The Kubernetes pod it belongs to.
    pub pod: Option<Pod>,
    /// The id of its container, of whatever runtime.
    pub container: Option<String>,
}

/// A Kubernetes pod, as its cgroup tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pod {
    /// The pod's uid, with hyphens as `kubectl` shows it.
    pub uid: String,
    /// How the kubelet treats it when resources are short.
    pub qos: QosClass,
}

/// Quality-of-service classes of pods (kubernetes.io, "Pod Quality of Service Classes").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum QosClass {
    /// Requests equal limits, for every container.
    Guaranteed,
    /// Some request or limit.
    Burstable,
    /// None.
    BestEffort,
}

impl QosClass {
    /// As it is written in cgroup paths and in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Guaranteed => "guaranteed",
            Self::Burstable => "burstable",
            Self::BestEffort => "besteffort",
        }
    }
}

impl fmt::Display for QosClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
