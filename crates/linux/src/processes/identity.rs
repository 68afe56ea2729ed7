//! Who a process is: command, user, cgroup, and what the cgroup's path tells about unit, pod and
//! container.

use crate::error::{LinuxError, Result};
use crate::processes::user_names::UserNames;
use hawkeye_policy::{Identity, Pod, QosClass};
use procfs::ProcError;
use procfs::process::Process;
use std::fs;
use std::io;

/// Reads the identity of a process. It does not wait for the name service: [`Identity::user_pending`] says
/// whether that has still to answer.
///
/// # Errors
/// The process has ended, or its files can't be read.
pub fn identify(pid: u32, users: &UserNames) -> Result<Identity> {
    let failed = |error| unreadable(pid, error);
    let process = crate::processes::process::entry(pid).map_err(failed)?;
    let status = process.status().map_err(failed)?;
    let command = process.stat().map_err(failed)?.comm;
    // Kernels without cgroups, and processes that end meanwhile, have none to show.
    let cgroups = fs::read(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let place = Place::of(&cgroup_path(&String::from_utf8_lossy(&cgroups)));
    let user = users.name(status.euid);
    Ok(Identity {
        command,
        executable: executable(&process),
        user: user.text,
        user_pending: user.pending,
        uid: status.euid,
        cgroup: place.cgroup,
        unit: place.unit,
        pod: place.pod,
        container: place.container,
    })
}

/// Why a process could not be read: most often it has ended.
fn unreadable(pid: u32, error: ProcError) -> LinuxError {
    let source = match error {
        ProcError::NotFound(_) => return LinuxError::NoSuchProcess(pid),
        ProcError::Io(error, _) if error.raw_os_error() == Some(libc::ESRCH) => {
            return LinuxError::NoSuchProcess(pid);
        }
        ProcError::Io(error, _) => error,
        other => io::Error::other(other),
    };
    LinuxError::file("reading", format!("/proc/{pid}"))(source)
}

/// The executable's name; of one that was replaced (by an upgrade, say) the name that it had.
fn executable(process: &Process) -> Option<String> {
    let path = process.exe().ok()?;
    let name = path.file_name()?.to_string_lossy();
    Some(name.strip_suffix(" (deleted)").unwrap_or(&name).to_owned())
}

/// The path that says most in `/proc/PID/cgroup`: of the unified hierarchy, else of version 1's memory
/// controller, else systemd's own. Where several are mounted, the unused ones show the root.
fn cgroup_path(text: &str) -> String {
    let hierarchies = || {
        text.lines().filter_map(|line| {
            let mut fields = line.splitn(3, ':');
            let number = fields.next()?;
            let controllers = fields.next()?;
            Some((number, controllers, fields.next()?))
        })
    };
    let unified =
        hierarchies().find(|(number, controllers, _)| *number == "0" && controllers.is_empty());
    let with = |wanted: &str| {
        hierarchies().find(|(_, controllers, _)| controllers.split(',').any(|name| name == wanted))
    };
    let path = [unified, with("memory"), with("name=systemd")]
        .into_iter()
        .flatten()
        .map(|(.., path)| path)
        .find(|path| *path != "/")
        .unwrap_or("/");
    path.strip_suffix(" (deleted)").unwrap_or(path).to_owned()
}

/// What a cgroup's path tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Place {
    cgroup: String,
    unit: Option<String>,
    pod: Option<Pod>,
    container: Option<String>,
}

impl Place {
    fn of(cgroup: &str) -> Self {
        let parts: Vec<&str> = cgroup.split('/').filter(|part| !part.is_empty()).collect();
        Self {
            unit: unit(&parts),
            pod: pod(&parts),
            container: parts.iter().rev().find_map(|part| container_id(part)),
            cgroup: cgroup.to_owned(),
        }
    }
}

/// The first unit below the slices, as `systemctl` shows it; under a user's manager, that one's unit.
fn unit(parts: &[&str]) -> Option<String> {
    let mut units = parts
        .iter()
        // What would read as a control file's name has an underscore before it (systemd, cg_escape).
        .map(|part| part.strip_prefix('_').unwrap_or(part))
        .filter(|part| {
            let kind = part.rsplit_once('.').map(|(_, kind)| kind);
            matches!(
                kind,
                Some("service" | "scope" | "mount" | "swap" | "socket")
            )
        });
    let first = units.next()?;
    let own = if first.starts_with("user@") {
        units.next()
    } else {
        None
    };
    Some(own.unwrap_or(first).to_owned())
}

/// The Kubernetes pod: `kubepods-burstable-pod<uid>.slice` where systemd manages cgroups,
/// `kubepods/burstable/pod<uid>` where the kubelet does.
fn pod(parts: &[&str]) -> Option<Pod> {
    let kubepods = parts.iter().position(|part| part.contains("kubepods"))?;
    let (at, uid) = parts
        .iter()
        .enumerate()
        .skip(kubepods)
        .find_map(|(at, part)| {
            let name = match part.strip_suffix(".slice") {
                Some(slice) => slice.rsplit('-').next()?,
                None => part,
            };
            let uid = name.strip_prefix("pod").filter(|uid| is_pod_uid(uid))?;
            Some((at, uid))
        })?;
    let above = &parts[kubepods..=at];
    let class = |name: &str| {
        above.iter().any(|part| {
            part.trim_end_matches(".slice")
                .split('-')
                .any(|word| word == name)
        })
    };
    let qos = [QosClass::Burstable, QosClass::BestEffort]
        .into_iter()
        .find(|qos| class(qos.name()))
        .unwrap_or(QosClass::Guaranteed);
    Some(Pod {
        // A hyphen in a slice's name would mean a slice above it.
        uid: uid.replace('_', "-"),
        qos,
    })
}

/// A UUID, or the hash that static pods have.
fn is_pod_uid(uid: &str) -> bool {
    let digits = uid.bytes().filter(u8::is_ascii_hexdigit).count();
    let others = uid
        .bytes()
        .all(|b| b.is_ascii_hexdigit() || b == b'-' || b == b'_');
    digits == 32 && others
}

/// The id in `docker-<id>.scope`, `cri-containerd-<id>.scope`, `libpod-<id>.scope`, or alone.
fn container_id(part: &str) -> Option<String> {
    let name = part.strip_suffix(".scope").unwrap_or(part);
    let (runtime, id) = name.rsplit_once('-').unwrap_or(("", name));
    let is_id = id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit());
    // conmon watches a container from outside of it.
    (is_id && !runtime.ends_with("conmon")).then(|| id.to_owned())
}

#[cfg(test)]
mod tests;
