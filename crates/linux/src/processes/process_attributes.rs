//! Identifies a process: its command, user and cgroup, and the unit, pod and container that the
//! cgroup's path names.

use crate::error::{LinuxError, Result};
use crate::memory::cgroup_limits::process_cgroup::{OwnPlace, leads_out};
use crate::processes::process::{open_proc_entry, read_status};
use crate::processes::user_names::UserNames;
use hawkeye_policy::{Pod, ProcessAttributes, QosClass};
use procfs::process::Process;
use procfs::{FromBufRead, ProcError, ProcessCGroup, ProcessCGroups};
use std::fs;
use std::io;
use std::path::Path;

/// Reads the identity of a process. It does not wait for the name service:
/// [`ProcessAttributes::user_pending`] shows whether that has not answered yet.
pub fn read_process_attributes(pid: u32, users: &UserNames) -> Result<ProcessAttributes> {
    let failed = |error| unreadable_process_error(pid, error);
    let process = open_proc_entry(pid).map_err(failed)?;
    let status = read_status(&process).map_err(failed)?;
    let command = process.stat().map_err(failed)?.comm;
    // Empty on kernels without cgroups, and for processes that end meanwhile.
    let cgroups = fs::read(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let shown = most_specific_cgroup_path(&String::from_utf8_lossy(&cgroups));
    let below_mount = OwnPlace::of_this_process().path_below_mount(Path::new(&shown));
    let cgroup = if leads_out(&below_mount) { shown.into() } else { below_mount };
    let user = users.name(status.euid);
    Ok(ProcessAttributes {
        command,
        executable: executable_name(&process),
        user: user.text,
        user_pending: user.pending,
        uid: status.euid,
        ..attributes_from_cgroup(&cgroup.to_string_lossy())
    })
}

/// The error for a process that could not be read, most often because it has ended.
fn unreadable_process_error(pid: u32, error: ProcError) -> LinuxError {
    let source = match error {
        ProcError::NotFound(_) => return LinuxError::NoSuchProcess(pid),
        ProcError::Io(error, _) if error.raw_os_error() == Some(libc::ESRCH) => {
            return LinuxError::NoSuchProcess(pid);
        }
        ProcError::Io(error, _) => error,
        other => io::Error::other(other),
    };
    LinuxError::wrap_io_error("reading", format!("/proc/{pid}"))(source)
}

/// The executable's name. If the file was replaced, by an upgrade for example, its former name.
fn executable_name(process: &Process) -> Option<String> {
    let path = process.exe().ok()?;
    let name = path.file_name()?.to_string_lossy();
    Some(name.strip_suffix(" (deleted)").unwrap_or(&name).to_owned())
}

/// The most specific path in `/proc/PID/cgroup`. That is the unified hierarchy's, else version 1's
/// memory controller's, else systemd's own. Where several are mounted, the unused ones show the
/// root.
fn most_specific_cgroup_path(text: &str) -> String {
    let groups = ProcessCGroups::from_buf_read(text.as_bytes());
    let groups = groups.map_or_else(|_| Vec::new(), |groups| groups.0);
    let unified = groups.iter().find(|group| group.hierarchy == 0);
    let with = |wanted: &str| {
        let has_it = |group: &&ProcessCGroup| group.controllers.iter().any(|name| name == wanted);
        groups.iter().find(has_it)
    };
    let path = [unified, with("memory"), with("name=systemd")]
        .into_iter()
        .flatten()
        .map(|group| group.pathname.as_str())
        .find(|path| *path != "/")
        .unwrap_or("/");
    path.strip_suffix(" (deleted)").unwrap_or(path).to_owned()
}

/// The parts of an identity that a cgroup's path names.
fn attributes_from_cgroup(cgroup: &str) -> ProcessAttributes {
    let parts: Vec<&str> = cgroup.split('/').filter(|part| !part.is_empty()).collect();
    ProcessAttributes {
        unit: outermost_systemd_unit(&parts),
        pod: kubernetes_pod_of_cgroup(&parts),
        container: parts.iter().rev().find_map(|part| container_id_from_cgroup_part(part)),
        cgroup: cgroup.to_owned(),
        ..ProcessAttributes::default()
    }
}

/// The first unit below the slices, as `systemctl` shows it. Units of a user's manager do not
/// count: the user chooses their names, and a rule for a service must not apply to them.
fn outermost_systemd_unit(parts: &[&str]) -> Option<String> {
    let mut names = parts.iter().map(|part| unescape_cgroup_name(part));
    names.find(|name| is_systemd_unit(name)).map(str::to_owned)
}

/// systemd puts an underscore before a name that could be a control file's (cg_escape).
fn unescape_cgroup_name(name: &str) -> &str {
    name.strip_prefix('_').unwrap_or(name)
}

/// Whether this is the name of a unit with processes. A slice has none of its own.
fn is_systemd_unit(name: &str) -> bool {
    const KINDS: [&str; 5] = ["service", "scope", "mount", "swap", "socket"];
    name.rsplit_once('.').is_some_and(|(_, kind)| KINDS.contains(&kind))
}

/// The units of the system's manager that a cgroup's path names, the innermost first: a unit, and
/// the slices above it. What is below belongs to that unit: to a user's manager, for example.
pub(crate) fn system_units_of_cgroup(cgroup: &str) -> Vec<&str> {
    let mut units = Vec::new();
    for name in cgroup.split('/').filter(|part| !part.is_empty()).map(unescape_cgroup_name) {
        let is_slice = name.ends_with(".slice");
        if is_slice || is_systemd_unit(name) {
            units.push(name);
        }
        if !is_slice {
            break;
        }
    }
    units.reverse();
    units
}

/// The Kubernetes pod. Its cgroup is `kubepods-burstable-pod<uid>.slice` where systemd manages
/// cgroups, and `kubepods/burstable/pod<uid>` where the kubelet does. Users name cgroups below
/// `user.slice`, so none there is a pod.
fn kubernetes_pod_of_cgroup(parts: &[&str]) -> Option<Pod> {
    let kubepods = parts.iter().position(|part| part.contains("kubepods"))?;
    if parts[..kubepods].contains(&"user.slice") {
        return None;
    }
    let mut below = parts.iter().enumerate().skip(kubepods);
    let (at, uid) = below.find_map(|(at, part)| {
        let name = match part.strip_suffix(".slice") {
            Some(slice) => slice.rsplit('-').next()?,
            None => part,
        };
        let uid = name.strip_prefix("pod").filter(|uid| is_pod_uid(uid))?;
        Some((at, uid))
    })?;
    let above = parts[kubepods..=at].iter();
    let words = above.flat_map(|part| part.trim_end_matches(".slice").split('-'));
    let words: Vec<&str> = words.collect();
    let qos = [QosClass::Burstable, QosClass::BestEffort]
        .into_iter()
        .find(|qos| words.contains(&qos.name()))
        .unwrap_or(QosClass::Guaranteed);
    Some(Pod {
        // systemd reads a hyphen in a slice's name as a parent, so the uid has underscores.
        uid: uid.replace('_', "-"),
        qos,
    })
}

/// A UUID, or the hash of a static pod.
fn is_pod_uid(uid: &str) -> bool {
    let digits = uid.bytes().filter(u8::is_ascii_hexdigit).count();
    let others = uid.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-' || b == b'_');
    digits == 32 && others
}

/// The id in `docker-<id>.scope`, `cri-containerd-<id>.scope` or `libpod-<id>.scope`, or the id
/// alone.
fn container_id_from_cgroup_part(part: &str) -> Option<String> {
    let name = part.strip_suffix(".scope").unwrap_or(part);
    let (runtime, id) = name.rsplit_once('-').unwrap_or(("", name));
    let is_id = id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit());
    // conmon monitors a container and runs outside it.
    (is_id && !runtime.ends_with("conmon")).then(|| id.to_owned())
}

#[cfg(test)]
mod tests;
