//! A virtual machine: QEMU, which emulates a stopped processor, with the guest's memory in a file
//! that other processes may map.

use crate::arch::{QEMU_BOARDS, QemuBoard};
use hawkeye_test_support::test_skips::TestName;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// What a test lacks where QEMU is not installed. `scripts/judge-skipped.py` knows it, too.
const CAPABILITY: &str = "virtual machine";

/// A virtual machine; ended when dropped, and its memory is removed.
pub struct VirtualMachine {
    qemu: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    memory_file: PathBuf,
    memory_start: u64,
    bytes: u64,
}

impl VirtualMachine {
    /// Starts a virtual machine with `mib` MiB of memory, all of it present and at a multiple of
    /// 2 MiB. `None`, and the test counts as skipped, where QEMU is not installed.
    ///
    /// # Panics
    /// It does not start, for instance because `/dev/shm` is too small.
    pub fn start(test: TestName, mib: u64) -> Option<Self> {
        let architecture = std::env::consts::ARCH;
        let program = format!("qemu-system-{architecture}");
        let is_installed = Command::new(&program).arg("-version").output().is_ok();
        let mut boards = QEMU_BOARDS.into_iter().filter(|_| is_installed);
        let board = boards.find(|board| board.architecture == architecture);
        let Some(QemuBoard { name: machine, memory_start, .. }) = board else {
            test.skip(&format!("without {CAPABILITY}: {program} is not installed"));
            return None;
        };
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("hawkeye-live-guest-{}-{count}", std::process::id());
        let memory_file = Path::new("/dev/shm").join(name);
        let backend = format!(
            "memory-backend-file,id=guest,size={mib}M,mem-path={},share=on,prealloc=on,align=2M",
            memory_file.display()
        );
        let mut command = Command::new(program);
        command.args(["-machine", &format!("{machine},memory-backend=guest"), "-accel", "tcg"]);
        command.args(["-object", &backend, "-m", &format!("{mib}M"), "-S"]);
        command.args(["-nodefaults", "-display", "none", "-qmp", "stdio"]);
        // A stopped machine would outlive a test that is killed.
        let end_with_test = || Ok(set_pdeathsig(Signal::SIGKILL)?);
        // SAFETY: it makes one system call in the child.
        unsafe { command.pre_exec(end_with_test) };
        let mut qemu = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the virtual machine starts");
        let requests = qemu.stdin.take().expect("the stream is a pipe");
        let answers = BufReader::new(qemu.stdout.take().expect("the stream is a pipe"));
        let mut machine =
            Self { qemu, requests, answers, memory_file, memory_start, bytes: mib << 20 };
        let greeting = machine.next_message();
        assert!(greeting["QMP"].is_object(), "{greeting}");
        machine.execute("qmp_capabilities", &json!({}));
        Some(machine)
    }

    /// The pid of QEMU.
    pub fn pid(&self) -> u32 {
        self.qemu.id()
    }

    /// The file with the guest's memory.
    pub fn memory_file(&self) -> &Path {
        &self.memory_file
    }

    /// Reads the guest's memory through QEMU, at an offset in bytes.
    ///
    /// # Panics
    /// There is no memory.
    pub fn read_memory(&mut self, offset: u64, bytes: u64) -> Vec<u8> {
        let file = self.memory_file.with_extension("read");
        self.save_memory(offset, bytes, &file);
        let read = std::fs::read(&file).expect("QEMU has written the file");
        let _ = std::fs::remove_file(&file);
        assert_eq!(read.len() as u64, bytes);
        read
    }

    /// Makes QEMU read all of the guest's memory, as a stopped guest does not.
    ///
    /// # Panics
    /// QEMU has ended.
    pub fn touch_memory(&mut self) {
        self.save_memory(0, self.bytes, Path::new("/dev/null"));
    }

    fn save_memory(&mut self, offset: u64, bytes: u64, file: &Path) {
        let address = self.memory_start + offset;
        let arguments = json!({"val": address, "size": bytes, "filename": file});
        self.execute("pmemsave", &arguments);
    }

    fn execute(&mut self, command: &str, arguments: &Value) {
        let request = json!({"execute": command, "arguments": arguments});
        let sent = writeln!(self.requests, "{request}").and_then(|()| self.requests.flush());
        sent.expect("QEMU reads requests");
        loop {
            let message = self.next_message();
            // Others are events.
            if message.get("return").is_some() {
                return;
            }
            assert!(message.get("error").is_none(), "{command}: {message}");
        }
    }

    fn next_message(&mut self) -> Value {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("QEMU's answers are text");
        assert!(!line.is_empty(), "QEMU has ended; its messages are above");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }
}

impl Drop for VirtualMachine {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
        let _ = std::fs::remove_file(&self.memory_file);
    }
}
