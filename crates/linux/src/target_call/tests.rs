use super::*;
use crate::process::ProcessHandle;
use hawkeye_policy::ProcessId;
use std::os::fd::FromRawFd;

const LONG: Duration = Duration::from_secs(60);

fn own_word() -> (Box<u64>, Request<'static>) {
    let word = Box::new(0x1234_5678_9abc_def0_u64);
    let request = Request::ReadMemory {
        pid: std::process::id(),
        address: (&raw const *word) as u64,
        length: 8,
    };
    (word, request)
}

fn answered(caller: &mut TargetCaller, request: &Request<'_>) -> Answer {
    let answer = caller.call(request, LONG).expect("the helper is there");
    answer.expect("it answers")
}

#[test]
fn a_helper_reads_memory_and_files() {
    let mut caller = TargetCaller::start().expect("starts");
    let (word, request) = own_word();
    let answer = answered(&mut caller, &request);
    assert_eq!(answer.result, Ok(8));
    assert_eq!(answer.data, word.to_ne_bytes());
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
    let (_word, request) = own_word();
    answered(&mut caller, &request);
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
        advice: crate::remote_advice::MADV_COLD,
        ranges: std::slice::from_ref(&first_page),
        unpreempted: true,
    };
    assert_eq!(answered(&mut caller, &request).result, Err(Errno::ENOMEM));
}

/// Memory whose first touch waits until this test answers it, as a stuck target keeps a call waiting.
struct Unanswerable {
    memory: *mut libc::c_void,
    fault: OwnedFd,
}

const PAGE: usize = 4096;

impl Unanswerable {
    /// `None` where this kernel or user has no userfaultfd.
    fn new() -> Option<Self> {
        const API: libc::c_ulong = 0xc018_aa3f;
        const REGISTER: libc::c_ulong = 0xc020_aa00;
        // SAFETY: a new mapping and a new descriptor; the arrays have the layout and size of what
        // the kernel expects (struct uffdio_api, uffdio_register).
        unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let memory = libc::mmap(std::ptr::null_mut(), PAGE, protection, flags, -1, 0);
            let fault = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC);
            if memory == libc::MAP_FAILED || fault < 0 {
                return None;
            }
            let fault = OwnedFd::from_raw_fd(fault as i32);
            let mut api = [0xaa_u64, 0, 0];
            let mut register = [memory as u64, PAGE as u64, 1, 0];
            let done = libc::ioctl(fault.as_raw_fd(), API, api.as_mut_ptr()) == 0
                && libc::ioctl(fault.as_raw_fd(), REGISTER, register.as_mut_ptr()) == 0;
            done.then_some(Self { memory, fault })
        }
    }

    fn read(&self) -> Request<'static> {
        Request::ReadMemory {
            pid: std::process::id(),
            address: self.memory as u64,
            length: 8,
        }
    }

    fn resolve(&self) {
        const ZEROPAGE: libc::c_ulong = 0xc020_aa04;
        let mut page = [self.memory as u64, PAGE as u64, 0, 0];
        // SAFETY: as above (struct uffdio_zeropage).
        let done = unsafe { libc::ioctl(self.fault.as_raw_fd(), ZEROPAGE, page.as_mut_ptr()) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
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
    let Some(memory) = Unanswerable::new() else {
        eprintln!("skipped: no userfaultfd here");
        return;
    };
    let mut calls = TargetCalls::default();
    let (_word, easy) = own_word();
    let (stuck, other) = (process(7), process(8));
    let refused = calls.make(stuck, "reading", &memory.read());
    assert!(matches!(refused, Err(LinuxError::NotAnswering(7))));
    // It gets no other call, and the others do.
    let refused = calls.make(stuck, "reading", &easy);
    assert!(matches!(refused, Err(LinuxError::NotAnswering(7))));
    assert!(calls.make(other, "reading", &easy).is_ok());
    let unanswered: Vec<_> = calls.unanswered().iter().map(|u| u.process).collect();
    assert_eq!(unanswered, [stuck]);
    assert_eq!(calls.finished(), []);
    memory.resolve();
    let deadline = Instant::now() + LONG;
    let late = loop {
        match calls.finished().pop() {
            Some(late) => break late,
            None => assert!(Instant::now() < deadline, "it was answered"),
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let answer = late.answer.expect("the helper is alive");
    assert_eq!((late.process, answer.result), (stuck, Ok(8)));
    assert!(calls.make(stuck, "reading", &easy).is_ok());
}

#[test]
fn one_helper_is_enough_for_targets_that_answer() {
    let mut calls = TargetCalls::default();
    let (_word, easy) = own_word();
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
    let (_word, easy) = own_word();
    calls.prepare().expect("starts");
    let helper = calls.idle[0].helper;
    kill(helper, Signal::SIGKILL).expect("it is there");
    assert!(calls.make(process(7), "reading", &easy).is_ok());
    assert_ne!(calls.idle[0].helper, helper);
}
