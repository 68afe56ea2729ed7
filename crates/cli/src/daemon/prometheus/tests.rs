use super::super::protocol::JournalFileStatus;
use super::*;
use crate::view::BudgetWaitStatus;
use hawkeye_manager::WaitingWork;
use hawkeye_policy::{BloatTotals, Errno, TranslationOverhead, TranslationOverheadSource};

fn redis() -> ProcessStatus {
    ProcessStatus {
        pid: 4711,
        name: "re\"dis\n".into(),
        cgroup: Some("/system.slice/redis.service".into()),
        rss_bytes: 4 << 30,
        huge_bytes: 1 << 30,
        overhead: Some(TranslationOverhead::new_without_error(
            12.5,
            TranslationOverheadSource::WalkRate,
        )),
        bloat_bytes: 2 << 12,
        never_accessed_huge_bytes: 2 << 20,
        freed_part_bytes: 5 << 12,
        promoted: 512,
        recovered_bytes: 4096,
        ..ProcessStatus::default()
    }
}

/// A status in which every field has a value.
pub(crate) fn status() -> DaemonStatus {
    DaemonStatus {
        manager: ManagerStatus {
            version: "0.1.0".into(),
            policy: "hawkeye".into(),
            uptime_s: 90.5,
            paused: true,
            held: None,
            budget_waits: vec![BudgetWaitStatus {
                work: WaitingWork::Promotion,
                budget: "promotions use at most 50 % of one core".into(),
                continues_in_s: Some(0.25),
            }],
            memory: Some(MemoryStatus {
                used_bytes: 3 << 30,
                total_bytes: 4 << 30,
                recovering: true,
                pressure_percent: Some(2.5),
                fmfi: Some(0.25),
                growth_bytes_per_s: 3000,
                bloat: BloatTotals {
                    unused_bytes: 5 << 20,
                    never_accessed_bytes: 8 << 20,
                    freed_part_bytes: 6 << 20,
                    recoverable_bytes: 4 << 20,
                    recovery_walks_per_s: 120.5,
                },
                groups: vec![CgroupMemoryStatus {
                    name: "/pod".into(),
                    used_bytes: 1 << 20,
                    total_bytes: 2 << 20,
                    growth_bytes_per_s: 2000,
                    bloat: BloatTotals {
                        unused_bytes: 3 << 12,
                        never_accessed_bytes: 2 << 20,
                        freed_part_bytes: 7 << 12,
                        recoverable_bytes: 1 << 12,
                        recovery_walks_per_s: 7.5,
                    },
                    ..CgroupMemoryStatus::default()
                }],
                ..MemoryStatus::default()
            }),
            manager_cpu_percent: 1.5,
            budget_cpu_percent: 0.5,
            longest_call_ms: 12.0,
            totals: JournalTotals {
                promoted: 513,
                split: 3,
                recovered_bytes: 4096,
                scanned: 9,
                freed: 1,
                shared: 7,
                samples: 30,
                errors: [(Errno::EAGAIN, 2)].into(),
            },
            reserve: HugePageReserveStatus {
                held_bytes: 32 << 20,
                filled: 40,
                failed: 1,
                served: 24,
                fill_cpu_s: 0.5,
                pays: Some(true),
            },
            managed: 2,
            processes: vec![redis()],
            ..ManagerStatus::default()
        },
        pid: 812,
        config_file: Some("/etc/hawkeye/hawkeye.toml".into()),
        page_sizes: None,
        pod_annotations: None,
        unguarded_rules: None,
        slow_calls: 4,
        fill: Some(PrefaultStatus {
            filled: 640,
            refused: 2,
            ahead: 64,
            unused: 16,
            cpu_s: 0.25,
            longest_ms: 1.5,
        }),
        prezeroing: Some(PrezeroingStatus {
            active: true,
            zeroed_pages: 1 << 20,
            served_pages: 1 << 19,
            passed_over_pages: 1 << 10,
            lost_pages: 512,
            free_zeroed_bytes: 1 << 30,
            free_bytes: 5 << 28,
            pages_per_s: Some(10_000),
            pace: "at most 10000 pages/s".into(),
        }),
        metrics: None,
        metrics_error: None,
        journal: Some(JournalFileStatus { lost_entries: 7, ..JournalFileStatus::default() }),
    }
}

#[test]
fn a_full_status_gives_every_metric() {
    let text = render_metrics(status()).expect("the status renders");
    assert!(text.ends_with("# EOF\n"), "a snapshot does not compare the final newline");
    insta::assert_snapshot!("every_metric", text);
}

#[test]
fn an_unknown_value_has_no_series() {
    let text = render_metrics(DaemonStatus::default()).expect("the status renders");
    assert!(!text.contains("hawkeye_memory_") && !text.contains("hawkeye_journal_"));
    assert!(!text.contains("pid=") && !text.contains("zeroed"));
}

#[test]
fn series_of_processes_and_cgroups_are_bounded() {
    let mut status = status();
    status.manager.processes = vec![redis(); 1000];
    if let Some(memory) = &mut status.manager.memory {
        memory.groups = vec![CgroupMemoryStatus::default(); 1000];
    }
    let text = render_metrics(status).expect("the status renders");
    let series = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
    assert_eq!(series("hawkeye_process_resident_bytes{"), MOST_LABELLED);
    assert_eq!(series("hawkeye_memory_used_bytes{"), MOST_LABELLED + 1);
}
