//! Compares what is drawn with snapshots (`cargo insta review` shows changes).

use super::daemon_poller::{ProcessDetails, TopData};
use super::sort_order::SortColumn;
use super::theme::Theme;
use super::top_model::{KeyEffect, TopModel};
use super::{draw, overview_text, process_table};
use crate::daemon::protocol::DaemonStatus;
use crate::view::{
    AddressStrip, AddressStripColumn, BudgetWaitStatus, DecisionView, Explanation,
    JournalEntryView, ManagerStatus, MemoryStatus, ProcessExplanation, ProcessStatus,
};
use hawkeye_manager::{JournalTotals, PromotionAndRecoveryRates, WaitingWork};
use hawkeye_policy::{
    CoverageSource, SampledMemory, SharedMemoryTotals, TranslationOverhead,
    TranslationOverheadSource,
};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Cell;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;

const PLAIN: Theme = Theme { colour: false, unicode: true };

fn redis() -> ProcessStatus {
    ProcessStatus {
        pid: 4711,
        name: "redis-server".into(),
        unit: Some("redis.service".into()),
        rss_bytes: 4 << 30,
        huge_bytes: 1 << 30,
        shared_bytes: 2 << 30,
        shared_huge_bytes: 512 << 20,
        overhead: Some(TranslationOverhead {
            low_percent: 22.0,
            high_percent: 40.0,
            at_least: true,
            ..TranslationOverhead::new_without_error(31.2, TranslationOverheadSource::WalkRate)
        }),
        gain_percent: Some(24.0),
        bloat_bytes: 12 << 20,
        pace: PromotionAndRecoveryRates {
            promoted_per_s: 3.1,
            split_per_s: 0.2,
            recovered_bytes_per_s: 1e6,
        },
        promoted: 512,
        split: 2,
        ..ProcessStatus::default()
    }
}

fn status() -> DaemonStatus {
    let small = ProcessStatus {
        pid: 99,
        name: "a\x1b[2Jname of twenty".into(),
        rss_bytes: 80 << 20,
        ..ProcessStatus::default()
    };
    let java = ProcessStatus {
        pid: 1234,
        name: "java".into(),
        rss_bytes: 9 << 30,
        huge_bytes: 9 << 30,
        overhead: Some(TranslationOverhead::new_without_error(
            2.5,
            TranslationOverheadSource::Counters,
        )),
        gain_percent: Some(0.0),
        ..ProcessStatus::default()
    };
    let decision = |at_s, text: &str| DecisionView {
        at_s,
        pid: Some(4711),
        name: Some("redis-server".into()),
        text: text.into(),
    };
    DaemonStatus {
        manager: ManagerStatus {
            version: "0.1.0".into(),
            policy: "hawkeye".into(),
            uptime_s: 12_000.0,
            memory: Some(MemoryStatus {
                used_bytes: 12 << 30,
                total_bytes: 24 << 30,
                high_percent: 85.0,
                ..MemoryStatus::default()
            }),
            shared_memory: SharedMemoryTotals {
                memory: SampledMemory { resident_bytes: 2 << 30, huge_bytes: 512 << 20 },
                files: 1,
                processes: 9,
                ..SharedMemoryTotals::default()
            },
            manager_cpu_percent: 0.4,
            budget_cpu_percent: 0.4,
            totals: JournalTotals {
                promoted: 1234,
                split: 12,
                recovered_bytes: 3 << 29,
                ..JournalTotals::default()
            },
            pace: redis().pace,
            managed: 5,
            processes: vec![small, java, redis()],
            latest: vec![
                decision(11_000.0, "the kernel refused: EAGAIN"),
                decision(
                    11_998.0,
                    "promoted in 0.4 ms: overhead at least 31.2 %, 1200 page walks/s here: 2 MiB saves 900 us/s",
                ),
            ],
            ..ManagerStatus::default()
        },
        ..DaemonStatus::default()
    }
}

fn column(n: u64) -> AddressStripColumn {
    AddressStripColumn {
        start: Some((n + 100) << 22),
        end: Some((n + 101) << 22),
        after_gap: n == 40,
        regions: 2,
        huge: n % 3,
        candidates: u64::from(n % 3 == 0 && n % 2 == 0) * 2,
        shared_memory: n % 2,
        present_pages: 1000,
        accessed_pages: n * 10,
        // n * n of each region that is not huge.
        walks_per_s: n * n * (2 - n % 3),
    }
}

fn opened() -> ProcessDetails {
    let why = ProcessExplanation {
        process: redis(),
        sample: None,
        kept_by: vec!["the machine uses 90 % of its memory".into()],
        waits: Vec::new(),
        latest: vec![JournalEntryView {
            at_s: 61.0,
            region: Some(1 << 30),
            text: "promoted in 0.4 ms: bucket 9".into(),
        }],
    };
    ProcessDetails {
        why: Explanation::Process(Box::new(why)),
        strip: Some(AddressStrip {
            pid: 4711,
            uid: Some(0),
            age_s: Some(12.0),
            source: Some(CoverageSource::AccessBits),
            columns: (0..80).map(column).collect(),
        }),
    }
}

fn answer(opened: Option<ProcessDetails>) -> anyhow::Result<TopData> {
    let status = Box::new(status());
    Ok(TopData { status, opened })
}

fn model() -> TopModel {
    let mut model = TopModel::new(PLAIN);
    model.apply_daemon_answer(answer(None));
    model
}

fn press(model: &mut TopModel, code: KeyCode) -> KeyEffect {
    model.handle_key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn screen(model: &TopModel, columns: u16, rows: u16) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).expect("a terminal");
    terminal.draw(|frame| draw::draw_top_screen(frame, model)).expect("the screen can be drawn");
    terminal
}

#[test]
fn processes_in_80_by_24() {
    insta::assert_snapshot!(screen(&model(), 80, 24).backend());
}

#[test]
fn a_process_in_80_by_24() {
    let mut model = model();
    assert_eq!(press(&mut model, KeyCode::Enter), KeyEffect::Ask);
    model.apply_daemon_answer(answer(Some(opened())));
    for _ in 0..42 {
        press(&mut model, KeyCode::Right);
    }
    insta::assert_snapshot!(screen(&model, 80, 24).backend());
}

#[test]
fn help_fits_into_80_by_24() {
    let mut model = model();
    press(&mut model, KeyCode::Char('?'));
    insta::assert_snapshot!(screen(&model, 80, 24).backend());
}

#[test]
fn as_text() {
    insta::assert_snapshot!(overview_text(&status()));
}

#[test]
fn a_budget_that_holds_work_back_is_shown_in_full_in_80_columns() {
    let budget = "the manager has used the CPU time that promotions may use in a minute, two thirds of 2 % of one core, and what they save does not pay for more";
    let mut model = model();
    model.status.manager.budget_waits = vec![BudgetWaitStatus {
        work: WaitingWork::Promotion,
        budget: budget.into(),
        continues_in_s: Some(41.0),
    }];
    let text = screen(&model, 80, 24).backend().to_string();
    let rows: Vec<&str> = text.lines().map(|row| row.trim_matches('"').trim()).collect();
    let words = rows.join(" ");
    let wait = format!("waits: {budget}; promotion continues in 41 s");
    assert!(words.contains(&wait), "{text}");
    assert!(words.contains("promotion waits for a budget"), "{text}");
    assert!(text.contains("redis-server"), "{text}");
}

#[test]
fn a_missing_daemon_is_reported_above_the_old_figures() {
    let mut model = model();
    model.apply_daemon_answer(Err(anyhow::anyhow!("no daemon runs")));
    let text = screen(&model, 80, 24).backend().to_string();
    assert!(text.contains("NO NEW FIGURES: no daemon runs"), "{text}");
    assert!(text.contains("redis-server"), "{text}");
    model.apply_daemon_answer(answer(None));
    let text = screen(&model, 80, 24).backend().to_string();
    assert!(!text.contains("NO NEW"), "{text}");
}

#[test]
fn no_screen_size_panics_and_the_selected_row_stays_visible() {
    let mut model = model();
    let more = (10_000..10_300).map(|pid| ProcessStatus { pid, ..redis() });
    model.status.manager.processes.extend(more);
    for (columns, rows) in [(1, 1), (20, 5), (60, 12), (80, 24), (300, 100)] {
        use KeyCode::{End, Enter, Home, PageDown};
        for code in [End, Home, PageDown, Enter] {
            press(&mut model, code);
            screen(&model, columns, rows);
        }
        press(&mut model, KeyCode::Esc);
    }
    press(&mut model, KeyCode::End);
    let text = screen(&model, 80, 24).backend().to_string();
    let chosen = text.lines().filter(|line| line.starts_with("\">"));
    assert_eq!(chosen.count(), 1, "the selected row is visible: {text}");
}

#[test]
fn keys_select_sort_open_and_quit() {
    let mut model = model();
    let pids = |model: &TopModel| -> Vec<u32> {
        model.sorted_processes().iter().map(|row| row.pid).collect()
    };
    // Unknown overhead is last.
    assert_eq!(pids(&model), [4711, 1234, 99]);
    press(&mut model, KeyCode::Char('r'));
    assert_eq!(pids(&model), [99, 1234, 4711]);
    press(&mut model, KeyCode::Char('<'));
    assert_eq!(model.order.by, SortColumn::Name);
    for _ in 0..20 {
        press(&mut model, KeyCode::Char('>'));
    }
    assert_eq!(model.order.by, SortColumn::Split);
    // The choice follows the process when the order changes.
    press(&mut model, KeyCode::Down);
    let chosen = model.selected;
    press(&mut model, KeyCode::Char('r'));
    assert_eq!(model.selected, chosen);
    assert_eq!(pids(&model)[model.selected_row_index()], chosen.unwrap_or(0));
    press(&mut model, KeyCode::Enter);
    assert_eq!(model.open.as_ref().map(|open| open.pid), chosen);
    // A late answer about another process is ignored.
    model.open_process(1);
    model.apply_daemon_answer(answer(Some(opened())));
    assert!(model.open.as_ref().is_some_and(|open| open.details.is_none()));
    press(&mut model, KeyCode::Esc);
    assert!(model.open.is_none());
    assert_eq!(press(&mut model, KeyCode::Char('q')), KeyEffect::Quit);
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(model.handle_key(interrupt), KeyEffect::Quit);
}

#[test]
fn without_colour_the_text_is_the_same() {
    let colours = |look| {
        let mut model = model();
        model.theme = look;
        press(&mut model, KeyCode::Enter);
        model.apply_daemon_answer(answer(Some(opened())));
        let terminal = screen(&model, 80, 24);
        let cells = terminal.backend().buffer().content();
        let coloured_style = |cell: &Cell| cell.fg != Color::Reset || cell.bg != Color::Reset;
        let coloured_style = cells.iter().any(coloured_style);
        (coloured_style, terminal.backend().to_string())
    };
    let look = |colour, unicode| Theme { colour, unicode };
    let (coloured_style, text) = colours(look(true, true));
    let (plain, same) = colours(PLAIN);
    assert!(coloured_style && !plain);
    assert_eq!(text, same);
    assert!(colours(look(false, false)).1.is_ascii());
}

#[test]
fn rows_are_as_wide_as_the_screen() {
    let widest = ProcessStatus {
        pid: 4_194_304,
        rss_bytes: 1023 << 20,
        huge_bytes: 1023 << 20,
        shared_bytes: 1023 << 20,
        bloat_bytes: 1023 << 20,
        overhead: Some(TranslationOverhead {
            at_least: true,
            ..TranslationOverhead::new_without_error(100.0, TranslationOverheadSource::WalkRate)
        }),
        gain_percent: Some(100.0),
        pace: PromotionAndRecoveryRates {
            promoted_per_s: 12_345.0,
            split_per_s: 9_999.0,
            recovered_bytes_per_s: 0.0,
        },
        ..status().manager.processes[0].clone()
    };
    for row in [&widest, &redis(), &ProcessStatus::default()].map(process_table::process_row_line) {
        assert_eq!(row.chars().count(), 80, "{row}");
    }
}
