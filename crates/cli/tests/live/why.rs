//! `hawkeye why` for regions in every state that a test can produce.

use crate::common::{DEADLINE, figure, machine, or_skip, time_limit_factor, until};
use crate::daemon::{CONFIG, DiscoveredProgram, RunningDaemon};
use hawkeye_policy::HUGE_PAGE_BYTES;
use hawkeye_test_support::this_test;
use serde_json::Value;

/// The first and the last region of each selected column of a process's strip. A column of two
/// regions may be selected for one of them.
fn regions(top: &Value, selected: impl Fn(&Value) -> bool) -> Vec<u64> {
    let columns = top["strip"]["columns"].as_array();
    let selected = columns.into_iter().flatten().filter(|column| selected(column));
    let ends = |column: &Value| {
        [column["start"].as_u64(), column["end"].as_u64().map(|end| end - HUGE_PAGE_BYTES)]
    };
    selected.flat_map(ends).flatten().collect()
}

#[test]
fn why_explains_huge_waiting_and_excluded_regions() {
    let machine = or_skip!(machine(this_test!()));
    let program = DiscoveredProgram::start(&machine);
    // One promotion a second: all other regions wait.
    let per_s = 1.0 / f64::from(time_limit_factor());
    let limits = format!("[limits]\npromotions_per_s = {per_s:?}");
    let slowly = CONFIG.replace("[limits]", &limits);
    let daemon = RunningDaemon::start_by(&machine, &format!("policy = \"hawkeye-g\"\n{slowly}"));
    let pid = program.pid();
    daemon.wait_for_status(DEADLINE, |it| figure(&it["totals"], "promoted") >= 2);
    let text = |address: u64| {
        let words = format!("why {pid} {address:#x}");
        machine.output(&words).assert_success().out
    };

    let top = daemon.json(&format!("top {pid}"));
    let maybe_huge = regions(&top, |column| column["huge"].as_u64() > Some(0));
    let is_huge =
        |address: &u64| daemon.json(&format!("why {pid} {address:#x}"))["state"]["state"] == "huge";
    let huge = maybe_huge.into_iter().find(is_huge);
    let huge = huge.unwrap_or_else(|| panic!("no region is huge: {top}"));
    let said = text(huge);
    assert!(said.contains("one huge page maps it"), "{said}");
    assert!(said.contains("ago: promoted in"), "{said}");
    assert!(!said.contains("not promoted at the moment"), "{said}");

    let waits = || {
        let top = daemon.json(&format!("top {pid}"));
        regions(&top, |column| column["candidates"].as_u64() > Some(0))
    };
    let waiting_whys = || -> Vec<Value> {
        waits().iter().map(|start| daemon.json(&format!("why {pid} {start:#x}"))).collect()
    };
    assert!(until(DEADLINE, || waits().len() > 3));
    let whys = waiting_whys();
    let waiting = whys.iter().find(|why| why["ahead"].is_number());
    let waiting = waiting.unwrap_or_else(|| panic!("no region waits, for example {}", whys[0]));
    assert!(waiting["bucket"].is_number(), "{waiting}");
    let reason = waiting["waiting"].to_string();
    assert!(reason.contains("bucket"), "{waiting}");
    // The last region in the queue. It may come to its front before it is asked for.
    let mut said = String::new();
    let waits_for_others = || {
        let whys = waiting_whys();
        let Some(last) = whys.iter().max_by_key(|why| why["ahead"].as_u64()) else { return false };
        said = text(last["start"].as_u64().expect("an address"));
        said.contains("It is in the queue of its process, after")
            && said.contains("Nothing was done to it")
    };
    assert!(until(DEADLINE, waits_for_others), "{said}");

    // The mappings are listed by a call with a short time limit.
    let nothing = "it is not managed: nothing is mapped";
    assert!(until(DEADLINE, || text(4096).contains(nothing)), "{}", text(4096));
    daemon.end();
}
