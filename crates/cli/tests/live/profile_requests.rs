//! The profiles that workloads ask for by an attribute of their cgroup and by a drop-in of their
//! systemd unit. Neither needs systemd.

use crate::common::{DEADLINE, TestMachine, WORKLOADS, machine, or_skip, started_by, until};
use crate::daemon::RunningDaemon;
use crate::pods::{ONLY_ON_REQUEST, process};
use hawkeye_linux::processes::profile_requests::CGROUP_ATTRIBUTE;
use hawkeye_live_test_support::settings::{self, Changed};
use hawkeye_test_support::this_test;
use hawkeye_workload::WorkloadProcess;
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders that a test has made; removed when dropped, unless they were there before.
struct MadeFolder(Option<PathBuf>);

impl MadeFolder {
    fn at(path: &Path) -> Self {
        let made = (!path.exists()).then(|| path.to_owned());
        fs::create_dir_all(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self(made)
    }
}

impl Drop for MadeFolder {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // A cgroup can be removed once its processes have left it, and its files cannot.
            let removed = || fs::remove_dir(path).or_else(|_| fs::remove_dir_all(path)).is_ok();
            until(DEADLINE, removed);
        }
    }
}

/// A drop-in for a unit that asks for a profile.
fn write_drop_in(folder: &Path, profile: &str) {
    let text = format!("[X-HawkEye]\nProfile={profile}\n");
    fs::write(folder.join("50-hawkeye.conf"), text).expect("the file can be written");
}

/// Sets the attribute of a cgroup that asks for a profile.
fn set_attribute(cgroup: &Path, profile: &str) {
    let path = CString::new(cgroup.as_os_str().as_bytes()).expect("a path");
    let name = CString::new(CGROUP_ATTRIBUTE).expect("a name");
    let (value, bytes) = (profile.as_ptr().cast(), profile.len());
    // SAFETY: the strings end with a zero byte, and the value has that many bytes.
    let result = unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), value, bytes, 0) };
    assert_eq!(result, 0, "{}: {}", cgroup.display(), std::io::Error::last_os_error());
}

fn start_in(cgroup: &Path) -> (WorkloadProcess, u32) {
    let script = "echo $$ >\"$0/cgroup.procs\" && exec \"$@\"";
    let words = "workload bloat --mib 64 --pages default --used 512";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(cgroup).arg(WORKLOADS).args(words.split_whitespace());
    let (program, ready) = started_by(command);
    (program, ready.pid)
}

/// The exit code of `why`, and its text with spaces for line breaks.
fn why(machine: &TestMachine, pid: u32) -> (Option<i32>, String) {
    let why = machine.output(&format!("why {pid}"));
    (why.code, why.out.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[test]
fn cgroups_and_units_get_the_profile_that_they_ask_for() {
    let test = this_test!();
    let machine = or_skip!(machine(test));
    let hierarchies = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
    let unified = |root: &&Path| root.join("cgroup.controllers").exists();
    let Some(root) = hierarchies.into_iter().find(unified) else {
        return test.skip("there is no version 2 cgroup hierarchy");
    };
    let name = format!("hawkeye-test-{}", std::process::id());
    let slice = root.join("system.slice");
    let [guarded, left_alone] = ["guard", "never"].map(|profile| {
        let path = root.join(format!("{name}-{profile}"));
        (MadeFolder::at(&path), path)
    });
    let _slice = MadeFolder::at(&slice);
    let unit = slice.join(format!("{name}.service"));
    let _unit = MadeFolder::at(&unit);
    set_attribute(&guarded.1, "guard");
    set_attribute(&left_alone.1, "never");
    // Not in `/run/systemd/system`, by which programs notice that systemd runs.
    let units = Path::new("/run/systemd/transient");
    let drop_ins = units.join(format!("{name}.service.d"));
    let _units = MadeFolder::at(units);
    let _drop_ins = MadeFolder::at(&drop_ins);
    write_drop_in(&drop_ins, "guard");
    let always = Changed::to([(settings::file("enabled"), "always")]);
    let _always = always.expect("root can change the setting");
    let [(_first, by_attribute), (_second, by_unit), (_third, never)] =
        [&guarded.1, &unit, &left_alone.1].map(|cgroup| start_in(cgroup));

    let daemon = RunningDaemon::start_by(&machine, ONLY_ON_REQUEST);
    daemon.wait_for_status(DEADLINE, |status| status["managed"] == 2);
    let status = daemon.status();
    for (pid, source) in [(by_attribute, "its cgroup"), (by_unit, "its systemd unit")] {
        let process = process(&status, pid);
        assert_eq!(process["terms"]["profile"], "guard", "{process}");
        assert_eq!(process["terms"]["promotes"], false, "{process}");
        let request = format!("{source} asks for the profile \"guard\"");
        assert_eq!(process["profile_request"], request, "{process}");
        let (code, text) = why(&machine, pid);
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains(&format!("Request: {request}.")), "{text}");
    }
    let (code, text) = why(&machine, never);
    assert_eq!(code, Some(1), "{text}");
    for part in [
        "is left alone: its cgroup asks for the profile \"never\"",
        "enabled=always gives it huge pages all the same",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    daemon.end();
}
