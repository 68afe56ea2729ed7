//! Readers of traces: realistic files, every kind of damage, and arbitrary bytes.

use hawkeye_sim::trace::{
    AccessKind, BadRecordHandling, TraceAccess, TraceError, TraceFormat, TracePosition, TraceReader,
};
use lzma_rust2::{XzOptions, XzWriter};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence::Direct;
use std::io::{BufReader, Cursor, Write};

type TestResult = Result<(), Box<dyn std::error::Error>>;

const FORMATS: [TraceFormat; 4] =
    [TraceFormat::Lackey, TraceFormat::ChampSim, TraceFormat::Drmemtrace, TraceFormat::PerfScript];

/// As Valgrind 3.19 writes it for `/bin/true`, shortened.
const LACKEY: &str = "\
==6023== Lackey, an example Valgrind tool
==6023== Command: /bin/true
==6023== \n\
I  0401ab70,3
I  0401ab73,5
 S 1fff000758,8
 L 04038e70,8
 M 04039f30,4
==6023== Exit code:       0
";

/// In the layout of `view.cpp`.
const VIEW: &str = "\
Output format:
<--record#-> <--instr#->: <---tid---> <record details>
------------------------------------------------------------
           1           0:      342625 <marker: version 3>
           2           0:      342625 <marker: filetype 0x240>
           3           1:      342625 ifetch       3 byte(s) @ 0x00007f2c8b4b2090 48 89 e7             mov    %rsp, %rdi
           4           2:      342625 ifetch       5 byte(s) @ 0x00007f2c8b4b2093 e8 c8 0c 00 00       call   $0x00007f2c8b4b2d60
           5           2:      342625 write        8 byte(s) @ 0x00007ffd0fa3a9a8 by PC 0x00007f2c8b4b2093
           6           3:     T342625 read        32 byte(s) @ 0x00007ffd0fa3a9b0 by PC 0x00007f2c8b4b2098
           7           3:   W0.T342626 pref-r-L1   64 byte(s) @ 0x00007ffd0fa3aa00 by PC 0x00007f2c8b4b2098
           8           3:      342625 <thread 342625 exited>
View tool results:
              3 : total instructions
";

/// With the documented fields, and as `perf script` prints memory events by default.
const PERF: &str = "\
# captured on: Mon Nov 16 10:00:00 2026
           redis  7318 123456.789012: cpu/mem-loads,ldlat=30/P:     7ffd5c3a1000
Web Content 7318/7320  123456.789013: cpu/mem-stores/P: 7f0010
  ls  99 [003]  5.000000001:   30 ibs_op//:     7ffe0008        5080442 |OP STORE|LVL L1 hit|SNP None  0  401000 main
  ls  99  5.100000: cpu/mem-loads/P:                0
";

fn read(
    format: TraceFormat,
    text: &[u8],
    bad: BadRecordHandling,
) -> (Vec<TraceAccess>, Option<TraceError>, u64) {
    let mut trace = TraceReader::new(format, text, bad);
    let mut accesses = Vec::new();
    let mut error = None;
    for access in &mut trace {
        match access {
            Ok(access) => accesses.push(access),
            Err(why) => error = Some(why),
        }
    }
    assert!(trace.next().is_none(), "nothing follows the end");
    (accesses, error, trace.skipped_records())
}

fn places(accesses: &[TraceAccess]) -> Vec<(AccessKind, u64)> {
    accesses.iter().map(|access| (access.kind, access.address)).collect()
}

fn record(ip: u64, loads: [u64; 4], stores: [u64; 2]) -> Vec<u8> {
    let mut bytes = ip.to_le_bytes().to_vec();
    bytes.extend([1, 0, 6, 25, 6, 0, 26, 0]);
    bytes.extend(stores.iter().chain(&loads).flat_map(|address| address.to_le_bytes()));
    bytes
}

fn xz(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut writer = XzWriter::new(Vec::new(), XzOptions::with_preset(1))?;
    writer.write_all(bytes)?;
    writer.finish()
}

/// Reads a trace without an error, and compares its accesses.
fn assert_reads(
    format: TraceFormat,
    text: &[u8],
    expected: &[(AccessKind, u64)],
) -> Vec<TraceAccess> {
    let (accesses, error, _) = read(format, text, BadRecordHandling::Fail);
    assert!(error.is_none(), "{error:?}");
    assert_eq!(places(&accesses), expected);
    accesses
}

#[test]
fn lackey() {
    let expected = [
        (AccessKind::Fetch, 0x401_ab70),
        (AccessKind::Fetch, 0x401_ab73),
        (AccessKind::Store, 0x1f_ff00_0758),
        (AccessKind::Load, 0x403_8e70),
        (AccessKind::Modify, 0x403_9f30),
    ];
    let accesses = assert_reads(TraceFormat::Lackey, LACKEY.as_bytes(), &expected);
    assert_eq!((accesses[1].bytes, accesses[4].bytes), (Some(5), Some(4)));
}

#[test]
fn drmemtrace() {
    let expected = [
        (AccessKind::Fetch, 0x7f2c_8b4b_2090),
        (AccessKind::Fetch, 0x7f2c_8b4b_2093),
        (AccessKind::Store, 0x7ffd_0fa3_a9a8),
        (AccessKind::Load, 0x7ffd_0fa3_a9b0),
    ];
    let accesses = assert_reads(TraceFormat::Drmemtrace, VIEW.as_bytes(), &expected);
    assert_eq!((accesses[3].bytes, accesses[3].thread), (Some(32), Some(342_625)));
}

#[test]
fn perf_script() {
    let expected = [
        (AccessKind::Load, 0x7ffd_5c3a_1000),
        (AccessKind::Store, 0x7f_0010),
        (AccessKind::Store, 0x7ffe_0008),
    ];
    let accesses = assert_reads(TraceFormat::PerfScript, PERF.as_bytes(), &expected);
    let threads: Vec<_> = accesses.iter().map(|access| access.thread).collect();
    assert_eq!(threads, [Some(7318), Some(7320), Some(99)]);
    assert_eq!(accesses[0].time_ns, Some(123_456_789_012_000));
    assert_eq!(accesses[2].time_ns, Some(5_000_000_001));
}

#[test]
fn champsim() {
    let mut bytes = record(0x40_0000, [0x1000, 0, 0x2000, 0], [0, 0x3000]);
    bytes.extend(record(0x40_0004, [0; 4], [0; 2]));
    let expected = [
        (AccessKind::Fetch, 0x40_0000),
        (AccessKind::Load, 0x1000),
        (AccessKind::Load, 0x2000),
        (AccessKind::Store, 0x3000),
        (AccessKind::Fetch, 0x40_0004),
    ];
    assert_reads(TraceFormat::ChampSim, &bytes, &expected);
}

#[test]
fn errors_name_their_line() {
    let message = |format, text: &[u8]| {
        let (accesses, error, _) = read(format, text, BadRecordHandling::Fail);
        (accesses.len(), error.map(|error| error.to_string()).unwrap_or_default())
    };
    let (before, said) = message(TraceFormat::Lackey, b" L 10,8\n L 1g,8\n L 20,8\n");
    assert_eq!(before, 1);
    let expected = "line 2: \" L 1g,8\" is not a valid line or record of the trace: expected \"I  ADDRESS,SIZE\", \
                    \" L ADDRESS,SIZE\", \" S ADDRESS,SIZE\" or \" M ADDRESS,SIZE\"";
    assert_eq!(said, expected);
    let (before, said) = message(TraceFormat::Lackey, b" L 10,8\n L 20,");
    let cut = "line 2: the trace ends within a line; it was cut off: record or copy it again";
    assert_eq!((before, said.as_str()), (1, cut));
    let mut bytes = record(1, [0; 4], [0; 2]);
    bytes.extend([7; 63]);
    let (before, said) = message(TraceFormat::ChampSim, &bytes);
    assert_eq!(before, 1);
    assert!(said.starts_with("byte 64: the trace ends within a record"), "{said}");
    bytes.push(7);
    let (_, said) = message(TraceFormat::ChampSim, &bytes);
    assert!(said.starts_with("byte 64: ") && said.contains("0 or 1"), "{said}");
    let long = [b'x'; 100_000];
    let (_, said) = message(TraceFormat::PerfScript, &long);
    assert!(said.starts_with("line 1: \"xxx") && said.len() < 400, "{said}");
    let (_, said) = message(TraceFormat::Drmemtrace, b"1 1: 5 write x byte(s) @ 0x10\n");
    assert!(said.starts_with("line 1: "), "{said}");
}

#[test]
fn bad_records_are_skipped_on_request() {
    let text = b" L 10,8\nrubbish\n\xff\xfe\n S 20,8\n L 30,";
    let (accesses, error, skipped) = read(TraceFormat::Lackey, text, BadRecordHandling::Skip);
    assert!(error.is_none(), "{error:?}");
    assert_eq!(places(&accesses), [(AccessKind::Load, 0x10), (AccessKind::Store, 0x20)]);
    assert_eq!(skipped, 3);
    let mut bytes = record(1, [0; 4], [0; 2]);
    bytes.extend([9; 64]);
    bytes.extend(record(2, [0; 4], [0; 2]));
    bytes.extend([1; 10]);
    let (accesses, error, skipped) = read(TraceFormat::ChampSim, &bytes, BadRecordHandling::Skip);
    assert!(error.is_none(), "{error:?}");
    assert_eq!(places(&accesses), [(AccessKind::Fetch, 1), (AccessKind::Fetch, 2)]);
    assert_eq!(skipped, 2);
}

#[test]
fn formats_are_told_by_content_and_name() -> TestResult {
    let records: Vec<u8> = (0..3).flat_map(|n| record(0x40_0000 + n, [n; 4], [0; 2])).collect();
    let known: [(&str, &[u8], TraceFormat, usize); 5] = [
        ("a", LACKEY.as_bytes(), TraceFormat::Lackey, 5),
        ("b", VIEW.as_bytes(), TraceFormat::Drmemtrace, 4),
        ("c.txt", PERF.as_bytes(), TraceFormat::PerfScript, 3),
        ("d", &records, TraceFormat::ChampSim, 11),
        ("600.perlbench_s-210B.champsimtrace", &records[..64], TraceFormat::ChampSim, 1),
    ];
    for (name, bytes, format, count) in known {
        assert_eq!(TraceFormat::detect(name, bytes), Some(format), "{name}");
        for (name, bytes) in [(name.to_owned(), bytes.to_vec()), (format!("{name}.xz"), xz(bytes)?)]
        {
            let trace = TraceReader::detect(&name, Cursor::new(bytes), BadRecordHandling::Fail)?;
            assert_eq!(trace.collect::<Result<Vec<_>, _>>()?.len(), count, "{name}");
        }
    }
    let refused = |bytes: &'static [u8]| {
        let trace = TraceReader::detect("x", Cursor::new(bytes), BadRecordHandling::Skip);
        trace.err().map(|error| error.to_string()).unwrap_or_default()
    };
    for bytes in [&b""[..], b"hello\n", b"\x01\x02\x03", &[0xff; 200]] {
        assert!(refused(bytes).contains("not a trace in a known format"), "{bytes:?}");
    }
    assert!(refused(b"PK\x03\x04rest").contains("-tool view"));
    assert!(refused(b"\x1f\x8b\x08").contains("gzip -d"));
    Ok(())
}

#[test]
fn files_are_opened() -> TestResult {
    let path = std::env::temp_dir().join(format!("hawkeye-trace-{}.xz", std::process::id()));
    std::fs::write(&path, xz(LACKEY.as_bytes())?)?;
    let trace = TraceReader::open(&path, BadRecordHandling::Fail).map(Iterator::count);
    std::fs::remove_file(&path)?;
    assert_eq!(trace?, 5);
    let missing = TraceReader::open(&path, BadRecordHandling::Fail);
    assert!(matches!(missing, Err(TraceError::Open { .. })));
    Ok(())
}

#[test]
fn truncated_compressed_input_is_reported() -> TestResult {
    // Incompressible.
    let mut random = 1u64;
    let records: Vec<u8> = (0..4000)
        .flat_map(|_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            record(random, [random >> 7; 4], [random >> 9; 2])
        })
        .collect();
    let whole = xz(&records)?;
    for length in [whole.len() / 4, whole.len() - 40] {
        let cut = Cursor::new(whole[..length].to_vec());
        let trace = TraceReader::detect("a.champsimtrace.xz", cut, BadRecordHandling::Fail);
        // The decompression buffer may be larger than the data.
        let last = trace.map_or_else(|error| Some(Err(error)), Iterator::last);
        let truncated = matches!(last, Some(Err(TraceError::Truncated { .. })));
        assert!(truncated, "{last:?}");
    }
    Ok(())
}

/// Like a reader of a slow pipe: some bytes at a time.
fn in_pieces(bytes: Vec<u8>) -> impl std::io::BufRead {
    BufReader::with_capacity(7, Cursor::new(bytes))
}

fn kind() -> impl Strategy<Value = AccessKind> {
    proptest::sample::select(vec![
        AccessKind::Load,
        AccessKind::Store,
        AccessKind::Modify,
        AccessKind::Fetch,
    ])
}

/// An access as text, in every format that has such accesses.
fn written(format: TraceFormat, access: &TraceAccess) -> Option<String> {
    let TraceAccess { kind, address, .. } = *access;
    let bytes = access.bytes.unwrap_or(1);
    let (thread, time) = (access.thread.unwrap_or(1), access.time_ns.unwrap_or(0));
    match (format, kind) {
        (TraceFormat::Lackey, AccessKind::Fetch) => Some(format!("I  {address:08x},{bytes}\n")),
        (TraceFormat::Lackey, AccessKind::Load) => Some(format!(" L {address:08x},{bytes}\n")),
        (TraceFormat::Lackey, AccessKind::Store) => Some(format!(" S {address:08x},{bytes}\n")),
        (TraceFormat::Lackey, AccessKind::Modify) => Some(format!(" M {address:08x},{bytes}\n")),
        (TraceFormat::Drmemtrace, AccessKind::Modify)
        | (TraceFormat::PerfScript, AccessKind::Modify | AccessKind::Fetch) => None,
        (TraceFormat::Drmemtrace, kind) => {
            let name = match kind {
                AccessKind::Load => "read",
                AccessKind::Store => "write",
                _ => "ifetch",
            };
            Some(format!(
                "  7   3:  {thread} {name:12}{bytes:2} byte(s) @ 0x{address:016x} by PC 0x1\n"
            ))
        }
        (TraceFormat::PerfScript, kind) => {
            let event = if kind == AccessKind::Load { "mem-loads,ldlat=30" } else { "mem-stores" };
            let (seconds, rest) = (time / 1_000_000_000, time % 1_000_000_000);
            Some(format!(
                "{:>16} {thread:>7} {seconds:>5}.{rest:09}: cpu/{event}/P: {address:>16x} \n",
                "my prog"
            ))
        }
        (TraceFormat::ChampSim, _) => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        ..ProptestConfig::with_failure_persistence(Direct("proptest-regressions/tests/trace.txt"))
    })]

    #[test]
    fn arbitrary_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..2000), name in ".{0,8}") {
        for format in FORMATS {
            let (_, error, _) = read(format, &bytes, BadRecordHandling::Fail);
            if let Some(error) = error {
                prop_assert!(error.to_string().contains(&position(&error)?), "{}", error);
            }
            let (_, error, _) = read(format, &bytes, BadRecordHandling::Skip);
            prop_assert!(error.is_none());
        }
        let _ = TraceReader::detect(&name, Cursor::new(bytes), BadRecordHandling::Skip).map(Iterator::count);
    }

    #[test]
    fn damaged_traces_are_survived(
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..20),
        compressed in any::<bool>(),
    ) {
        let records: Vec<u8> = (0..9).flat_map(|n| record(n, [n; 4], [n; 2])).collect();
        for (format, bytes) in [
            (TraceFormat::Lackey, LACKEY.as_bytes()),
            (TraceFormat::Drmemtrace, VIEW.as_bytes()),
            (TraceFormat::PerfScript, PERF.as_bytes()),
            (TraceFormat::ChampSim, &records[..]),
        ] {
            let mut bytes = if compressed { xz(bytes)? } else { bytes.to_vec() };
            for (at, byte) in &damage {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            let (_, error, _) = read(format, &bytes, BadRecordHandling::Skip);
            prop_assert!(error.is_none());
            if let Ok(trace) = TraceReader::detect("x", Cursor::new(bytes), BadRecordHandling::Fail) {
                for error in trace.filter_map(Result::err) {
                    prop_assert!(error.to_string().contains(&position(&error)?));
                }
            }
        }
    }

    #[test]
    fn lines_that_are_right_survive(
        written_accesses in proptest::collection::vec((kind(), 1u64.., 1u32..513, 1u64..1 << 22, 0u64..1 << 60), 0..60),
        rubbish in "[a-z ]{1,30}",
    ) {
        for format in [TraceFormat::Lackey, TraceFormat::Drmemtrace, TraceFormat::PerfScript] {
            let (mut text, mut expected) = (String::new(), Vec::new());
            for (kind, address, bytes, thread, time) in &written_accesses {
                let (has_bytes, has_time) = (format != TraceFormat::PerfScript, format == TraceFormat::PerfScript);
                let access = TraceAccess {
                    kind: *kind,
                    address: *address,
                    bytes: has_bytes.then_some(*bytes),
                    thread: (format != TraceFormat::Lackey).then_some(*thread),
                    time_ns: has_time.then_some(*time),
                };
                if let Some(line) = written(format, &access) {
                    text.push_str(&line);
                    text.push_str(&format!("{}\n", rubbish.trim()));
                    expected.push(access);
                }
            }
            let input = in_pieces(text.into_bytes());
            let mut trace = TraceReader::new(format, input, BadRecordHandling::Skip);
            let accesses = (&mut trace).collect::<Result<Vec<_>, _>>();
            prop_assert!(accesses.is_ok());
            let rubbish_lines = if rubbish.trim().is_empty() { 0 } else { expected.len() as u64 };
            prop_assert_eq!(trace.skipped_records(), rubbish_lines);
            prop_assert_eq!(accesses.unwrap_or_default(), expected);
        }
    }

    #[test]
    fn records_that_are_right_survive(
        records in proptest::collection::vec(any::<(u64, [u64; 4], [u64; 2])>(), 0..40),
    ) {
        let bytes: Vec<u8> = records.iter().flat_map(|(ip, l, s)| record(*ip, *l, *s)).collect();
        let mut expected = Vec::new();
        for (ip, loads, stores) in &records {
            expected.push((AccessKind::Fetch, *ip));
            expected.extend(loads.iter().filter(|a| **a != 0).map(|a| (AccessKind::Load, *a)));
            expected.extend(stores.iter().filter(|a| **a != 0).map(|a| (AccessKind::Store, *a)));
        }
        let trace = TraceReader::new(TraceFormat::ChampSim, in_pieces(bytes), BadRecordHandling::Fail);
        let accesses = trace.collect::<Result<Vec<_>, _>>();
        prop_assert!(accesses.is_ok());
        prop_assert_eq!(places(&accesses.unwrap_or_default()), expected);
    }
}

fn position(error: &TraceError) -> Result<String, TestCaseError> {
    match error {
        TraceError::Read { position, .. }
        | TraceError::Bad { position, .. }
        | TraceError::Truncated { position, .. } => Ok(match position {
            TracePosition::Line(line) => format!("line {line}"),
            TracePosition::Byte(byte) => format!("byte {byte}"),
        }),
        other => Err(TestCaseError::fail(format!("no position: {other}"))),
    }
}
