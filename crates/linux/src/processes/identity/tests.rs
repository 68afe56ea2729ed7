//! Paths as they are found on real machines.

use super::*;

const ID: &str = "4f3c1e0d9b8a7f6e5d4c3b2a19081f2e3d4c5b6a79880f1e2d3c4b5a69788f0e";
const UID: &str = "0f7c2c2f-1e6b-4a4e-9f57-2f5b0f3f7f10";
const SLICE_UID: &str = "0f7c2c2f_1e6b_4a4e_9f57_2f5b0f3f7f10";

fn unit_of(path: &str) -> Option<String> {
    Place::of(path).unit
}

fn in_pod(path: &str) -> Option<(String, QosClass)> {
    Place::of(path).pod.map(|pod| (pod.uid, pod.qos))
}

#[test]
fn the_unified_hierarchy_comes_first() {
    assert_eq!(
        cgroup_path("0::/system.slice/redis-server.service\n"),
        "/system.slice/redis-server.service"
    );
    assert_eq!(cgroup_path("0::/a:b c\n"), "/a:b c", "colons are allowed");
    assert_eq!(cgroup_path("0::/gone (deleted)\n"), "/gone");
    assert_eq!(cgroup_path(""), "/");
    assert_eq!(cgroup_path("rubbish\n1\n:::\n"), "/");
}

#[test]
fn version_1_shows_the_memory_controller_or_systemds_own() {
    let text = "12:pids:/user.slice\n9:cpu,memory:/docker/abc\n1:name=systemd:/docker/xyz\n";
    assert_eq!(cgroup_path(text), "/docker/abc");
    let text = "4:memory:/\n1:name=systemd:/system.slice/cron.service\n0::/\n";
    assert_eq!(cgroup_path(text), "/system.slice/cron.service");
    let hybrid =
        "4:memory:/docker/abc\n1:name=systemd:/docker/abc\n0::/system.slice/containerd.service\n";
    assert_eq!(cgroup_path(hybrid), "/system.slice/containerd.service");
}

#[test]
fn units_are_named_as_systemctl_names_them() {
    let unit = |path| unit_of(path).unwrap_or_default();
    assert_eq!(
        unit("/system.slice/redis-server.service"),
        "redis-server.service"
    );
    assert_eq!(unit("/init.scope"), "init.scope");
    assert_eq!(
        unit("/system.slice/system-postgresql.slice/postgresql@15-main.service"),
        "postgresql@15-main.service"
    );
    assert_eq!(
        unit(
            r"/system.slice/system-systemd\x2dfsck.slice/systemd-fsck@dev-disk-by\x2duuid-AB.service"
        ),
        r"systemd-fsck@dev-disk-by\x2duuid-AB.service"
    );
    assert_eq!(unit("/system.slice/_cpu.service"), "cpu.service");
    assert_eq!(
        unit("/system.slice/docker.service/workers/7"),
        "docker.service",
        "a service may have cgroups of its own below"
    );
    assert_eq!(
        unit("/user.slice/user-1000.slice/session-3.scope"),
        "session-3.scope"
    );
    assert_eq!(
        unit(
            "/user.slice/user-1000.slice/user@1000.service/app.slice/app-org.gnome.Terminal.slice/vte-spawn-1.scope"
        ),
        "vte-spawn-1.scope"
    );
    assert_eq!(
        unit("/user.slice/user-1000.slice/user@1000.service"),
        "user@1000.service"
    );
    for none in ["/", "", "/docker/abc", "/user.slice", "/kubepods/burstable"] {
        assert_eq!(unit_of(none), None, "{none}");
    }
}

#[test]
fn pods_under_the_systemd_driver() {
    let path = format!(
        "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SLICE_UID}.slice/cri-containerd-{ID}.scope"
    );
    assert_eq!(in_pod(&path), Some((UID.into(), QosClass::Burstable)));
    assert_eq!(Place::of(&path).container.as_deref(), Some(ID));
    assert_eq!(unit_of(&path), Some(format!("cri-containerd-{ID}.scope")));
    let path = format!("/kubepods.slice/kubepods-pod{SLICE_UID}.slice/crio-{ID}.scope");
    assert_eq!(in_pod(&path), Some((UID.into(), QosClass::Guaranteed)));
    let kind = format!(
        "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod{SLICE_UID}.slice/cri-containerd-{ID}.scope"
    );
    assert_eq!(in_pod(&kind), Some((UID.into(), QosClass::BestEffort)));
}

#[test]
fn pods_under_the_cgroupfs_driver() {
    let path = format!("/kubepods/burstable/pod{UID}/{ID}");
    assert_eq!(in_pod(&path), Some((UID.into(), QosClass::Burstable)));
    assert_eq!(Place::of(&path).container.as_deref(), Some(ID));
    let guaranteed = format!("/kubepods/pod{UID}/{ID}");
    assert_eq!(
        in_pod(&guaranteed),
        Some((UID.into(), QosClass::Guaranteed))
    );
    let static_pod = format!("/kubepods/besteffort/pod{}/{ID}", UID.replace('-', ""));
    assert_eq!(
        in_pod(&static_pod),
        Some((UID.replace('-', ""), QosClass::BestEffort))
    );
    let nested = format!("/docker/{ID}/kubepods/burstable/pod{UID}");
    assert_eq!(in_pod(&nested), Some((UID.into(), QosClass::Burstable)));
}

#[test]
fn what_only_looks_like_a_pod_is_none() {
    for path in [
        "/kubepods.slice/kubepods-burstable.slice",
        "/kubepods/burstable/podium",
        "/kubepods.slice/kubepods-podman.slice",
        &format!("/system.slice/pod{UID}"),
    ] {
        assert_eq!(in_pod(path), None, "{path}");
    }
}

#[test]
fn containers_of_every_runtime_have_an_id() {
    let id = |path: String| Place::of(&path).container;
    assert_eq!(
        id(format!("/system.slice/docker-{ID}.scope")).as_deref(),
        Some(ID)
    );
    assert_eq!(id(format!("/docker/{ID}")).as_deref(), Some(ID));
    assert_eq!(
        id(format!("/machine.slice/libpod-{ID}.scope/container")).as_deref(),
        Some(ID)
    );
    assert_eq!(id(format!("/docker/{ID}/init")).as_deref(), Some(ID));
    assert_eq!(id(format!("/machine.slice/libpod-conmon-{ID}.scope")), None);
    assert_eq!(id("/system.slice/ssh.service".into()), None);
}

#[test]
fn this_process_is_known() {
    let users = UserNames::default();
    let who = identify(std::process::id(), &users).expect("we are there");
    assert_eq!(who.uid, nix::unistd::geteuid().as_raw());
    let executable = who.executable.expect("ours can be read");
    assert!(
        executable.starts_with(&who.command),
        "{executable} {}",
        who.command
    );
    assert!(who.cgroup.starts_with('/'));
    assert!(identify(u32::MAX / 2, &users).is_err());
}
