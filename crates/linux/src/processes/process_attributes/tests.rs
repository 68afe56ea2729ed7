//! Paths as found on real machines.

use super::*;

const ID: &str = "4f3c1e0d9b8a7f6e5d4c3b2a19081f2e3d4c5b6a79880f1e2d3c4b5a69788f0e";
const UID: &str = "0f7c2c2f-1e6b-4a4e-9f57-2f5b0f3f7f10";
const SLICE_UID: &str = "0f7c2c2f_1e6b_4a4e_9f57_2f5b0f3f7f10";

fn unit_of(path: &str) -> Option<String> {
    attributes_from_cgroup(path).unit
}

fn in_pod(path: &str) -> Option<(String, QosClass)> {
    attributes_from_cgroup(path).pod.map(|pod| (pod.uid, pod.qos))
}

#[test]
fn the_most_specific_cgroup_path_is_taken() {
    for (text, path) in [
        ("0::/system.slice/a.service\n", "/system.slice/a.service"),
        // A path may contain colons.
        ("0::/a:b c\n", "/a:b c"),
        ("0::/gone (deleted)\n", "/gone"),
        ("", "/"),
        ("rubbish\n1\n:::\n", "/"),
        // Version 1: the memory controller's, or systemd's own.
        (
            "12:pids:/user.slice\n9:cpu,memory:/docker/abc\n1:name=systemd:/docker/xyz\n",
            "/docker/abc",
        ),
        ("4:memory:/\n1:name=systemd:/x/cron.service\n0::/\n", "/x/cron.service"),
        (
            "4:memory:/docker/abc\n1:name=systemd:/docker/abc\n0::/x/containerd.service\n",
            "/x/containerd.service",
        ),
    ] {
        assert_eq!(most_specific_cgroup_path(text), path, "{text}");
    }
}

#[test]
fn units_of_the_system_are_a_unit_and_the_slices_above_it() {
    for (path, units) in [
        ("/system.slice/redis.service/workers", &["redis.service", "system.slice"][..]),
        ("/system.slice/_cpu.service", &["cpu.service", "system.slice"]),
        (
            "/user.slice/user-7.slice/user@7.service/app.slice/redis.service",
            &["user@7.service", "user-7.slice", "user.slice"],
        ),
        ("/init.scope", &["init.scope"]),
        ("/batch/redis.service", &[]),
        ("/../redis.service", &[]),
        ("/", &[]),
    ] {
        assert_eq!(system_units_of_cgroup(path), units, "{path}");
    }
}

#[test]
fn units_are_named_as_systemctl_names_them() {
    const USER: &str = "/user.slice/user-1000.slice";
    for (path, unit) in [
        ("/system.slice/redis-server.service", "redis-server.service"),
        ("/init.scope", "init.scope"),
        (
            "/system.slice/system-postgresql.slice/postgresql@15-main.service",
            "postgresql@15-main.service",
        ),
        (
            r"/system.slice/system-systemd\x2dfsck.slice/systemd-fsck@dev-disk-by\x2duuid-AB.service",
            r"systemd-fsck@dev-disk-by\x2duuid-AB.service",
        ),
        ("/system.slice/_cpu.service", "cpu.service"),
        // A service may have cgroups of its own below its unit.
        ("/system.slice/docker.service/workers/7", "docker.service"),
        (&format!("{USER}/session-3.scope"), "session-3.scope"),
        (
            &format!(
                "{USER}/user@1000.service/app.slice/app-org.gnome.Terminal.slice/vte-spawn-1.scope"
            ),
            "user@1000.service",
        ),
        // A user can start a unit of any name under its own manager.
        (&format!("{USER}/user@1000.service/app.slice/redis-server.service"), "user@1000.service"),
        (&format!("{USER}/user@1000.service"), "user@1000.service"),
    ] {
        assert_eq!(unit_of(path).as_deref(), Some(unit), "{path}");
    }
    for none in ["/", "", "/docker/abc", "/user.slice", "/kubepods/burstable"] {
        assert_eq!(unit_of(none), None, "{none}");
    }
}

#[test]
fn pods_are_recognised_under_both_drivers() {
    let systemd = "/kubepods.slice/kubepods-burstable.slice";
    let systemd =
        format!("{systemd}/kubepods-burstable-pod{SLICE_UID}.slice/cri-containerd-{ID}.scope");
    let scope = format!("cri-containerd-{ID}.scope");
    assert_eq!(unit_of(&systemd), Some(scope));
    let cgroupfs = format!("/kubepods/burstable/pod{UID}/{ID}");
    for path in [&systemd, &cgroupfs] {
        assert_eq!(attributes_from_cgroup(path).container.as_deref(), Some(ID));
    }
    let kind = "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod";
    let hash = UID.replace('-', "");
    for (path, uid, qos) in [
        (systemd, UID, QosClass::Burstable),
        (
            format!("/kubepods.slice/kubepods-pod{SLICE_UID}.slice/crio-{ID}.scope"),
            UID,
            QosClass::Guaranteed,
        ),
        (format!("{kind}{SLICE_UID}.slice/cri-containerd-{ID}.scope"), UID, QosClass::BestEffort),
        (cgroupfs, UID, QosClass::Burstable),
        (format!("/kubepods/pod{UID}/{ID}"), UID, QosClass::Guaranteed),
        // A static pod.
        (format!("/kubepods/besteffort/pod{hash}/{ID}"), &hash, QosClass::BestEffort),
        (format!("/docker/{ID}/kubepods/burstable/pod{UID}"), UID, QosClass::Burstable),
    ] {
        assert_eq!(in_pod(&path), Some((uid.into(), qos)), "{path}");
    }
    for path in [
        "/kubepods.slice/kubepods-burstable.slice",
        "/kubepods/burstable/podium",
        "/kubepods.slice/kubepods-podman.slice",
        &format!("/system.slice/pod{UID}"),
        // A user may name cgroups as a kubelet does.
        &format!("/user.slice/user-7.slice/user@7.service/kubepods-pod{SLICE_UID}.slice/{ID}"),
    ] {
        assert_eq!(in_pod(path), None, "{path}");
    }
}

#[test]
fn containers_of_every_runtime_have_an_id() {
    for (path, found) in [
        (format!("/system.slice/docker-{ID}.scope"), Some(ID)),
        (format!("/docker/{ID}"), Some(ID)),
        (format!("/machine.slice/libpod-{ID}.scope/container"), Some(ID)),
        (format!("/docker/{ID}/init"), Some(ID)),
        (format!("/machine.slice/libpod-conmon-{ID}.scope"), None),
        ("/system.slice/ssh.service".into(), None),
    ] {
        assert_eq!(attributes_from_cgroup(&path).container.as_deref(), found, "{path}");
    }
}

#[test]
fn this_process_is_known() {
    let users = UserNames::default();
    let identity =
        read_process_attributes(std::process::id(), &users).expect("this process exists");
    assert_eq!(identity.uid, nix::unistd::geteuid().as_raw());
    let executable = identity.executable.expect("our own executable can be read");
    assert!(executable.starts_with(&identity.command), "{executable}");
    assert!(identity.cgroup.starts_with('/'));
    assert!(read_process_attributes(u32::MAX / 2, &users).is_err());
}
