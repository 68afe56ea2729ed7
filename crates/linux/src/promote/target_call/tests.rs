use super::*;
use crate::processes::mapping_records::mappings_of;
use crate::processes::process::ProcessHandle;
use crate::sample::page_tables::PageTables;
use hawkeye_policy::ProcessId;

const LONG: Duration = Duration::from_secs(60);

fn own() -> ProcessHandle {
    ProcessHandle::open(std::process::id()).expect("we are here")
}

static WORD: u64 = 0x1234_5678_9abc_def0;

/// Reads [`WORD`].
fn word(own: &ProcessHandle) -> Request<'_> {
    Request::ReadMemory {
        process: own.fd(),
        pid: own.id.pid,
        address: &raw const WORD as u64,
        length: 8,
    }
}

fn answered(caller: &mut TargetCaller, request: &Request<'_>) -> Answer {
    caller.send(request).expect("the helper is there");
    let answer = caller.answer(LONG).expect("the helper is there");
    answer.expect("it answers")
}

#[test]
fn a_helper_reads_memory_and_files() {
    let mut caller = TargetCaller::start().expect("starts");
    let answer = answered(&mut caller, &word(&own()));
    assert_eq!(answer.result, Ok(8));
    assert_eq!(answer.data, WORD.to_ne_bytes());
    let request = Request::ReadFile {
        path: "/proc/self/comm",
        offset: 0,
        length: 100,
    };
    let answer = answered(&mut caller, &request);
    assert_eq!(answer.data, b"hawkeye-call\n");
    let request = Request::ReadFile {
        path: "/proc/no-such-file",
        offset: 0,
        length: 1,
    };
    assert_eq!(answered(&mut caller, &request).result, Err(Errno::ENOENT));
}

#[test]
fn a_helper_keeps_nothing_open_but_its_socket() {
    let mut caller = TargetCaller::start().expect("starts");
    answered(&mut caller, &word(&own()));
    let open = std::fs::read_dir(format!("/proc/{}/fd", caller.helper())).expect("it is there");
    assert_eq!(open.count(), 1);
}

#[test]
fn what_the_kernel_refuses_is_said() {
    let mut caller = TargetCaller::start().expect("starts");
    // The first page of an address space is never mapped.
    let own = ProcessHandle::open(std::process::id()).expect("we are here");
    let first_page = 0..4096;
    let request = Request::Advise {
        process: own.fd(),
        advice: crate::promote::remote_advice::MADV_COLD,
        ranges: std::slice::from_ref(&first_page),
        unpreempted: true,
    };
    assert_eq!(answered(&mut caller, &request).result, Err(Errno::ENOMEM));
}

/// A file that can't be opened until this test writes to it, as a stuck target keeps a call waiting.
struct Unanswered {
    path: String,
}

impl Unanswered {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("hawkeye-{}", std::process::id()));
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        let path = path.to_str().expect("a plain name").to_owned();
        Self { path }
    }

    fn read(&self) -> Request<'_> {
        Request::ReadFile {
            path: &self.path,
            offset: 0,
            length: 8,
        }
    }

    fn resolve(&self) {
        std::fs::write(&self.path, b"").expect("the helper waits for this");
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn process(pid: u32) -> ProcessId {
    ProcessId {
        pid,
        start_ticks: 1,
    }
}

#[test]
fn one_that_does_not_answer_is_set_aside_and_others_are_served() {
    let file = Unanswered::new();
    let mut calls = TargetCalls::default();
    let own = own();
    let easy = word(&own);
    let (stuck, other) = (process(7), process(8));
    let refused = calls.make(stuck, "reading", &file.read());
    assert!(matches!(refused, Err(LinuxError::NotAnswering(7))));
    // It gets no other call, and the others do.
    let refused = calls.make(stuck, "reading", &easy);
    assert!(matches!(refused, Err(LinuxError::NotAnswering(7))));
    assert!(calls.make(other, "reading", &easy).is_ok());
    let unanswered: Vec<_> = calls.unanswered().iter().map(|u| u.process).collect();
    assert_eq!(unanswered, [stuck]);
    assert_eq!(calls.finished(), []);
    file.resolve();
    let deadline = Instant::now() + LONG;
    let late = loop {
        match calls.finished().pop() {
            Some(late) => break late,
            None => assert!(Instant::now() < deadline, "it was answered"),
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let answer = late.answer.expect("the helper is alive");
    // A pipe has no places to read from.
    assert_eq!((late.process, answer.result), (stuck, Err(Errno::ESPIPE)));
    assert!(calls.make(stuck, "reading", &easy).is_ok());
}

#[test]
fn one_helper_is_enough_for_targets_that_answer() {
    let mut calls = TargetCalls::default();
    let own = own();
    let easy = word(&own);
    for _ in 0..100 {
        calls
            .make(process(7), "reading", &easy)
            .expect("it answers");
    }
    assert_eq!(calls.idle.len(), 1);
    assert!(calls.cpu() > Duration::ZERO);
}

#[test]
fn one_that_was_killed_is_replaced() {
    let mut calls = TargetCalls::default();
    let own = own();
    let easy = word(&own);
    calls.prepare().expect("starts");
    let helper = calls.idle[0].helper;
    kill(helper, Signal::SIGKILL).expect("it is there");
    assert!(calls.make(process(7), "reading", &easy).is_ok());
    assert_ne!(calls.idle[0].helper, helper);
}

#[test]
fn a_process_that_has_ended_is_not_read() {
    let mut child = std::process::Command::new("true").spawn().expect("starts");
    let handle = ProcessHandle::of_child(child.id()).expect("it is ours");
    child.wait().expect("ends");
    // As if another had got its pid.
    let request = Request::ReadMemory {
        process: handle.fd(),
        pid: std::process::id(),
        address: &raw const WORD as u64,
        length: 8,
    };
    let mut caller = TargetCaller::start().expect("starts");
    assert_eq!(answered(&mut caller, &request).result, Err(Errno::ESRCH));
}

/// Two listings under way at a time each bring their own process's mappings, in several packets.
#[test]
fn a_listing_that_is_given_up_disturbs_no_other() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let tables = PageTables::load().expect("loads");
    let many = ManyMappings::new(5000);
    let target = tables.bind(std::process::id()).expect("binds");
    let init = tables.bind(1).expect("binds");
    let mut slow = TargetCaller::start().expect("starts");
    let helper = Pid::from_raw(slow.helper() as i32);
    kill(helper, Signal::SIGSTOP).expect("it is ours");
    let list = Request::List {
        link: target.list(),
    };
    slow.send(&list).expect("the helper is there");
    let given_up = slow.answer(Duration::from_millis(20));
    assert_eq!(given_up.expect("it is asked"), None);
    kill(helper, Signal::SIGCONT).expect("it is ours");
    let mut other = TargetCaller::start().expect("starts");
    let of_init = Request::List { link: init.list() };
    for _ in 0..20 {
        let listed = answered(&mut other, &of_init);
        assert_eq!(
            mappings_of(&listed.data).len(),
            tables.mappings(&init).expect("lists").len()
        );
    }
    let late = slow.answer(LONG).expect("it lives").expect("it answers");
    assert!(late.result.is_ok());
    let late = mappings_of(&late.data);
    let each = late.iter().filter(|m| many.contains(m.range.start));
    assert_eq!(each.count(), 5000);
    assert!(late.is_sorted_by_key(|m| m.range.start));
}

/// Pages of memory of which no two neighbours are one mapping.
struct ManyMappings {
    start: u64,
    pages: u64,
}

impl ManyMappings {
    fn new(pages: u64) -> Self {
        // SAFETY: new memory, that nothing else knows of.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                pages as usize * 4096,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(start, libc::MAP_FAILED);
        let many = Self {
            start: start as u64,
            pages,
        };
        for page in (0..pages).step_by(2) {
            let page = many.start + page * 4096;
            // SAFETY: a page of that memory.
            let set = unsafe { libc::mprotect(page as *mut _, 4096, libc::PROT_READ) };
            assert_eq!(set, 0);
        }
        many
    }

    fn contains(&self, address: u64) -> bool {
        (self.start..self.start + self.pages * 4096).contains(&address)
    }
}

impl Drop for ManyMappings {
    fn drop(&mut self) {
        // SAFETY: ours, and used no more.
        unsafe { libc::munmap(self.start as *mut _, self.pages as usize * 4096) };
    }
}
