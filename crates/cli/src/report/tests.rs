//! Compares reports of given rows with snapshots (`cargo insta review` shows changes).

use super::*;
use hawkeye_policy::{
    FileRegion, HUGE_PAGE_BYTES, PageOrder, ProcessId, RegionAddr, RegionSample, SampledMemory,
    SharedMemoryTotals,
};
use hawkeye_recording::{
    AccessSource, CoverageRow, DecisionRow, MemoryRow, ProcessRow, RecordingMetadata, RecordingRow,
};
use std::sync::Arc;
use std::time::Duration;

const HEAP: u64 = 0x5600_0000_0000;
const MAPPED: u64 = 0x7f00_0000_0000;

fn id(pid: u32) -> ProcessId {
    ProcessId { pid, start_ticks: 9 }
}

fn region(
    at: Duration,
    pid: u32,
    command: &Arc<str>,
    address: u64,
    state: (u16, bool),
) -> RecordingRow {
    let (accessed, huge) = state;
    RecordingRow::Region(CoverageRow {
        at,
        window: Duration::from_secs(1),
        source: AccessSource::AccessBits,
        process: id(pid),
        command: command.clone(),
        cpu_cores: 0.75,
        overhead_percent: Some(if huge { 4.0 } else { 32.0 }),
        region: RegionSample {
            accessed,
            runs: accessed / 2,
            order: PageOrder::base_or_huge(huge),
            walks_per_s: u32::from(accessed) * 100,
            ..RegionSample::new_full_and_untouched(RegionAddr::containing(address))
        },
    })
}

/// A server with eight regions of heap and sixteen mapped ones. The last quarter of these is hot,
/// and becomes huge region by region.
fn rows(windows: u64) -> Vec<RecordingRow> {
    let command: Arc<str> = "redis-server".into();
    let mut rows = Vec::new();
    for window in 0..windows {
        let at = Duration::from_secs(30 * (window + 1));
        let huge: Vec<u64> = (12..16).filter(|n| window > n - 12).collect();
        for n in 0..8 {
            rows.push(region(at, 7, &command, HEAP + (n << 21), (0, false)));
        }
        for n in 0..16 {
            let is_huge = huge.contains(&n);
            let accessed = if n >= 12 { 512 } else { 16 * n as u16 };
            let address = MAPPED + (n << 21);
            rows.push(region(at, 7, &command, address, (accessed, is_huge)));
        }
        rows.push(RecordingRow::Process(ProcessRow {
            at,
            process: id(7),
            command: command.clone(),
            cpu_cores: Some(0.75),
            overhead_percent: Some(32.0),
            rss_bytes: 48 << 20,
            huge_bytes: huge.len() as u64 * (2 << 20),
            bloat_bytes: Some(huge.len() as u64 * 4096),
        }));
        rows.push(RecordingRow::Memory(MemoryRow {
            at,
            used_bytes: 6 << 30,
            total_bytes: 8 << 30,
            pressure_percent: Some(0.5),
            fmfi: Some(0.1),
            manager_cpu_percent: Some(1.25),
        }));
        if window < 4 {
            rows.push(RecordingRow::Decision(DecisionRow {
                at,
                process: Some((id(7), command.clone())),
                region: Some(RegionAddr::containing(MAPPED + ((12 + window) << 21))),
                event: "promoted".into(),
                reason: format!("promoted in 0.{window} ms: coverage 512.0").into(),
            }));
        }
    }
    rows
}

fn rename(rows: &mut [RecordingRow], name: &Arc<str>) {
    for row in rows {
        match row {
            RecordingRow::Process(ProcessRow { command, .. }) => *command = name.clone(),
            RecordingRow::Region(CoverageRow { command, .. }) => *command = name.clone(),
            _ => {}
        }
    }
}

fn extent_of(rows: &[RecordingRow]) -> RecordingExtent {
    let mut extent = RecordingExtent::default();
    rows.iter().for_each(|row| extent.add_row(row));
    extent
}

fn summed(rows: &[RecordingRow]) -> RecordingReport {
    summed_by(ReportBuilder::for_recording_extent(extent_of(rows)), rows)
}

fn summed_by(mut summing: ReportBuilder, rows: &[RecordingRow]) -> RecordingReport {
    rows.iter().for_each(|row| summing.add_row(row));
    let about = RecordingMetadata {
        host: "web-7".into(),
        kernel: "6.18.44".into(),
        policy: "hawkeye-g".into(),
        began: Some(Duration::from_secs(1_790_000_000)),
    };
    summing.finish(&about, false, 0)
}

#[test]
fn as_text() {
    insta::assert_snapshot!(report_text(&summed(&rows(10))));
}

/// Recovery and prefault change memory with the policy `none` too.
#[test]
fn of_the_policy_none_a_report_says_only_that_nothing_was_promoted() {
    let report = RecordingReport { policy: "none".into(), ..summed(&rows(1)) };
    let text = report_text(&report);
    let heading = text.lines().next().unwrap_or_default();
    assert!(heading.ends_with("; HawkEye promoted nothing."), "{heading}");
}

#[test]
fn as_text_where_regions_were_probed_for_walks() {
    let mut rows = rows(3);
    for row in &mut rows {
        if let RecordingRow::Region(row) = row {
            row.source = AccessSource::Probed;
        }
    }
    insta::assert_snapshot!(report_text(&summed(&rows)));
}

/// Another process that does the same.
fn copied_to(pid: u32, row: &RecordingRow) -> RecordingRow {
    let mut row = row.clone();
    match &mut row {
        RecordingRow::Region(row) => row.process = id(pid),
        RecordingRow::Process(row) => row.process = id(pid),
        RecordingRow::Decision(_) | RecordingRow::Memory(_) => {}
    }
    row
}

/// Two processes that share a file, and a third one with another file, which ends early.
fn rows_with_shared_memory() -> Vec<RecordingRow> {
    let mut all = Vec::new();
    for mut row in rows(10) {
        if let RecordingRow::Region(row) = &mut row {
            let offset = row.region.region.start().checked_sub(MAPPED);
            row.region.file = offset.and_then(|offset| FileRegion::at_offset(1, 77, offset));
        }
        let shown = matches!(row, RecordingRow::Region(_) | RecordingRow::Process(_));
        if shown {
            all.push(copied_to(8, &row));
        }
        if shown && row.time_since_start() <= Duration::from_secs(60) {
            let mut ended = copied_to(9, &row);
            if let RecordingRow::Region(row) = &mut ended {
                row.region.file = row.region.file.map(|file| FileRegion { inode: 78, ..file });
            }
            all.push(ended);
        }
        all.push(row);
    }
    all
}

fn memory(regions: u64, huge: u64) -> SampledMemory {
    SampledMemory { resident_bytes: regions * HUGE_PAGE_BYTES, huge_bytes: huge * HUGE_PAGE_BYTES }
}

#[test]
fn shared_memory_counts_once_and_apart_from_private_memory() {
    let report = summed(&rows_with_shared_memory());
    assert_eq!(report.memory.private, memory(2 * 8, 0));
    let (once, again) = (memory(16, 4), memory(16, 4));
    let totals = SharedMemoryTotals { memory: once, files: 1, processes: 2, counted_again: again };
    assert_eq!(report.memory.shared, totals);
    let shared = report.processes.iter().map(|p| (p.pid, p.shared_end_bytes));
    let mut shared: Vec<_> = shared.collect();
    shared.sort_unstable();
    assert_eq!(shared, [7, 8, 9].map(|pid| (pid, once.resident_bytes)));
    let text = report_text(&report);
    let lines = "\
Memory of sampled regions at the end; each part of a file counts once
  private  32 MiB, 0 bytes of it huge
  shared   32 MiB in 1 file of 2 processes, 8.0 MiB of it huge
  file     32 MiB, 8.0 MiB of it huge: device 0:1, inode 77, of 7, 8
";
    assert!(text.contains(lines), "{text}");
    let json = serde_json::to_value(&report).expect("the report serializes");
    assert_eq!(json["memory"]["shared"]["resident_bytes"], 32 << 20);
    assert_eq!(json["memory"]["files"][0]["pids"], serde_json::json!([7, 8]));
    let without = report_text(&summed(&rows(10)));
    assert!(!without.contains("each part of a file"), "{without}");
}

#[test]
fn the_regions_of_shared_memory_that_a_report_keeps_are_bounded() {
    let rows = rows_with_shared_memory();
    let with_max_regions = |most_regions| {
        let extent = extent_of(&rows);
        summed_by(ReportBuilder::with_max_shared_regions(extent, most_regions), &rows)
    };
    // The process that ended early takes no room.
    let enough = with_max_regions(2 * 16);
    assert_eq!(enough.memory, summed(&rows).memory);
    assert!(!report_text(&enough).contains("not counted"));
    // Ten regions of each process.
    let too_few = with_max_regions(20);
    let (found, all) = (&too_few.memory, &enough.memory);
    assert_eq!(found.shared_regions_left_out, 2 * 6);
    assert_eq!(found.shared.memory, memory(10, 0));
    assert_eq!(found.private, all.private);
    let shared = |report: &RecordingReport| -> Vec<u64> {
        report.processes.iter().map(|process| process.shared_end_bytes).collect()
    };
    assert_eq!(shared(&too_few), shared(&enough));
    let text = report_text(&too_few);
    assert!(text.contains("\n  not counted: 12 further regions of shared memory\n"), "{text}");
}

#[test]
fn an_empty_recording_has_a_report() {
    let report = summed(&[]);
    assert!(report_text(&report).starts_with("0 s of web-7"));
    assert!(html_page(&report).is_ok());
}

fn data_of_page(page: &str) -> serde_json::Value {
    let data = page.split_once(r#"id="data">"#).expect("the page has data").1;
    let data = data.split_once("</script>").expect("the data end with a tag").0;
    serde_json::from_str(data).expect("the data are JSON")
}

#[test]
fn hostile_names_do_no_harm_to_the_page() {
    let mut rows = rows(1);
    let evil: Arc<str> = "</script><b>{{".into();
    rename(&mut rows, &evil);
    let report = summed(&rows);
    let page = html_page(&report).expect("the page renders");
    assert_eq!(page.matches("</script>").count(), 2, "only the page's own scripts end");
    assert_eq!(data_of_page(&page)["processes"][0]["command"], *evil);
    for outside in ["src=", "href=", "url(", "import "] {
        assert!(!page.contains(outside), "the page refers to something outside: {outside}");
    }
}

#[test]
fn a_host_named_like_a_placeholder_does_no_harm_to_the_page() {
    for name in ["{{data}}", "{{script}}", "{{style}}", "{{title}}"] {
        let report = RecordingReport { host: name.to_owned(), ..summed(&rows(1)) };
        let page = html_page(&report).expect("the page renders");
        let title = format!("<title>HawkEye: {name}</title>");
        assert!(page.contains(&title), "{name}");
        assert_eq!(data_of_page(&page)["host"], name);
    }
}

#[test]
fn a_reused_process_id_gives_two_processes() {
    let mut rows = rows(4);
    let later = ProcessId { start_ticks: 10, ..id(7) };
    let mut reused = rows.clone();
    for row in &mut reused {
        match row {
            RecordingRow::Region(row) => row.process = later,
            RecordingRow::Process(row) => (row.process, row.rss_bytes) = (later, 99 << 20),
            RecordingRow::Decision(row) => row.process = Some((later, "redis-server".into())),
            RecordingRow::Memory(_) => {}
        }
        row.set_time_since_start(row.time_since_start() + Duration::from_secs(300));
    }
    rows.extend(reused);
    let report = summed(&rows);
    let peaks: Vec<u64> = report.processes.iter().map(|p| p.rss_peak_bytes).collect();
    assert_eq!(peaks, [99 << 20, 48 << 20]);
    let marks = &report.decisions.marks;
    assert_eq!(marks.len(), 8);
    for mark in marks {
        let first = usize::from(mark.first.at_s < 300.0);
        assert_eq!(mark.process, Some(first), "{mark:?}");
    }
}

#[test]
fn hostile_names_do_no_harm_to_terminals() {
    let mut rows = rows(1);
    rename(&mut rows, &"redis\x1b[2J\0".into());
    let mut report = summed(&rows);
    for name in [&mut report.host, &mut report.kernel, &mut report.policy] {
        *name = "\x1b]0;x\x07\n".to_owned();
    }
    let text = report_text(&report);
    let control = |c: char| c.is_control() && c != '\n';
    assert!(!text.contains(control), "{text:?}");
}

#[test]
fn the_size_of_a_report_is_bounded() {
    let mut rows = rows(5_000);
    for n in 0..50_000u64 {
        rows.push(RecordingRow::Decision(DecisionRow {
            at: Duration::from_secs(30 * 5_000 + n),
            process: Some((id(7), "redis-server".into())),
            region: Some(RegionAddr::containing(MAPPED + ((n % 16) << 21))),
            event: "recovered".into(),
            reason: format!("split, {n} KiB recovered").into(),
        }));
    }
    let report = summed(&rows);
    let map = report.processes[0].map.as_ref().expect("a map");
    assert_eq!(map.columns.len(), heat_map::MOST_COLUMNS);
    let windows: u32 = map.columns.iter().map(|column| column.windows).sum();
    assert_eq!(windows, 5_000);
    let mut pairs = map.columns.windows(2);
    assert!(pairs.all(|pair| pair[0].to_s <= pair[1].from_s));
    assert!(report.processes[0].rss_bytes.mean_points().count() <= time_series::MOST_POINTS);
    assert_eq!(report.decisions.total, 50_004);
    assert!(report.decisions.marks.len() < 1_000);
    assert_eq!(report.decisions.kinds[0].count, 50_000);
    assert!(serde_json::to_string(&report).expect("the report serializes").len() < 400_000);
}

#[test]
fn very_many_processes_are_left_out_but_for_the_largest() {
    const PROCESSES: u32 = 20_000;
    let mut rows = Vec::new();
    for pid in 1..=PROCESSES {
        let at = Duration::from_secs(pid.into());
        rows.push(RecordingRow::Process(ProcessRow {
            at,
            process: id(pid),
            command: "forged".into(),
            cpu_cores: None,
            overhead_percent: None,
            // The first ones are the largest.
            rss_bytes: u64::from(PROCESSES - pid) << 20,
            huge_bytes: 0,
            bloat_bytes: None,
        }));
        rows.push(RecordingRow::Decision(DecisionRow {
            at,
            process: Some((id(pid), "forged".into())),
            region: None,
            event: format!("event {pid}").into(),
            reason: "forged".into(),
        }));
    }
    let report = summed(&rows);
    let pids: Vec<u32> = report.processes.iter().map(|process| process.pid).collect();
    assert!(pids.iter().copied().eq(1..=4096), "{}", pids.len());
    assert_eq!(report.processes_left_out, 20_000 - 4096);
    assert!(report_text(&report).contains("\nand 19980 more\n"));
    assert_eq!(report.decisions.total, 20_000);
    assert_eq!(report.decisions.marks.len(), 1 << 14);
}

#[test]
fn only_the_largest_processes_have_maps() {
    let mut rows = Vec::new();
    for window in 1..3 {
        for pid in 1..=200u32 {
            let command: Arc<str> = format!("p{pid}").into();
            for n in 0..u64::from(pid / 10) + 1 {
                let at = Duration::from_secs(window);
                rows.push(region(at, pid, &command, HEAP + (n << 21), (9, false)));
            }
        }
    }
    let report = summed(&rows);
    assert_eq!(report.processes.len(), 200);
    let mapped = report.processes.iter().filter(|p| p.map.is_some());
    let mapped: Vec<u32> = mapped.map(|p| p.pid).collect();
    assert_eq!(mapped.len(), 8, "{mapped:?}");
    assert!(mapped.iter().all(|pid| *pid >= 190), "{mapped:?}");
}
