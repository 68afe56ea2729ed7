use super::*;
use crate::view::{FileMapperView, JournalEntryView};
use hawkeye_policy::{CoverageSource, FileRegion, PageOrder, ProcessSettings, RegionAddr};

#[test]
fn addresses_are_hexadecimal_or_decimal() {
    assert_eq!(parse_address("0x7f2a40000000"), Ok(0x7f2a_4000_0000));
    assert_eq!(parse_address("4096"), Ok(4096));
    for bad in ["", "0x", "7f2a", "-1", "0xffffffffffffffff", "1e9"] {
        assert!(parse_address(bad).is_err(), "{bad}");
    }
}

fn redis() -> ProcessStatus {
    ProcessStatus {
        pid: 4711,
        name: "redis-server".into(),
        cgroup: Some("/system.slice/redis.service".into()),
        rss_bytes: 4 << 30,
        huge_bytes: 1 << 30,
        promoted: 512,
        last_reason: Some("bucket 9: 480 of 512 base pages accessed".into()),
        ..ProcessStatus::default()
    }
}

#[test]
fn a_process_is_explained_in_sentences() {
    let why = Explanation::Process(Box::new(ProcessExplanation {
        process: redis(),
        sample: Some(LastSampleSummary {
            age_s: 12.3,
            source: CoverageSource::AccessBits,
            accessed_pages: 100,
            regions: 2048,
            huge: 512,
            candidates: 1500,
            cooling_down: 0,
            shared: 0,
            recovered: 0,
            not_accessed: 36,
        }),
        kept_by: vec!["the machine uses 90 % of its memory".into()],
        waits: vec!["calls into processes took long; recovery continues in 0.4 s".into()],
        latest: vec![JournalEntryView {
            region: Some(0x7f2a_4000_0000),
            ..entry(75.0, "promoted in 0.4 ms: bucket 9: 480 of 512 base pages accessed")
        }],
    }));
    let expected = "\
Process 4711 (redis-server), cgroup /system.slice/redis.service:
4.0 GiB resident, 1.0 GiB of it huge; promoted 512 regions, split 0, recovered 0
bytes.
The cost of address translation is unknown so far.
Reason of the last change: bucket 9: 480 of 512 base pages accessed.
12 s ago it had 2048 regions of 2 MiB with memory: 512 huge, 1500 to be
promoted, 36 not accessed.
It is not promoted at the moment because:
- the machine uses 90 % of its memory
Other work waits: calls into processes took long; recovery continues in 0.4 s.
Latest actions (times since the daemon started):
- 1 min: 0x7f2a40000000 promoted in 0.4 ms: bucket 9: 480 of 512 base pages
  accessed
";
    assert_eq!(explanation_text(&why), expected);
}

#[test]
fn a_process_without_a_sample_may_have_been_sampled() {
    for (cpu_cores, expected) in
        [(None, "It has not been sampled yet."), (Some(1.0), "Its last sample was too large to")]
    {
        let process = ProcessStatus { cpu_cores, ..redis() };
        let why = ProcessExplanation { process, ..ProcessExplanation::default() };
        let text = explanation_text(&Explanation::Process(Box::new(why)));
        assert!(text.contains(expected), "{text}");
    }
}

fn region(state: RegionPromotionState) -> RegionExplanation {
    RegionExplanation {
        process: redis(),
        uptime_s: 100.0,
        start: 0x7f2a_4000_0000,
        end: 0x7f2a_4020_0000,
        age_s: Some(3.0),
        state,
        remembered_since_s: 40.0,
        ..RegionExplanation::default()
    }
}

fn region_only(region: RegionExplanation) -> String {
    let text = explanation_text(&Explanation::Region(Box::new(region)));
    text[text.find("Region").expect("the region is named")..].to_owned()
}

fn entry(at_s: f64, text: &str) -> JournalEntryView {
    JournalEntryView { at_s, region: None, text: text.into() }
}

#[test]
fn the_reason_why_a_region_is_not_eligible_is_shown() {
    let mut excluded =
        region(RegionPromotionState::Excluded { why: "its owner said MADV_NOHUGEPAGE".into() });
    excluded.kept_by = vec!["management is paused".into()];
    let expected = "\
Region 0x7f2a40000000-0x7f2a40200000: it is not managed: its owner said
MADV_NOHUGEPAGE.
The process was last sampled 3 s ago.
Nothing was done to it in the last 1 min, as far back as the daemon remembers.
";
    assert_eq!(region_only(excluded), expected);
}

#[test]
fn a_waiting_region_shows_its_place_in_the_queue_and_its_history() {
    let sample = RegionSample {
        present: 500,
        accessed: 480,
        runs: 1,
        walks_per_s: 1200,
        ..RegionSample::new_full_and_untouched(RegionAddr::containing(0x7f2a_4000_0000))
    };
    let split = "split, 512 KiB recovered in 0.5 ms: 128 zero base pages";
    let waits = RegionExplanation {
        sample: Some(sample),
        bucket: Some(9),
        waiting: Some("bucket 9: 480 of 512 base pages accessed".into()),
        ahead: Some(1500),
        kept_by: vec!["the machine uses 90 % of its memory".into()],
        latest: vec![entry(10.0, "promoted in 0.4 ms: bucket 9"), entry(95.0, split)],
        ..region(RegionPromotionState::Candidate)
    };
    let expected = "\
Region 0x7f2a40000000-0x7f2a40200000: it was accessed and may be promoted.
3 s ago 500 of its 512 base pages were present and 480 had been accessed (bucket
9 of 0 to 9), causing about 1,200 page walks a second.
It is in the queue of its process, after 1,500 other regions: bucket 9: 480 of
512 base pages accessed.
It is not promoted at the moment because:
- the machine uses 90 % of its memory
The last decision, 5 s ago: split, 512 KiB recovered in 0.5 ms: 128 zero base
pages.
Before that:
- 2 min ago: promoted in 0.4 ms: bucket 9
";
    assert_eq!(region_only(waits), expected);
}

#[test]
fn pages_between_base_and_huge_are_named() {
    let sample = RegionSample {
        accessed: 16,
        order: PageOrder::CONTIGUOUS,
        ..RegionSample::new_full_and_untouched(RegionAddr::containing(0x7f2a_4000_0000))
    };
    let sampled =
        RegionExplanation { sample: Some(sample), ..region(RegionPromotionState::Candidate) };
    let text = region_only(sampled).replace('\n', " ");
    assert!(text.contains("16 had been accessed. Pages of 64 KiB map most of it."), "{text}");
}

#[test]
fn shared_memory_has_its_file_its_mappers_and_what_a_promotion_means_for_them() {
    let mapper = |pid| FileMapperView { pid, name: "postgres".into() };
    let shared = |pids: &[u32], mapper_count, file_name: Option<&str>| RegionExplanation {
        shared_memory: Some(SharedMemoryExplanation {
            file: FileRegion { inode: 77, device: 27, index: 3 },
            file_name: file_name.map(str::to_owned),
            mappers: pids.iter().copied().map(mapper).collect(),
            mapper_count,
        }),
        ..region(RegionPromotionState::Huge)
    };
    let several = region_only(shared(&[4711, 4712], 12, Some("/dev/shm/pg\x1b[2J")));
    let expected = "\
It is shared memory: part 3, counted from 0, of /dev/shm/pg?[2J (device 0:27,
inode 77). Managed processes that map it: 4711 (postgres), 4712 (postgres) and
10 more. So its promotion is final: it stays huge until all but one of them have
unmapped it.
";
    assert!(several.contains(expected), "{several}");
    let one = region_only(shared(&[4711], 1, None)).replace('\n', " ");
    let expected = "of a file (device 0:27, inode 77). No other managed process had it in its page tables when it was last sampled.";
    assert!(one.contains(expected) && !one.contains("final"), "{one}");
    let process = ProcessStatus { shared_bytes: 2 << 30, shared_huge_bytes: 1 << 29, ..redis() };
    let of_process = ProcessExplanation { process, ..ProcessExplanation::default() };
    let text = explanation_text(&Explanation::Process(Box::new(of_process)));
    let line = "\n2.0 GiB of it were shared memory, 512 MiB of that huge.\n";
    assert!(text.contains(line), "{text}");
}

#[test]
fn a_huge_region_shows_what_made_it_huge() {
    let made = RegionExplanation {
        latest: vec![entry(88.0, "promoted in 0.4 ms: bucket 9")],
        ..region(RegionPromotionState::Huge)
    };
    let made = region_only(made);
    assert!(made.contains("one huge page maps it.\n"), "{made}");
    assert!(made.ends_with("The last decision, 12 s ago: promoted in 0.4 ms: bucket 9.\n"));
    assert!(!made.contains("prevents") && !made.contains("because:"), "{made}");
    assert!(region_only(region(RegionPromotionState::Huge)).contains("khugepaged"));
    let refused = region(RegionPromotionState::CoolingDown {
        remaining_s: 20.0,
        errno: Some("EAGAIN".into()),
    });
    assert!(region_only(refused).contains("(EAGAIN): left alone for 20 s more"));
    let shared =
        region_only(region(RegionPromotionState::Shared { pages: 300, remaining_s: 20.0 }));
    let why = "other processes share 300 of its base pages, which a promotion would copy";
    let said = shared.split_whitespace().collect::<Vec<_>>().join(" ");
    let again = format!("{why}: checked again in 20 s.");
    assert!(said.contains(&again), "{said}");
}

#[test]
fn the_rule_that_includes_a_process_is_named_with_its_terms() {
    let managed = ProcessStatus {
        rule_name: Some("caches".into()),
        terms: ProcessSettings {
            weight: 2.0,
            max_huge_bytes: Some(8 << 30),
            rule: Some(1),
            promotes: false,
            ..ProcessSettings::default()
        },
        ..redis()
    };
    let of_process = Explanation::Process(Box::new(ProcessExplanation {
        process: managed.clone(),
        ..ProcessExplanation::default()
    }));
    let of_region = Explanation::Region(Box::new(RegionExplanation {
        process: managed,
        ..region(RegionPromotionState::Huge)
    }));
    let line = "\nrule \"caches\": weight 2, at most 8 GiB huge, nothing promoted\n";
    for why in [of_process, of_region] {
        assert!(explanation_text(&why).contains(line), "{}", explanation_text(&why));
        let json = serde_json::to_value(&why).expect("it serializes");
        assert_eq!(json["rule_name"], "caches");
        assert_eq!(json["terms"]["rule"], 1);
    }
    let unmatched = Explanation::Process(Box::new(ProcessExplanation {
        process: redis(),
        ..ProcessExplanation::default()
    }));
    assert!(!explanation_text(&unmatched).contains("rule"), "{}", explanation_text(&unmatched));
}

#[test]
fn the_profile_that_a_workload_asks_for_is_shown() {
    let asks = "its pod asks for the profile \"guard\"";
    let process = ProcessStatus { profile_request: Some(asks.into()), ..redis() };
    let process = Box::new(ProcessExplanation { process, ..ProcessExplanation::default() });
    let text = explanation_text(&Explanation::Process(process));
    assert!(text.contains(&format!("\nRequest: {asks}.\n")), "{text}");
}

#[test]
fn an_unmanaged_process_is_explained_in_a_sentence() {
    let why = Explanation::NotManaged { pid: 1, why: "process 1 is not under management".into() };
    assert_eq!(explanation_text(&why), "process 1 is not under management.\n");
}
