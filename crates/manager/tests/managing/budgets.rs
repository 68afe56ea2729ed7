//! Limits on the work done.

use hawkeye_manager::{BudgetWait, ExhaustedBudget, Machine, Sampling, Settings, WaitingWork};
use hawkeye_policy::{Errno, SavingsShare, Watermarks};
use hawkeye_test_support::builders::*;
use std::time::Duration;

#[test]
fn the_budget_of_promotions_is_spent_exactly_and_only_on_successes() {
    for policy in ["hawkeye-g", "hawkeye-pmu", "ingens", "linux"] {
        let mut machine = machine_running_parts(16 * GIB, &[base_page_part(0, 64, 1.0)]);
        machine.promotion_answers = [(Duration::ZERO, Some(Errno::EAGAIN)); 5].into();
        let manager =
            run_manager_of(machine, policy, settings_with_max_promotions(13), seconds(120.0));
        assert_eq!(promotions(&manager).len(), 13, "{policy}");
        let totals = manager.journal().totals();
        let refused = totals.errors.get(&Errno::EAGAIN);
        assert_eq!((totals.promoted, refused), (13, Some(&5)));
    }
}

#[test]
fn the_rate_holds_over_any_ten_seconds() {
    const RATE: f64 = 2.0;
    for policy in ["hawkeye-g", "hawkeye-pmu", "ingens", "linux"] {
        let machine = machine_running_parts(16 * GIB, &[base_page_part(0, 200, 1.0)]);
        let manager =
            run_manager_of(machine, policy, settings_with_promotion_rate(RATE), seconds(60.0));
        let times: Vec<Duration> = promotions(&manager).iter().map(|(at, ..)| *at).collect();
        for from in &times {
            let within = *from..*from + seconds(10.0);
            let count = times.iter().filter(|at| within.contains(at)).count();
            // One second's worth may come at once.
            assert!(count as f64 <= 10.0 * RATE + RATE, "{policy} from {from:?}");
        }
        let count = times.len();
        assert!(count as f64 > 45.0 * RATE, "{policy}: only {count}");
    }
}

/// Two promotions use up the rate, and there is no third.
#[test]
fn a_used_up_rate_is_no_wait_without_a_further_promotion() {
    for (regions, waits) in [(2, false), (3, true)] {
        let machine = machine_running_parts(16 * GIB, &[base_page_part(0, regions, 1.0)]);
        let settings = settings_with_promotion_rate(2.0);
        let manager = run_manager_of(machine, "hawkeye-g", settings, seconds(20.0));
        assert_eq!(promotions(&manager).len(), regions as usize);
        let mut totals = manager.limits().waits.total_waits(manager.machine().now());
        let waited = totals.find(|(_, budget)| budget.work() == WaitingWork::Promotion);
        assert_eq!(waited.is_some(), waits, "{waited:?}");
    }
}

#[test]
fn the_cpu_budget_holds_at_all_times() {
    const PERCENT: f64 = 0.05;
    let machine = machine_running_parts(16 * GIB, &[base_page_part(0, 400, 1.0)]);
    let mut manager = manager_of(machine, "hawkeye-g", settings_with_cpu_percent(PERCENT));
    let mut by_the_minute = Vec::new();
    for minute in 1..=5u32 {
        run_manager_watching(&mut manager, seconds(60.0) * minute, |manager| {
            let now = manager.machine().now();
            // A minute's worth may be used at once; one window may exceed the rest once.
            let minutes = (now.as_secs_f64() / 60.0).ceil();
            let allowed = PERCENT / 100.0 * 60.0 * minutes + 0.006;
            let used = manager.machine().management_costs().cpu.as_secs_f64();
            assert!(used <= allowed, "{used} s of {allowed} s by {now:?}");
        });
        by_the_minute.push(promotions(&manager).len());
    }
    let grows = by_the_minute.is_sorted_by(|a, b| a < b);
    assert!(grows, "{by_the_minute:?}");
}

#[test]
fn windows_move_apart_where_first_touches_would_cost_too_much() {
    let machine = machine_running_parts(16 * GIB, &[base_page_part(0, 512, 1.0)]);
    let manager =
        run_manager_of(machine, "hawkeye-g", settings_with_max_promotions(0), seconds(200.0));
    assert!(manager.journal().totals().samples > 3);
    // Each window costs the program a first touch of all its pages.
    let windows = manager.machine().call_times("clear").count() as u32;
    let cost = manager.machine().first_touch_cost() * 512 * 512 * windows;
    assert!(cost < seconds(200.0 * 0.02), "{windows} windows: {cost:?}");
}

/// All of it is huge, so that its access bits cost nothing to clear. Each window reads 8,192
/// regions before it opens and again when it ends, 1 us each.
#[test]
fn windows_move_apart_by_both_of_their_reads() {
    let machine = machine_running_parts(64 * GIB, &[bloated_part(0, 8192, 0.0).using(512)]);
    let settings = Settings { period: seconds(1.0), ..settings_with_cpu_percent(1.0) };
    let manager = run_manager_of(machine, "hawkeye-g", settings, seconds(200.0));
    let cpu = manager.machine().management_costs().cpu;
    // Half of the budget, the first window, and one that exceeds the rest.
    assert!(cpu < seconds(200.0 * 0.005 + 0.03), "{cpu:?}");
    assert!(manager.journal().totals().samples > 30);
}

/// 4,000 promotions cost 1.6 s, and the CPU budget leaves 0.8 s a minute to promotion. They save
/// 0.46 cores, so they pay for themselves within seconds.
#[test]
fn promotions_that_pay_for_themselves_do_not_wait_for_the_cpu_budget() {
    let huge_after = |share: f64, run_s| {
        let mut settings = frequent_sampling_settings();
        settings.promotion_return = SavingsShare::new(share).expect("in range");
        let machine = machine_running_parts(16 * GIB, &[base_page_part(0, 4000, 1.0)]);
        let manager = run_manager_of(machine, "hawkeye", settings, seconds(run_s));
        (promotions(&manager).len(), manager)
    };
    // A window shows 1,000 regions or more, and the next comes soon.
    let (with, manager) = huge_after(25.0, 30.0);
    assert!(with >= 3900, "{with}");
    let first = first_promotion_time(&manager);
    let own = manager.machine().management_costs().cpu;
    let seconds = manager.machine().now().saturating_sub(first).as_secs_f64();
    let most_s = 1.2 + 0.25 * 0.46 * seconds.max(300.0);
    assert!(own.as_secs_f64() < most_s, "{own:?} of {most_s} s");
    let (without, manager) = huge_after(0.0, 30.0);
    assert!((1..2500).contains(&without), "{without}");
    let wait = manager.budget_waits().next().expect("promotion waits");
    assert!(wait.until > Some(manager.machine().now()), "{wait:?}");
    let budget = wait.budget.to_string();
    assert!(budget.contains("two thirds of 2 %"), "{budget}");
}

/// Each call takes 50 ms, and the pauses between calls double.
#[test]
fn a_pause_after_long_calls_is_a_wait() {
    let mut machine = machine_running_parts(16 * GIB, &[base_page_part(0, 64, 1.0)]);
    machine.promotion_answers = [(seconds(0.05), None); 64].into();
    let mut manager = manager_of(machine, "hawkeye-g", frequent_sampling_settings());
    let mut shown = 0;
    run_manager_watching(&mut manager, seconds(40.0), |manager| {
        let mut waits = manager.budget_waits();
        shown += usize::from(waits.any(|wait| wait.budget == ExhaustedBudget::PromotionPause));
    });
    assert!(shown > 0);
    let waited = manager.limits().waits.total_waits(manager.machine().now()).next();
    let long = |(waited, budget): (Duration, ExhaustedBudget)| {
        budget == ExhaustedBudget::PromotionPause && waited > Duration::from_secs(3)
    };
    assert!(waited.is_some_and(long), "{waited:?}");
}

/// 30 ms of CPU time in a minute are enough for some 56 of 1,000 huge pages.
#[test]
fn recovery_that_waits_for_cpu_time_is_named_with_its_end() {
    let machine = machine_running_parts(4 * GIB, &[bloated_part(0, 1000, 0.0)]);
    let settings = Settings {
        watermarks: Watermarks::new(30.0, 10.0).expect("the watermarks are in order"),
        ..settings_with_cpu_percent(0.05)
    };
    let manager = run_manager_of(machine, "none", settings, seconds(20.0));
    assert!((1..100).contains(&manager.journal().totals().split));
    let mut waits = manager.budget_waits();
    let wait = waits.find(|wait| wait.budget.work() == WaitingWork::Recovery);
    let wait = wait.expect("recovery waits");
    assert_eq!(wait.budget, ExhaustedBudget::RecoveryCpu { percent: 0.05 });
    assert!(wait.until > Some(manager.machine().now()), "{wait:?}");
}

#[test]
fn what_holds_prefault_back_is_a_wait_until_it_ends() {
    let wait = BudgetWait { budget: ExhaustedBudget::PrefaultPause, until: Some(seconds(8.0)) };
    let mut machine = machine_running_parts(16 * GIB, &[base_page_part(0, 4, 0.0)]);
    machine.prefault_wait = Some(wait);
    machine.schedule(seconds(5.0), |machine| machine.prefault_wait = None);
    let mut manager = manager_of(machine, "none", frequent_sampling_settings());
    run_manager_until(&mut manager, seconds(3.0));
    assert!(manager.budget_waits().any(|shown| shown == wait));
    run_manager_until(&mut manager, seconds(7.0));
    assert!(!manager.budget_waits().any(|shown| shown == wait));
    let mut totals = manager.limits().waits.total_waits(manager.machine().now());
    let waited = totals.find(|(_, budget)| *budget == ExhaustedBudget::PrefaultPause);
    let in_time =
        (seconds(4.0)..seconds(7.0)).contains(&waited.unwrap_or((Duration::ZERO, wait.budget)).0);
    assert!(in_time, "{waited:?}");
}

/// A program that forks holds its lock for long, and one can do so on purpose.
#[test]
fn a_promotion_that_waits_for_its_program_does_not_stop_the_others() {
    let mut machine = machine_running_parts(16 * GIB, &[base_page_part(0, 4000, 1.0)]);
    machine.promotion_answers = [(seconds(10.0), None)].into();
    let manager = run_manager_of(machine, "hawkeye", frequent_sampling_settings(), seconds(60.0));
    let promoted = promotions(&manager).len();
    assert!(promoted >= 3500, "{promoted}");
}

/// Promotions that savings pay for must not use up what recovery and sampling may use.
#[test]
fn promotions_paid_from_savings_leave_the_cpu_budget_to_other_work() {
    let machine = machine_running_parts(16 * GIB, &[base_page_part(0, 4000, 1.0)]);
    let mut manager = manager_of(machine, "hawkeye", frequent_sampling_settings());
    run_manager_watching(&mut manager, seconds(60.0), |manager| {
        assert!(!manager.limits().cpu.is_exhausted(manager.machine().now()));
    });
    let paid = manager.limits().savings.cpu_time_spent();
    assert!(paid > seconds(1.2), "{paid:?}");
    // What is shown is all of it.
    let limits = manager.limits();
    let now = manager.machine().now();
    let shown = limits.all_cpu.percent_of_core(now);
    let budgeted = limits.cpu.percent_of_core_used_in_minute(now);
    assert!(budgeted + 0.5 < shown, "{budgeted} % of {shown} %");
    assert!(manager.journal().totals().samples > 3);
}

/// Policies that don't say what a promotion saves stay within the CPU budget.
#[test]
fn promotions_without_a_known_saving_are_not_paid_from_savings() {
    for policy in ["hawkeye-g", "ingens", "linux"] {
        let machine = machine_running_parts(16 * GIB, &[base_page_part(0, 4000, 1.0)]);
        let manager = run_manager_of(machine, policy, frequent_sampling_settings(), seconds(60.0));
        let paid = manager.limits().savings.cpu_time_spent();
        assert_eq!(paid, Duration::ZERO, "{policy}");
        assert!(!promotions(&manager).is_empty());
    }
}
