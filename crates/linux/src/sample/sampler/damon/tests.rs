//! Sessions on a directory that imitates the kernel's.

use super::kdamond::{MARKED_FILE, OWNER_MARK};
use super::*;
use crate::machine_lease::thp_settings::testing::TestFolder;
use hawkeye_policy::HUGE_PAGE_BYTES as R;
use hawkeye_test_support::event_constructors::region_at_index;
use std::fs;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The files that the kernel shows after writes to `nr_kdamonds`, `nr_contexts` and so on. Unlike
/// in sysfs, they all exist from the start.
struct FakeDamon(TestFolder);

impl FakeDamon {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let fake = Self(TestFolder::new(&format!("damon-{number}")));
        let context = "kdamonds/0/contexts/0";
        fake.set("kdamonds/nr_kdamonds", "0\n");
        fake.set("kdamonds/0/state", "off\n");
        fake.set("kdamonds/0/contexts/nr_contexts", "0\n");
        let offered = "vaddr\nfvaddr\npaddr\n";
        fake.set(&format!("{context}/avail_operations"), offered);
        for name in [
            "operations",
            "monitoring_attrs/intervals/sample_us",
            "monitoring_attrs/intervals/aggr_us",
            "monitoring_attrs/intervals/update_us",
            "monitoring_attrs/nr_regions/min",
            "monitoring_attrs/nr_regions/max",
            "targets/nr_targets",
            "targets/0/pid_target",
            "targets/0/regions/nr_regions",
            "schemes/nr_schemes",
            "schemes/0/action",
            "schemes/0/tried_regions/total_bytes",
        ] {
            fake.set(&format!("{context}/{name}"), "0\n");
        }
        for name in ["sz", "nr_accesses", "age"] {
            let pattern = format!("{context}/schemes/0/access_pattern/{name}");
            fake.set(&format!("{pattern}/min"), "9\n");
            fake.set(&format!("{pattern}/max"), "0\n");
        }
        for index in 0..4 {
            fake.set(&format!("{context}/targets/0/regions/{index}/start"), "0\n");
            fake.set(&format!("{context}/targets/0/regions/{index}/end"), "0\n");
        }
        fake
    }

    fn damon(&self) -> Damon {
        let admin = self.0.0.clone();
        Damon { admin }
    }

    fn set(&self, name: &str, value: &str) {
        self.0.file(name, value);
    }

    fn get(&self, name: &str) -> String {
        let text = fs::read_to_string(self.0.0.join(name));
        text.expect(name).trim().to_owned()
    }

    fn context(&self, name: &str) -> String {
        self.get(&format!("kdamonds/0/contexts/0/{name}"))
    }

    fn add_result(&self, index: usize, range: Range<u64>, nr_accesses: u32) {
        let dir = format!("kdamonds/0/contexts/0/schemes/0/tried_regions/{index}");
        self.set(&format!("{dir}/start"), &range.start.to_string());
        self.set(&format!("{dir}/end"), &range.end.to_string());
        self.set(&format!("{dir}/nr_accesses"), &nr_accesses.to_string());
    }

    /// DAMON is in its unused state.
    fn assert_released(&self) {
        assert_eq!(self.get("kdamonds/nr_kdamonds"), "0");
        assert_eq!(self.get("kdamonds/0/state"), "off");
    }
}

const WINDOW: Duration = Duration::from_millis(40);

fn four() -> [RegionAddr; 4] {
    [4, 5, 9, 10].map(region_at_index)
}

fn start(fake: &FakeDamon) -> DamonResult<DamonSession> {
    fake.damon().start_session(123, &four(), WINDOW)
}

#[test]
fn missing_features_are_named_and_no_session_stays() {
    let admin = "/nonexistent".into();
    let nowhere = Damon { admin };
    let started = nowhere.start_session(1, &four(), WINDOW);
    assert!(matches!(started, Err(DamonError::Absent(_))));

    let fake = FakeDamon::new();
    fake.set("kdamonds/0/contexts/0/avail_operations", "paddr\n");
    let said = start(&fake).expect_err("a kernel without virtual addresses is refused").to_string();
    assert!(said.contains("offers \"paddr\", not fvaddr"), "{said}");
    fake.assert_released();

    let fake = FakeDamon::new();
    let results = "kdamonds/0/contexts/0/schemes/0/tried_regions";
    fs::remove_dir_all(fake.0.0.join(results)).expect("the folder can be removed");
    assert!(matches!(start(&fake), Err(DamonError::NoResults(_))));
    fake.assert_released();

    let fake = FakeDamon::new();
    fake.set("kdamonds/nr_kdamonds", "none\n");
    let said = start(&fake).expect_err("text instead of a number is refused").to_string();
    assert!(said.contains("nr_kdamonds holds \"none\""), "{said}");
}

#[test]
fn kdamonds_of_other_programs_stay() {
    let fake = FakeDamon::new();
    fake.set("kdamonds/nr_kdamonds", "2\n");
    fake.set("kdamonds/0/state", "on\n");
    let started = start(&fake);
    assert!(matches!(started, Err(DamonError::InUse { count: 2, .. })));
    assert!(!fake.damon().stop_leftover_session().expect("the state can be read"));
    assert_eq!(fake.get("kdamonds/nr_kdamonds"), "2");
    assert_eq!(fake.get("kdamonds/0/state"), "on");
}

#[test]
fn a_session_configures_one_region_each_and_reads_them_back() {
    let fake = FakeDamon::new();
    let session = start(&fake).expect("the session starts");
    assert_eq!(fake.get("kdamonds/nr_kdamonds"), "1");
    assert_eq!(fake.get("kdamonds/0/state"), "on");
    for (name, value) in [
        ("operations", "fvaddr".to_owned()),
        ("monitoring_attrs/intervals/sample_us", "2000".into()),
        ("monitoring_attrs/intervals/aggr_us", "40000".into()),
        ("monitoring_attrs/nr_regions/min", "4".into()),
        ("monitoring_attrs/nr_regions/max", "4".into()),
        ("targets/0/pid_target", "123".into()),
        ("targets/0/regions/2/start", (9 * R).to_string()),
        ("targets/0/regions/2/end", (10 * R).to_string()),
        ("schemes/0/action", "stat".into()),
        ("schemes/0/access_pattern/sz/min", "0".into()),
        ("schemes/0/access_pattern/sz/max", u64::MAX.to_string()),
    ] {
        assert_eq!(fake.context(name), value, "{name}");
    }

    fake.add_result(0, 10 * R..11 * R, 20);
    fake.add_result(1, 4 * R..5 * R, 0);
    fake.add_result(2, 9 * R..10 * R, 5);
    let estimates = session.finish().expect("the session has results");
    let expected = [(region_at_index(4), 0), (region_at_index(9), 128), (region_at_index(10), 512)];
    assert_eq!(estimates, expected);
    fake.assert_released();
}

#[test]
fn a_dropped_session_removes_its_kdamond() {
    let fake = FakeDamon::new();
    drop(start(&fake).expect("the session starts"));
    fake.assert_released();
}

#[test]
fn a_failed_start_names_the_file_and_removes_its_kdamond() {
    let fake = FakeDamon::new();
    let five = [1, 2, 3, 4, 5].map(region_at_index);
    let started = fake.damon().start_session(1, &five, WINDOW);
    let words = started.expect_err("the fifth folder cannot be written").to_string();
    assert!(words.contains("cannot write"), "{words}");
    assert!(words.contains("targets/0/regions/4/start"), "{words}");
    fake.assert_released();
}

#[test]
fn a_window_without_results_is_an_error() {
    let fake = FakeDamon::new();
    let shorter_than_the_shortest = Duration::from_millis(5);
    let session = fake.damon().start_session(123, &four(), shorter_than_the_shortest);
    let finished = session.expect("the session starts").finish();
    let Err(DamonError::TooSlow { window, regions }) = finished else {
        panic!("it must be too slow");
    };
    assert_eq!((window, regions), (Duration::from_millis(20), 4));
    fake.assert_released();
}

#[test]
fn only_a_dead_managers_kdamond_is_stopped() {
    let fake = FakeDamon::new();
    let stopped = || fake.damon().stop_leftover_session().expect("the state can be read");
    let mark = format!("kdamonds/{MARKED_FILE}");
    let above_pid_max = 1 << 30;
    // In a container, each manager has the same pid.
    for of_dead_manager in [above_pid_max, u64::from(std::process::id())] {
        std::mem::forget(start(&fake).expect("the session starts"));
        fake.set(&mark, &(OWNER_MARK | 1).to_string());
        assert!(!stopped(), "the session of a live manager stays");
        assert_eq!(fake.get("kdamonds/0/state"), "on");

        fake.set(&mark, "1000000\n");
        assert!(!stopped(), "a session of another program stays");

        fake.set(&mark, &(OWNER_MARK | of_dead_manager).to_string());
        assert!(stopped());
        fake.assert_released();
        assert!(!stopped(), "no session is left to stop");
    }
}
