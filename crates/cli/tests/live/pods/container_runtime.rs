//! A containerd of the test's own, with pods and an image that it makes itself.

use crate::common::{CommandOutput, DEADLINE, StartedProcess, signal, until, wait};
use hawkeye_linux::processes::profile_requests::{ANNOTATION, call_unary};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const IMAGE: &str = "localhost/hawkeye-test:1";
/// Memory that the container of a pod touches, in MiB.
const CONTAINER_MIB: &str = "40";

/// Touches as many MiB as its argument says, and sleeps.
const PROGRAM: &str = "
#include <stdlib.h>
#include <unistd.h>
int main(int count, char **words)
{
    size_t bytes = count > 1 ? strtoul(words[1], 0, 10) << 20 : 0;
    volatile char *memory = malloc(bytes);
    for (size_t at = 0; at < bytes; at += 4096)
        memory[at] = 1;
    for (;;)
        pause();
}
";

/// No network, no security profile of the host's, and no more than the test's rights: containers
/// of pods have a lower `oom_score_adj` otherwise.
const CONFIG: &str = r#"
version = 2
root = "FOLDER/root"
state = "FOLDER/state"
[grpc]
  address = "FOLDER/cri.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "IMAGE"
  disable_tcp_service = true
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
  [plugins."io.containerd.grpc.v1.cri".cni]
    conf_dir = "FOLDER/cni"
"#;

/// A running containerd. Its pods and its cgroups are removed when it is dropped.
pub struct ContainerRuntime {
    folder: PathBuf,
    socket: PathBuf,
    daemon: StartedProcess,
    /// Ids of the sandboxes.
    sandboxes: Vec<Vec<u8>>,
}

impl ContainerRuntime {
    /// Starts it in a folder that does not exist. `None` where a program is not installed.
    pub fn start(folder: &Path) -> Option<Self> {
        let programs = ["containerd", "ctr", "runc", "cc", "tar", "sha256sum"];
        let is_installed = |program: &&str| {
            let mut find = Command::new("sh");
            CommandOutput::of(find.args(["-c", &format!("command -v {program}")])).code == Some(0)
        };
        if !programs.iter().all(is_installed) {
            return None;
        }
        fs::create_dir_all(folder).expect("the folder can be made");
        let config = folder.join("config.toml");
        let text = CONFIG.replace("FOLDER", &folder.display().to_string()).replace("IMAGE", IMAGE);
        fs::write(&config, text).expect("the file can be written");
        let mut command = Command::new("containerd");
        let daemon = StartedProcess::quietly(command.arg("-c").arg(config));
        let (folder, socket) = (folder.to_owned(), folder.join("cri.sock"));
        let runtime = Self { folder, socket, daemon, sandboxes: Vec::new() };
        let answers = until(DEADLINE, || runtime.try_call("Version", &[]).is_ok());
        assert!(answers, "containerd answers");
        runtime.import_image();
        Some(runtime)
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// An image with one static program.
    fn import_image(&self) {
        let folder = self.folder.join("image");
        fs::create_dir_all(&folder).expect("the folder can be made");
        let run = |program: &str, words: &str| {
            let mut command = Command::new(program);
            let command = command.current_dir(&folder).args(words.split_whitespace());
            CommandOutput::of(command).assert_success().out
        };
        let write = |name: &str, text: &str| {
            fs::write(folder.join(name), text).expect("the file can be written");
        };
        write("program.c", PROGRAM);
        run("cc", "-O1 -static program.c -o program");
        run("tar", "-cf layer.tar program");
        let sum = run("sha256sum", "layer.tar");
        let sum = sum.split_whitespace().next().expect("a sum");
        let (os, kind) = (r#""os":"linux""#, r#""type":"layers""#);
        // The runtime runs images of its own architecture only.
        let architecture = run("dpkg", "--print-architecture");
        let architecture = architecture.trim();
        write(
            "config.json",
            &format!(
                r#"{{"architecture":"{architecture}",{os},"config":{{"Entrypoint":["/program"]}},"rootfs":{{{kind},"diff_ids":["sha256:{sum}"]}}}}"#
            ),
        );
        write(
            "manifest.json",
            &format!(
                r#"[{{"Config":"config.json","RepoTags":["{IMAGE}"],"Layers":["layer.tar"]}}]"#
            ),
        );
        run("tar", "-cf image.tar manifest.json config.json layer.tar");
        let socket = self.socket.display();
        run("ctr", &format!("-a {socket} -n k8s.io images import image.tar"));
    }

    /// Starts a pod as the kubelet does, and a container in it. Returns the container's process.
    pub fn start_pod(&mut self, profile: Option<&str>) -> u32 {
        let number = self.sandboxes.len();
        let uid = format!("{:08x}-0000-4000-8000-{number:012x}", std::process::id());
        // The network and the IPC of the host, and a pid namespace of its own.
        let namespaces = [number_field(1, 2), number_field(2, 1), number_field(3, 2)].concat();
        let parent = format!("{}/burstable/pod{uid}", self.root_cgroup());
        let linux = [text(1, &parent), field(2, &field(1, &namespaces))].concat();
        let metadata =
            [text(1, &format!("pod-{number}")), text(2, &uid), text(3, "default")].concat();
        let logs = self.folder.join("logs").display().to_string();
        let annotation =
            profile.map(|name| field(7, &[text(1, ANNOTATION), text(2, name)].concat()));
        let sandbox_config =
            [field(1, &metadata), text(3, &logs), annotation.unwrap_or_default(), field(8, &linux)]
                .concat();
        let sandbox = self.call("RunPodSandbox", &field(1, &sandbox_config));
        let sandbox = content_of_only_field(&sandbox);
        self.sandboxes.push(sandbox.clone());
        let container_config = [
            field(1, &text(1, "main")),
            field(2, &text(1, IMAGE)),
            text(3, "/program"),
            text(4, CONTAINER_MIB),
            text(11, "main.log"),
            field(15, &field(2, &field(3, &namespaces))),
        ]
        .concat();
        let request = [field(1, &sandbox), field(2, &container_config), field(3, &sandbox_config)];
        let container = content_of_only_field(&self.call("CreateContainer", &request.concat()));
        self.call("StartContainer", &field(1, &container));
        let container = String::from_utf8(container).expect("an id is text");
        let mut pid = None;
        let started = until(DEADLINE, || {
            pid = pid_in_cgroup(&container);
            pid.is_some()
        });
        assert!(started, "the container {container} has a process");
        pid.expect("it was found")
    }

    /// A cgroup that only this test uses, with the kubelet's name in it.
    fn root_cgroup(&self) -> String {
        format!("/kubepods-hawkeye-test-{}", std::process::id())
    }

    fn call(&self, method: &str, message: &[u8]) -> Vec<u8> {
        let answer = self.try_call(method, message);
        answer.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    fn try_call(&self, method: &str, message: &[u8]) -> Result<Vec<u8>, String> {
        let method = format!("/runtime.v1.RuntimeService/{method}");
        let answer = call_unary(&self.socket, &method, message, Duration::from_secs(60));
        answer.map_err(|error| error.to_string())
    }
}

impl Drop for ContainerRuntime {
    fn drop(&mut self) {
        for sandbox in std::mem::take(&mut self.sandboxes) {
            for method in ["StopPodSandbox", "RemovePodSandbox"] {
                if let Err(error) = self.try_call(method, &field(1, &sandbox)) {
                    eprintln!("{method}: {error}");
                }
            }
        }
        signal(self.daemon.id(), libc::SIGTERM);
        wait(&mut self.daemon, Duration::from_secs(30));
        let root = self.root_cgroup();
        let hierarchies = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
        let hierarchies = hierarchies.map(|entry| entry.path());
        for hierarchy in hierarchies.chain([PathBuf::from("/sys/fs/cgroup")]) {
            remove_cgroup(&hierarchy.join(root.trim_start_matches('/')));
        }
    }
}

/// Removes a cgroup and those below it, if it exists.
fn remove_cgroup(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_cgroup(&entry.path());
        }
    }
    let _ = fs::remove_dir(folder);
}

fn pid_in_cgroup(container: &str) -> Option<u32> {
    let entries = fs::read_dir("/proc").ok()?.flatten();
    let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.find(|pid: &u32| {
        let cgroups = fs::read_to_string(format!("/proc/{pid}/cgroup"));
        cgroups.is_ok_and(|cgroups| cgroups.contains(container))
    })
}

// Protocol buffers (protobuf.dev, "Encoding"); numbers of fields: pkg/apis/runtime/v1/api.proto of
// github.com/kubernetes/cri-api.

fn field(number: u8, content: &[u8]) -> Vec<u8> {
    [varint(usize::from(number) << 3 | 2), varint(content.len()), content.to_vec()].concat()
}

fn text(number: u8, content: &str) -> Vec<u8> {
    field(number, content.as_bytes())
}

fn number_field(number: u8, value: usize) -> Vec<u8> {
    [varint(usize::from(number) << 3), varint(value)].concat()
}

fn varint(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value > 127 {
        bytes.push((value & 127 | 128) as u8);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// Answers that name what was made have one field, of fewer than 128 bytes.
fn content_of_only_field(message: &[u8]) -> Vec<u8> {
    assert_eq!(message.len(), usize::from(message[1]) + 2, "{message:?}");
    message[2..].to_vec()
}
