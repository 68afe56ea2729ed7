//! Tests on a folder that stands for a cgroup hierarchy.

use super::*;
use crate::machine_lease::thp_settings::testing::{TestFolder, set_mode};
use crate::machine_lease::thp_settings::{KernelSettingsGuard, read_setting};
use std::fs;
use std::process::{Child, Command};

const LIMIT: u64 = 1 << 30;

/// A cgroup `/app` with a limit of 1 GiB, of which 512 MiB are in use.
struct TestCgroup {
    tree: TestFolder,
    guard: KernelSettingsGuard,
    throttler: GrowthThrottler,
}

impl TestCgroup {
    fn new(name: &str) -> Self {
        let tree = TestFolder::new(&format!("throttle-{name}"));
        add_cgroup(&tree, "app");
        let guard = tree.guard();
        let host = HostFiles {
            root: tree.0.clone(),
            swaps: tree.file("swaps", "Filename Type Size Used Priority\n"),
            oomd_socket: tree.0.join("oomd"),
        };
        let throttler = GrowthThrottler {
            host,
            settings: guard.handle(),
            usual_profile: SettingsProfile::Guard,
            throttled: BTreeMap::new(),
        };
        Self { tree, guard, throttler }
    }

    fn write(&self, file: &str, text: &str) {
        self.tree.file(file, text);
    }

    fn high(&self, cgroup: &str) -> String {
        let file = self.tree.0.join(cgroup).join("memory.high");
        read_setting(&file).expect("the level can be read")
    }

    fn update(&mut self, cgroups: &[&str]) -> Vec<Event> {
        self.update_with(cgroups, &|_| Ok(()))
    }

    fn update_with(
        &mut self,
        cgroups: &[&str],
        check_process: &dyn Fn(u32) -> Result<(), ThrottleRefusal>,
    ) -> Vec<Event> {
        self.throttler.update(&requests(cgroups), check_process)
    }

    /// Begins to throttle `/app`, and returns the level.
    fn begin(&mut self) -> u64 {
        match &self.update(&["/app"])[..] {
            [Event::GrowthThrottled { level_bytes, .. }] => *level_bytes,
            other => panic!("{other:?}"),
        }
    }
}

fn add_cgroup(tree: &TestFolder, name: &str) {
    for (file, text) in [
        ("memory.max", format!("{LIMIT}\n")),
        ("memory.high", "max\n".to_owned()),
        ("memory.current", format!("{}\n", LIMIT / 2)),
        ("cgroup.procs", String::new()),
    ] {
        tree.file(&format!("{name}/{file}"), &text);
    }
}

fn requests(cgroups: &[&str]) -> Vec<ThrottleRequest> {
    let request =
        |cgroup: &&str| ThrottleRequest { cgroup: (*cgroup).to_owned(), from_percent: 85.0 };
    cgroups.iter().map(request).collect()
}

fn refusal(events: &[Event]) -> &str {
    match events {
        [Event::GrowthNotThrottled { why, .. }] => why,
        other => panic!("{other:?}"),
    }
}

/// Why throttling ended.
fn end(events: &[Event]) -> &str {
    match events {
        [Event::GrowthReleased { because, .. }] => because,
        other => panic!("{other:?}"),
    }
}

/// A process to put into a cgroup.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        Self(Command::new("sleep").arg("60").spawn().expect("sleep starts"))
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn it_begins_goes_on_and_ends_as_found() {
    let mut cgroup = TestCgroup::new("course");
    let level = cgroup.begin();
    assert_eq!(level, LIMIT * 85 / 100 / 4096 * 4096);
    assert_eq!(cgroup.high("app"), level.to_string());
    assert_eq!(cgroup.update(&["/app"]), []);
    assert!(end(&cgroup.update(&[])).contains("caught up"));
    assert_eq!(cgroup.high("app"), "max");
    // It can be throttled again, also where a new cgroup has that path.
    cgroup.begin();
    let _ = fs::remove_dir_all(cgroup.tree.0.join("app"));
    assert!(end(&cgroup.update(&["/app"])).contains("memory.max"));
    add_cgroup(&cgroup.tree, "app");
    cgroup.begin();
    drop(cgroup.guard);
    assert_eq!(read_setting(&cgroup.tree.0.join("app/memory.high")).ok().as_deref(), Some("max"));
}

#[test]
fn the_level_follows_the_limit() {
    let mut cgroup = TestCgroup::new("limit");
    cgroup.begin();
    cgroup.write("app/memory.max", &(2 * LIMIT).to_string());
    let level = cgroup.begin();
    assert_eq!(level, 2 * LIMIT * 85 / 100 / 4096 * 4096);
    assert_eq!(cgroup.high("app"), level.to_string());
    cgroup.write("app/memory.max", "max\n");
    assert_eq!(end(&cgroup.update(&["/app"])), "it has no memory.max");
    assert_eq!(cgroup.high("app"), "max");
}

#[test]
fn a_level_of_another_program_stays() {
    let mut cgroup = TestCgroup::new("operator");
    cgroup.write("app/memory.high", "900000000\n");
    assert!(refusal(&cgroup.update(&["/app"])).contains("900000000"));
    cgroup.write("app/memory.high", "max\n");
    cgroup.begin();
    for other in ["800000000", "max"] {
        cgroup.write("app/memory.high", other);
        let events = cgroup.update(&["/app"]);
        if other == "800000000" {
            assert!(end(&events).contains("another program changed"), "{events:?}");
        } else {
            // It was taken away from HawkEye once, so it is not set again.
            assert!(refusal(&events).contains("another program changed"), "{events:?}");
        }
        assert_eq!(cgroup.high("app"), other);
    }
}

#[test]
fn it_is_refused_where_the_kernel_or_another_program_would_do_harm() {
    let mut cgroup = TestCgroup::new("refusals");
    let swaps = "Filename Type Size Used Priority\n/dev/zram0 partition 1 0 100\n";
    cgroup.write("swaps", swaps);
    assert!(refusal(&cgroup.update(&["/app"])).contains("swap"));
    cgroup.write("app/memory.swap.max", "0\n");
    cgroup.begin();
    cgroup.write("app/memory.swap.max", "max\n");
    assert!(end(&cgroup.update(&["/app"])).contains("swap"));
    cgroup.write("swaps", "Filename Type Size Used Priority\n");
    cgroup.begin();
    cgroup.write("oomd", "");
    assert!(end(&cgroup.update(&["/app"])).contains("oomd"));
    let _ = fs::remove_file(cgroup.tree.0.join("oomd"));
    cgroup.write("app/memory.current", &LIMIT.to_string());
    assert!(refusal(&cgroup.update(&["/app"])).contains("too full"));
    assert_eq!(cgroup.high("app"), "max");
    assert_eq!(cgroup.throttler.throttled.len(), 0);
}

#[test]
fn members_are_checked_at_every_look_also_those_of_nested_cgroups() {
    let mut cgroup = TestCgroup::new("members");
    let sleeper = Sleeper::start();
    let pid = sleeper.0.id();
    cgroup.write("app/cgroup.procs", &format!("{pid}\n"));
    cgroup.begin();
    let excluded = |pid| Err(ThrottleRefusal::NotSelected(pid));
    let events = cgroup.update_with(&["/app"], &excluded);
    assert!(end(&events).contains(&format!("process {pid}")), "{events:?}");
    assert_eq!(cgroup.high("app"), "max");

    cgroup.begin();
    cgroup.write("app/nested/cgroup.procs", &format!("{}\n", std::process::id()));
    assert!(end(&cgroup.update(&["/app"])).contains("manager itself"));
    cgroup.write("app/nested/cgroup.procs", "0\n");
    assert!(refusal(&cgroup.update(&["/app"])).contains("cannot be seen"));
    let many: String = (0..65).map(|_| format!("{pid}\n")).collect();
    cgroup.write("app/nested/cgroup.procs", &many);
    assert!(refusal(&cgroup.update(&["/app"])).contains("too many"));
}

#[test]
fn a_real_time_member_is_never_slowed() {
    let mut cgroup = TestCgroup::new("real-time");
    let sleeper = Sleeper::start();
    cgroup.write("app/cgroup.procs", &format!("{}\n", sleeper.0.id()));
    cgroup.begin();
    let lowest = libc::sched_param { sched_priority: 1 };
    let pid = i32::try_from(sleeper.0.id()).expect("a pid is small");
    // SAFETY: a plain system call on our own child, which only reads `lowest`.
    let set = unsafe { libc::sched_setscheduler(pid, libc::SCHED_RR, &raw const lowest) };
    // It requires CAP_SYS_NICE.
    if set == 0 {
        assert!(end(&cgroup.update(&["/app"])).contains("real-time"));
        assert_eq!(cgroup.high("app"), "max");
    }
}

#[test]
fn an_end_that_fails_is_tried_again_and_others_are_not_affected() {
    let mut cgroup = TestCgroup::new("failures");
    add_cgroup(&cgroup.tree, "other");
    assert_eq!(cgroup.update(&["/app", "/other"]).len(), 2);
    // A folder in its place can be neither read nor written.
    let high = cgroup.tree.0.join("app/memory.high");
    let level = fs::read_to_string(&high).expect("the level can be read");
    fs::remove_file(&high).and_then(|()| fs::create_dir(&high)).expect("it can be replaced");
    for _ in 0..2 {
        let events = cgroup.update(&["/other"]);
        assert!(matches!(&events[..], [Event::Trouble { message }] if message.contains("/app")));
    }
    // It is not throttled anew, and the other one goes on.
    let events = cgroup.update(&["/app", "/other"]);
    assert!(matches!(&events[..], [Event::Trouble { .. }]), "{events:?}");
    assert_ne!(cgroup.high("other"), "max");
    fs::remove_dir(&high).and_then(|()| fs::write(&high, level)).expect("it can be replaced");
    let events = cgroup.update(&["/other"]);
    assert!(end(&events).contains("caught up"), "{events:?}");
    assert_eq!(cgroup.high("app"), "max");
}

#[test]
fn a_start_that_fails_leaves_no_record_and_others_begin() {
    let mut cgroup = TestCgroup::new("start");
    add_cgroup(&cgroup.tree, "other");
    let high = cgroup.tree.0.join("app/memory.high");
    set_mode(&high, 0o400);
    let is_root = nix::unistd::geteuid().is_root();
    let events = cgroup.update(&["/app", "/other"]);
    // Root may write it all the same.
    let refused = events.iter().any(|it| matches!(it, Event::GrowthNotThrottled { .. }));
    assert_eq!(refused, !is_root, "{events:?}");
    assert_ne!(cgroup.high("other"), "max");
}

#[test]
fn what_a_killed_manager_left_is_restored() {
    let mut cgroup = TestCgroup::new("killed");
    cgroup.begin();
    // A killed manager drops nothing.
    std::mem::forget(cgroup.guard);
    let _restored = cgroup.tree.guard();
    let high = cgroup.tree.0.join("app/memory.high");
    assert_eq!(read_setting(&high).ok().as_deref(), Some("max"));
}
