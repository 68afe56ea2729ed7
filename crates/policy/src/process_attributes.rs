//! Identity of a process in terms that users know: command, user, and where it runs.

use crate::workload_profile::ProfileRequest;
use serde::Serialize;

/// The properties that rules check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ProcessAttributes {
    /// Its name as `ps` and `top` show it: at most 15 bytes, and a program may change it.
    pub command: String,
    /// The name of the file it executes, without the folder; `None` where it cannot be read.
    pub executable: Option<String>,
    /// Name of its effective user. The number where the user has no name, or the name is not known
    /// yet.
    pub user: String,
    /// Whether the name of its user is still being looked up.
    #[serde(skip)]
    pub user_pending: bool,
    /// Its effective user's number.
    pub uid: u32,
    /// Path of its cgroup, from the root of the hierarchy ("/" is the root itself).
    pub cgroup: String,
    /// The unit of the system's systemd that it belongs to, as `systemctl` names it.
    pub unit: Option<String>,
    /// The Kubernetes pod it belongs to.
    pub pod: Option<Pod>,
    /// The id of its container, of whatever runtime.
    pub container: Option<String>,
    /// The profile that its workload asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile_request: Option<ProfileRequest>,
    /// Whether the container runtime has not yet said which profile its pod asks for.
    #[serde(skip)]
    pub request_pending: bool,
}

/// A Kubernetes pod, as read from the process's cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pod {
    /// The pod's uid, with hyphens as `kubectl` shows it.
    pub uid: String,
    /// How the kubelet treats the pod when resources are short.
    pub qos: QosClass,
}

/// Quality-of-service classes of pods (kubernetes.io, "Pod Quality of Service Classes").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::Display, strum::IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum QosClass {
    /// Requests equal limits, for every container.
    Guaranteed,
    /// At least one request or limit.
    Burstable,
    /// No request or limit.
    BestEffort,
}

impl QosClass {
    /// The name used in cgroup paths and in the configuration.
    pub fn name(self) -> &'static str {
        self.into()
    }
}
