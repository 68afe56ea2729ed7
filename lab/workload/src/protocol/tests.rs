//! Tests of the line protocol.

use super::*;

#[test]
fn requests_read_as_they_are_written() {
    let with_numbers = [
        WorkloadRequest::Refill(512),
        WorkloadRequest::DontNeed(80),
        WorkloadRequest::Delete(60),
        WorkloadRequest::Free(3),
        WorkloadRequest::Unmap(4),
        WorkloadRequest::Latencies(RequestSchedule {
            length: Duration::from_millis(1500),
            questions_per_s: 200,
            writes_percent: 20,
        }),
    ];
    for request in WORDS.map(|(_, request)| request).into_iter().chain(with_numbers) {
        assert_eq!(request.to_string().parse(), Ok(request));
    }
    assert_eq!("  refill   7 ".parse(), Ok(WorkloadRequest::Refill(7)));
}

#[test]
fn nonsense_is_no_request() {
    for line in [
        "",
        "walk",
        "go now",
        "refill",
        "refill x",
        "refill -1",
        "dontneed 101",
        "delete 101",
        "rss 1",
        "latencies 1000 0 20",
        "latencies 1000 10 101",
    ] {
        let bad = InvalidRequestLine(line.to_owned());
        assert_eq!(line.parse::<WorkloadRequest>(), Err(bad));
    }
}

#[test]
fn events_are_flat_json_objects() {
    let ready = WorkloadEvent::Ready(WorkloadReady {
        pid: 1,
        start: 4096,
        bytes: 8192,
        hot_start: 12288,
        huge_bytes: 0,
        execs: 0,
    });
    let text = serde_json::to_string(&ready).unwrap();
    assert_eq!(
        text,
        r#"{"event":"ready","pid":1,"start":4096,"bytes":8192,"hot_start":12288,"huge_bytes":0,"execs":0}"#
    );
    assert_eq!(serde_json::from_str::<WorkloadEvent>(&text).unwrap(), ready);
    let verified = WorkloadEvent::Verified { checked_bytes: 4096, bad_bytes: 0, first_bad: None };
    let text = serde_json::to_string(&verified).unwrap();
    assert!(text.starts_with(r#"{"event":"verified","#) && text.contains(r#""bad_bytes":0"#));
}
