use super::super::deadline_stream::tests::exchange;
use super::super::protocol::VERSION;
use super::super::request_channel::{RequestReceiver, request_channel};
use super::*;
use crate::view::{
    AddressStrip, AddressStripColumn, Explanation, JournalEntryView, ProcessExplanation,
    RegionExplanation,
};
use hawkeye_linux::processes::client_credentials::ClientCredentials;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

const ROOT: Peer = of_uid(0);
const OTHER: Peer = of_uid(65_533);
const STRANGER: Peer = of_uid(65_532);

const fn of_uid(uid: u32) -> Peer {
    Peer { credentials: Some(ClientCredentials { uid, gid: uid, user_namespace: None }) }
}

/// A request handler for which every process belongs to [`OTHER`].
fn request_handler(requests: &RequestSender) -> RequestHandler {
    RequestHandler {
        may_see_addresses: |peer, _| peer == OTHER,
        ..RequestHandler::new(requests.clone()).expect("the rates are valid")
    }
}

/// A request handler with a manager that answers by `answer` until the end.
fn with_manager<T>(
    answer: impl Fn(DaemonRequest) -> DaemonReply + Send + 'static,
    test: impl FnOnce(&RequestHandler) -> T,
) -> T {
    let (requests, calls): (RequestSender, RequestReceiver) = request_channel(Arc::new(|| {}));
    let over = Arc::new(AtomicBool::new(false));
    let manager = thread::spawn({
        let over = Arc::clone(&over);
        move || {
            while !over.load(Ordering::Acquire) {
                calls.answer_pending_requests(&answer);
                thread::sleep(Duration::from_millis(1));
            }
        }
    });
    let result = test(&request_handler(&requests));
    over.store(true, Ordering::Release);
    manager.join().expect("the manager ends");
    result
}

const DONE: DaemonReply = DaemonReply::Done { changed: true };

fn done(_: DaemonRequest) -> DaemonReply {
    DONE
}

/// The reply to a client that sends these bytes; `None`: nothing.
fn answer_to(
    handler: &RequestHandler,
    peer: Peer,
    request: &[u8],
    time: Duration,
) -> Option<DaemonReply> {
    let line = exchange(request, false, |server| {
        let stream = DeadlineStream::new(server, time);
        let _ = handler.serve_client(stream, peer, &ConnectionPermit::for_test());
    });
    (!line.is_empty()).then(|| protocol::decode_message_line(&line).expect("a valid reply"))
}

fn ask(handler: &RequestHandler, peer: Peer, request: DaemonRequest) -> DaemonReply {
    let line = protocol::encode_message_line(&request).expect("the request serializes");
    answer_to(handler, peer, &line, CLIENT_TIME).expect("an answer")
}

fn refusal(reply: Option<DaemonReply>) -> String {
    match reply {
        Some(DaemonReply::Refused { why }) => why,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[test]
fn only_root_may_change_things_and_every_user_may_read() {
    with_manager(done, |handler| {
        for request in [DaemonRequest::Pause, DaemonRequest::Resume] {
            assert_eq!(ask(handler, ROOT, request), DONE);
            for peer in [OTHER, Peer { credentials: None }] {
                let why = refusal(Some(ask(handler, peer, request)));
                assert!(why.contains("only root"), "{why}");
            }
        }
        let reply = ask(handler, OTHER, DaemonRequest::Status);
        assert_eq!(reply, DONE, "the request reached the manager");
    });
}

#[test]
fn requests_of_other_users_are_limited_and_those_of_root_are_not() {
    with_manager(done, |handler| {
        let mut others = handler.others.lock().expect("the lock is not poisoned");
        while others.try_take_tokens(handler.began.elapsed(), OTHER.uid(), 1) {}
        drop(others);
        let why = refusal(Some(ask(handler, OTHER, DaemonRequest::Status)));
        assert!(why.contains("too many"), "{why}");
        for peer in [STRANGER, ROOT] {
            assert_eq!(ask(handler, peer, DaemonRequest::Status), DONE, "{peer:?} may still ask");
        }
    });
}

#[test]
fn requests_about_whole_processes_count_twice() {
    with_manager(done, |handler| {
        let (pid, columns) = (1, 80);
        let strip = DaemonRequest::Strip { pid, columns };
        let began = Instant::now();
        let answers = (0..20).map(|_| ask(handler, OTHER, strip));
        let answered = answers.filter(|it| !matches!(it, DaemonReply::Refused { .. })).count();
        // The allowance of one second, and what is regained while asking.
        let most = 11.0 + began.elapsed().as_secs_f64() * 10.0;
        assert!(answered >= 10 && (answered as f64) < most, "{answered}");
    });
}

#[test]
fn many_users_cost_the_manager_one_status() {
    let computed = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&computed);
    let answer = move |_| {
        counter.fetch_add(1, Ordering::AcqRel);
        DaemonReply::Status(Box::default())
    };
    with_manager(answer, |handler| {
        let began = Instant::now();
        for _ in 0..10 {
            ask(handler, OTHER, DaemonRequest::Status);
            ask(handler, STRANGER, DaemonRequest::Status);
        }
        let most = 1 + began.elapsed().as_secs() as u32;
        let computed_for_users = computed.load(Ordering::Acquire);
        assert!((1..=most).contains(&computed_for_users), "{computed_for_users}");
        ask(handler, ROOT, DaemonRequest::Status);
        // A slow manager computes it after the last one was sent.
        while computed.load(Ordering::Acquire) == computed_for_users {
            thread::sleep(Duration::from_millis(1));
        }
    });
}

fn of_user(uid: u32) -> ProcessExplanation {
    let mut why = ProcessExplanation::default();
    why.process.uid = Some(uid);
    why.latest =
        vec![JournalEntryView { at_s: 1.0, region: Some(1 << 46), text: "promoted".into() }];
    why
}

fn explanation_of(request: DaemonRequest) -> DaemonReply {
    let why = of_user(65_533);
    let DaemonRequest::Why { address, .. } = request else {
        return DaemonReply::refused_because("only explanations here");
    };
    DaemonReply::Explanation(match address {
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
fn only_root_and_the_owner_see_addresses() {
    with_manager(explanation_of, |handler| {
        let why = |address| DaemonRequest::Why { pid: 1, address };
        for (peer, allowed) in [(ROOT, true), (OTHER, true), (STRANGER, false)] {
            let process = ask(handler, peer, why(None));
            let DaemonReply::Explanation(Explanation::Process(answer)) = process else {
                panic!("every user may ask about a process");
            };
            assert_eq!(answer.latest[0].region.is_some(), allowed, "{peer:?}");
            let region = ask(handler, peer, why(Some(1 << 46)));
            let answered = matches!(region, DaemonReply::Explanation(Explanation::Region(_)));
            assert_eq!(answered, allowed, "{peer:?}");
        }
    });
}

#[test]
fn a_client_that_loses_its_process_during_the_answer_gets_no_addresses() {
    static ASKED: AtomicBool = AtomicBool::new(false);
    let answer = |request| {
        // The process changes its user.
        ASKED.store(true, Ordering::Release);
        explanation_of(request)
    };
    with_manager(answer, |handler| {
        let handler = &RequestHandler {
            may_see_addresses: |_, _| !ASKED.load(Ordering::Acquire),
            ..RequestHandler::new(handler.requests.clone()).expect("the rates are valid")
        };
        let address = Some(1 << 46);
        let request = DaemonRequest::Why { pid: 1, address };
        let why = refusal(Some(ask(handler, OTHER, request)));
        assert!(why.contains("owner"), "{why}");
    });
}

#[test]
fn mappings_are_not_read_for_another_user() {
    let asked_of_region = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&asked_of_region);
    let answer = move |request| {
        let of_region = matches!(request, DaemonRequest::Why { address, .. } if address.is_some());
        seen.fetch_or(of_region, Ordering::AcqRel);
        explanation_of(request)
    };
    with_manager(answer, |handler| {
        let address = Some(1 << 46);
        let request = DaemonRequest::Why { pid: 1, address };
        let why = refusal(Some(ask(handler, STRANGER, request)));
        assert!(why.contains("owner"), "{why}");
        assert!(!asked_of_region.load(Ordering::Acquire));
    });
}

#[test]
fn an_invalid_request_is_refused_with_the_reason() {
    with_manager(done, |handler| {
        let say = |bytes: &[u8]| answer_to(handler, OTHER, bytes, CLIENT_TIME);
        let deep = [vec![b'['; 4000], vec![b'\n']].concat();
        for bytes in [&b"GET / HTTP/1.1\n"[..], b"\n", &[0xff, 0, 0xfe, b'\n'], &deep] {
            assert!(refusal(say(bytes)).contains("protocol"));
        }
        for (protocol, request, reason) in [
            (VERSION, r#""request":"halt""#, "halt"),
            (1, r#""request":"status""#, "same version"),
            (VERSION, r#""request":"why","pid":-1"#, "not a valid message"),
        ] {
            let line = format!("{{\"protocol\":{protocol},{request}}}\n");
            let why = refusal(say(line.as_bytes()));
            assert!(why.contains(reason), "{why}");
        }
    });
}

#[test]
fn an_oversized_request_is_refused() {
    with_manager(done, |handler| {
        let endless = vec![b' '; 4 << 20];
        let why = refusal(answer_to(handler, OTHER, &endless, CLIENT_TIME));
        assert!(why.contains("at most 4096 bytes"), "{why}");
    });
}

#[test]
fn a_stalling_client_is_dropped_without_an_answer() {
    with_manager(done, |handler| {
        let time = Duration::from_millis(30);
        assert_eq!(answer_to(handler, OTHER, b"", time), None);
        assert_eq!(answer_to(handler, OTHER, b"{\"protocol\":3,", time), None);

        // Single bytes now and then don't extend the deadline.
        let (mut client, server) = UnixStream::pair().expect("a socket pair");
        let dripping = thread::spawn(move || {
            while client.write_all(b" ").is_ok() {
                thread::sleep(Duration::from_millis(5));
            }
        });
        let stream = DeadlineStream::new(server, time);
        assert!(handler.serve_client(stream, OTHER, &ConnectionPermit::for_test()).is_err());
        dripping.join().expect("the client ends after it was dropped");
    });
}

#[test]
fn a_client_that_leaves_before_the_answer_does_no_harm() {
    with_manager(done, |handler| {
        let (mut client, server) = UnixStream::pair().expect("a socket pair");
        let line =
            protocol::encode_message_line(&DaemonRequest::Status).expect("the request serializes");
        client.write_all(&line).expect("the request is sent");
        client.shutdown(Shutdown::Both).expect("the connection can be shut down");
        drop(client);
        let stream = DeadlineStream::new(server, CLIENT_TIME);
        assert!(handler.serve_client(stream, ROOT, &ConnectionPermit::for_test()).is_err());
        assert_eq!(ask(handler, ROOT, DaemonRequest::Status), DONE);
    });
}

fn stalling(clients: u32, path: &Path) -> Vec<UnixStream> {
    let connect = |_| UnixStream::connect(path).expect("the connection succeeds");
    (0..clients).map(connect).collect()
}

#[test]
fn a_client_is_served_while_others_stall_or_send_garbage() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("socket");
    with_manager(done, |handler| {
        let server =
            SocketServer::start(&path, handler.requests.clone()).expect("the server starts");
        let mode = fs::metadata(&path).expect("the socket exists").permissions().mode();
        assert_eq!(mode & 0o777, 0o666);
        // The tests' user counts as root, so some of its connections stay free.
        let stalling = stalling(5, &path);
        let connect = || UnixStream::connect(&path).expect("the connection succeeds");
        let mut endless = connect();
        // The server closes the connection in the middle.
        let _ = endless.write_all(&vec![b'x'; 8 << 20]);
        let mut garbage = connect();
        let sent = garbage.write_all(b"\xff\x00{]\n");
        sent.expect("the garbage can be sent");
        let mut answer = String::new();
        garbage.read_to_string(&mut answer).expect("an answer");
        assert!(answer.contains("refused"), "{answer}");
        let reply =
            super::super::client::send_request(&path, DaemonRequest::Pause).expect("an answer");
        assert_eq!(reply, DONE);
        drop(stalling);
        drop(server);
        assert!(!path.exists(), "the socket is removed");
    });
}

#[test]
fn a_client_over_the_limit_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("socket");
    with_manager(done, |handler| {
        let _server =
            SocketServer::start(&path, handler.requests.clone()).expect("the server starts");
        let _stalling = stalling(30, &path);
        let reply = super::super::client::send_request(&path, DaemonRequest::Status);
        let error = reply.expect_err("no free connection").to_string();
        assert!(error.contains("is busy"), "{error}");
    });
}

#[test]
fn the_socket_of_an_ended_daemon_is_replaced_and_that_of_a_running_one_is_not() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("socket");
    // Dropping a listener leaves its file behind, as a killed daemon does.
    drop(UnixListener::bind(&path).expect("the socket can be bound"));
    with_manager(done, |handler| {
        let _living = SocketServer::start(&path, handler.requests.clone())
            .expect("the server replaces the stale socket");
        let error = SocketServer::start(&path, handler.requests.clone()).err();
        let said = error.expect("one is enough").to_string();
        assert!(said.contains("another daemon answers"), "{said}");
        assert!(path.exists());
    });
    fs::write(&path, "not a socket").expect("the file can be written");
    let (requests, _calls) = request_channel(Arc::new(|| {}));
    let error = SocketServer::start(&path, requests).err();
    assert!(error.is_some_and(|error| error.to_string().contains("is not a socket")));
    assert!(path.exists(), "files of others stay");
}

#[test]
fn a_strip_has_addresses_only_for_root_and_the_owner() {
    let answer = |_| {
        DaemonReply::Strip(AddressStrip {
            uid: OTHER.uid(),
            columns: vec![AddressStripColumn {
                start: Some(2 << 20),
                end: Some(4 << 20),
                regions: 1,
                ..AddressStripColumn::default()
            }],
            ..AddressStrip::default()
        })
    };
    with_manager(answer, |handler| {
        let (pid, columns) = (7, 80);
        let request = DaemonRequest::Strip { pid, columns };
        let start = |peer| match ask(handler, peer, request) {
            DaemonReply::Strip(strip) => (strip.columns[0].start, strip.columns[0].regions),
            other => panic!("expected a strip, got {other:?}"),
        };
        assert_eq!(start(ROOT), (Some(2 << 20), 1));
        assert_eq!(start(OTHER), (Some(2 << 20), 1));
        assert_eq!(start(STRANGER), (None, 1));
    });
}
