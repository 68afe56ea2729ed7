use super::super::calls::{Calls, calls};
use super::super::deadline::tests::exchange;
use super::*;
use crate::view::{Column, EntryView, Explanation, ProcessExplanation, RegionExplanation, Strip};
use hawkeye_linux::processes::access::Credentials;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const ROOT: Peer = of_uid(0);
const OTHER: Peer = of_uid(65_533);
const STRANGER: Peer = of_uid(65_532);

const fn of_uid(uid: u32) -> Peer {
    Peer {
        credentials: Some(Credentials {
            uid,
            gid: uid,
            user_namespace: None,
        }),
    }
}

/// A desk for which every process belongs to [`OTHER`].
fn desk(caller: &Caller) -> Desk {
    Desk {
        may_see_addresses: |peer, _| peer == OTHER,
        ..Desk::new(caller.clone()).expect("a desk")
    }
}

/// A desk with a manager that answers by `answer` until the end.
fn with_manager<T>(
    answer: impl Fn(Request) -> Reply + Send + 'static,
    test: impl FnOnce(&Desk) -> T,
) -> T {
    let (caller, calls): (Caller, Calls) = calls(Arc::new(|| {}));
    let over = Arc::new(AtomicBool::new(false));
    let manager = thread::spawn({
        let over = Arc::clone(&over);
        move || {
            while !over.load(Ordering::Acquire) {
                calls.answer(&answer);
                thread::sleep(Duration::from_millis(1));
            }
        }
    });
    let result = test(&desk(&caller));
    over.store(true, Ordering::Release);
    manager.join().expect("the manager ends");
    result
}

const DONE: Reply = Reply::Done { changed: true };

fn done(_: Request) -> Reply {
    DONE
}

/// The reply to a client that sends these bytes; `None`: nothing.
fn answer_to(desk: &Desk, peer: Peer, request: &[u8], time: Duration) -> Option<Reply> {
    let line = exchange(request, false, |server| {
        let stream = UntilDeadline::new(server, time);
        let _ = desk.serve(stream, peer, &Permit::unlimited());
    });
    (!line.is_empty()).then(|| protocol::parse(&line).expect("is a reply"))
}

fn ask(desk: &Desk, peer: Peer, request: Request) -> Reply {
    let line = protocol::line(&request).expect("is JSON");
    answer_to(desk, peer, &line, CLIENT_TIME).expect("an answer")
}

fn refusal(reply: Option<Reply>) -> String {
    match reply {
        Some(Reply::Refused { why }) => why,
        other => panic!("not refused but {other:?}"),
    }
}

#[test]
fn root_changes_and_others_read() {
    with_manager(done, |desk| {
        for request in [Request::Pause, Request::Resume] {
            assert_eq!(ask(desk, ROOT, request), DONE);
            for peer in [OTHER, Peer { credentials: None }] {
                let why = refusal(Some(ask(desk, peer, request)));
                assert!(why.contains("only root"), "{why}");
            }
        }
        assert_eq!(ask(desk, OTHER, Request::Status), DONE);
    });
}

#[test]
fn others_ask_so_often_and_root_whenever_it_likes() {
    with_manager(done, |desk| {
        let mut others = desk.others.lock().expect("is ours");
        while others.take(desk.began.elapsed(), OTHER.uid(), 1) {}
        drop(others);
        let why = refusal(Some(ask(desk, OTHER, Request::Status)));
        assert!(why.contains("too many"), "{why}");
        for peer in [STRANGER, ROOT] {
            assert_eq!(
                ask(desk, peer, Request::Status),
                DONE,
                "{peer:?} may still ask"
            );
        }
    });
}

#[test]
fn who_asks_about_whole_processes_may_ask_less_often() {
    with_manager(done, |desk| {
        let (pid, columns) = (1, 80);
        let strip = Request::Strip { pid, columns };
        let began = Instant::now();
        let answers = (0..20).map(|_| ask(desk, OTHER, strip));
        let answered = answers
            .filter(|it| !matches!(it, Reply::Refused { .. }))
            .count();
        // The allowance of one second, and what is regained while asking.
        let most = 11.0 + began.elapsed().as_secs_f64() * 10.0;
        assert!(answered >= 10 && (answered as f64) < most, "{answered}");
    });
}

fn of_user(uid: u32) -> ProcessExplanation {
    let mut why = ProcessExplanation::default();
    why.process.uid = Some(uid);
    why.latest = vec![EntryView {
        at_s: 1.0,
        region: Some(1 << 46),
        text: "promoted".into(),
    }];
    why
}

fn explained(request: Request) -> Reply {
    let why = of_user(65_533);
    let Request::Why { address, .. } = request else {
        return Reply::refused("only explanations here");
    };
    Reply::Explanation(match address {
        None => Explanation::Process(Box::new(why)),
        Some(address) => Explanation::Region(Box::new(RegionExplanation {
            process: why.process,
            start: address,
            end: address + (2 << 20),
            ..RegionExplanation::default()
        })),
    })
}

#[test]
fn addresses_are_for_root_and_the_owner() {
    with_manager(explained, |desk| {
        let why = |address| Request::Why { pid: 1, address };
        for (peer, allowed) in [(ROOT, true), (OTHER, true), (STRANGER, false)] {
            let process = ask(desk, peer, why(None));
            let Reply::Explanation(Explanation::Process(answer)) = process else {
                panic!("everybody may ask about a process");
            };
            assert_eq!(answer.latest[0].region.is_some(), allowed, "{peer:?}");
            let region = ask(desk, peer, why(Some(1 << 46)));
            let answered = matches!(region, Reply::Explanation(Explanation::Region(_)));
            assert_eq!(answered, allowed, "{peer:?}");
        }
    });
}

#[test]
fn who_loses_its_process_during_the_answer_gets_no_addresses() {
    static ASKED: AtomicBool = AtomicBool::new(false);
    let answer = |request| {
        // The process changes its user.
        ASKED.store(true, Ordering::Release);
        explained(request)
    };
    with_manager(answer, |desk| {
        let desk = &Desk {
            may_see_addresses: |_, _| !ASKED.load(Ordering::Acquire),
            ..Desk::new(desk.caller.clone()).expect("a desk")
        };
        let address = Some(1 << 46);
        let request = Request::Why { pid: 1, address };
        let why = refusal(Some(ask(desk, OTHER, request)));
        assert!(why.contains("owner"), "{why}");
    });
}

#[test]
fn nobody_elses_mappings_are_looked_at() {
    let asked_of_region = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&asked_of_region);
    let answer = move |request| {
        let of_region = matches!(request, Request::Why { address, .. } if address.is_some());
        seen.fetch_or(of_region, Ordering::AcqRel);
        explained(request)
    };
    with_manager(answer, |desk| {
        let address = Some(1 << 46);
        let request = Request::Why { pid: 1, address };
        let why = refusal(Some(ask(desk, STRANGER, request)));
        assert!(why.contains("owner"), "{why}");
        assert!(!asked_of_region.load(Ordering::Acquire));
    });
}

#[test]
fn garbage_is_answered_with_what_is_wrong() {
    with_manager(done, |desk| {
        let say = |bytes: &[u8]| answer_to(desk, OTHER, bytes, CLIENT_TIME);
        let deep = [vec![b'['; 4000], vec![b'\n']].concat();
        for bytes in [
            &b"GET / HTTP/1.1\n"[..],
            b"\n",
            &[0xff, 0, 0xfe, b'\n'],
            &deep,
        ] {
            assert!(refusal(say(bytes)).contains("protocol"));
        }
        assert!(refusal(say(b"{\"protocol\":1,\"request\":\"halt\"}\n")).contains("halt"));
    });
}

#[test]
fn megabytes_are_not_read() {
    with_manager(done, |desk| {
        let endless = vec![b' '; 4 << 20];
        let why = refusal(answer_to(desk, OTHER, &endless, CLIENT_TIME));
        assert!(why.contains("4096 bytes at most"), "{why}");
    });
}

#[test]
fn who_stalls_or_drips_is_dropped_without_an_answer() {
    with_manager(done, |desk| {
        let time = Duration::from_millis(30);
        assert_eq!(answer_to(desk, OTHER, b"", time), None);
        assert_eq!(answer_to(desk, OTHER, b"{\"protocol\":1,", time), None);

        // Single bytes now and then don't extend the deadline.
        let (mut client, server) = UnixStream::pair().expect("a pair");
        let dripping = thread::spawn(move || {
            while client.write_all(b" ").is_ok() {
                thread::sleep(Duration::from_millis(5));
            }
        });
        let stream = UntilDeadline::new(server, time);
        assert!(desk.serve(stream, OTHER, &Permit::unlimited()).is_err());
        dripping.join().expect("ends when it was dropped");
    });
}

#[test]
fn who_leaves_before_the_answer_does_no_harm() {
    with_manager(done, |desk| {
        let (mut client, server) = UnixStream::pair().expect("a pair");
        let line = protocol::line(&Request::Status).expect("is JSON");
        client.write_all(&line).expect("is sent");
        client.shutdown(Shutdown::Both).expect("leaves");
        drop(client);
        let stream = UntilDeadline::new(server, CLIENT_TIME);
        assert!(desk.serve(stream, ROOT, &Permit::unlimited()).is_err());
        assert_eq!(ask(desk, ROOT, Request::Status), DONE);
    });
}

fn stalling(clients: u32, path: &Path) -> Vec<UnixStream> {
    let connect = |_| UnixStream::connect(path).expect("connects");
    (0..clients).map(connect).collect()
}

#[test]
fn clients_get_through_while_others_stall() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    with_manager(done, |desk| {
        let server = SocketServer::start(&path, desk.caller.clone()).expect("starts");
        let mode = fs::metadata(&path).expect("is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o666);
        // The tests' user counts as root, so some of its connections stay free.
        let stalling = stalling(7, &path);
        let reply = super::super::client::ask(&path, Request::Pause).expect("an answer");
        assert_eq!(reply, DONE);
        drop(stalling);
        drop(server);
        assert!(!path.exists(), "the socket is removed");
    });
}

#[test]
fn where_too_many_stall_the_next_is_turned_away_and_told_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    with_manager(done, |desk| {
        let _server = SocketServer::start(&path, desk.caller.clone()).expect("starts");
        let _stalling = stalling(30, &path);
        let error = super::super::client::ask(&path, Request::Status).expect_err("no place");
        assert!(error.to_string().contains("has no time"), "{error}");
    });
}

#[test]
fn a_dead_daemons_socket_is_replaced_a_living_ones_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    // Dropping a listener leaves its file behind, as a killed daemon does.
    drop(UnixListener::bind(&path).expect("binds"));
    with_manager(done, |desk| {
        let _living = SocketServer::start(&path, desk.caller.clone()).expect("replaces it");
        let error = SocketServer::start(&path, desk.caller.clone()).err();
        let said = error.expect("one is enough").to_string();
        assert!(said.contains("another daemon answers"), "{said}");
        assert!(path.exists());
    });
    fs::write(&path, "not a socket").expect("writes");
    let (caller, _calls) = calls(Arc::new(|| {}));
    let error = SocketServer::start(&path, caller).err();
    assert!(error.is_some_and(|error| error.to_string().contains("is no socket")));
    assert!(path.exists(), "other people's files stay");
}

#[test]
fn a_strip_has_addresses_for_root_and_the_owner() {
    let answer = |_| {
        Reply::Strip(Strip {
            uid: OTHER.uid(),
            columns: vec![Column {
                start: Some(2 << 20),
                end: Some(4 << 20),
                regions: 1,
                ..Column::default()
            }],
            ..Strip::default()
        })
    };
    with_manager(answer, |desk| {
        let (pid, columns) = (7, 80);
        let request = Request::Strip { pid, columns };
        let start = |peer| match ask(desk, peer, request) {
            Reply::Strip(strip) => (strip.columns[0].start, strip.columns[0].regions),
            other => panic!("no strip but {other:?}"),
        };
        assert_eq!(start(ROOT), (Some(2 << 20), 1));
        assert_eq!(start(OTHER), (Some(2 << 20), 1));
        assert_eq!(start(STRANGER), (None, 1));
    });
}
