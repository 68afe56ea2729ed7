use super::*;
use hawkeye_policy::TranslationOverheadSource;
use std::collections::BTreeMap;

const XEON: &str = "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Intel(R) Xeon(R) Platinum 8480+\n";
const EPYC: &str =
    "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\nmodel name\t: AMD EPYC 7763\n";

fn events(cpuinfo: &str) -> WalkEventSet {
    arch::walk_events(cpuinfo).expect("the processor is in the table")
}

/// Readings by name, with CPU time of which `user_share` is in user mode.
fn readings(name: &str, user_share: f64) -> CounterReadings {
    let text = include_str!("readings.json");
    let all: BTreeMap<String, [ThreadCounts; 2]> = serde_json::from_str(text).expect("valid");
    let mut counts = all[name].clone().into_iter();
    let mut cpu_s = 0.0;
    let reader = || {
        cpu_s += 10.0;
        let cpu = CpuTimeAndFaults {
            user_s: cpu_s * user_share,
            system_s: cpu_s * (1.0 - user_share),
            minor_faults: 0,
        };
        Ok((counts.next().expect("two readings"), cpu))
    };
    CounterReadings::read_before_and_after(reader, || {}).expect("both are there")
}

fn estimate(percent: f64, at_least: bool) -> TranslationOverhead {
    TranslationOverhead {
        at_least,
        ..TranslationOverhead::new_without_error(percent, TranslationOverheadSource::WalkRate)
    }
}

fn compare(
    percent: f64,
    at_least: bool,
    cpuinfo: &str,
    name: &str,
    user: f64,
) -> EstimatedAndCountedProgram {
    let readings = readings(name, user);
    let estimate = estimate(percent, at_least);
    EstimatedAndCountedProgram::from_estimate_and_readings(
        "random",
        estimate,
        &readings,
        &events(cpuinfo),
    )
    .expect("counted")
}

#[test]
fn walk_cycles_are_a_share_of_all_cpu_time() {
    let whole = compare(18.0, false, XEON, "intel", 1.0);
    // 2000 + 1000 of 10,000 + 5000 cycles.
    assert!((whole.counted.percent - 20.0).abs() < 1e-9, "{whole:?}");
    let expected = EventCounts {
        loads: 2000,
        stores: 1000,
        cycles: 15_000,
        enabled_ns: 6000,
        running_ns: 6000,
    };
    assert_eq!((whole.counts, whole.agrees), (expected, true));
    let half = compare(18.0, false, XEON, "intel", 0.5);
    assert!((half.counted.percent - 10.0).abs() < 1e-9, "{half:?}");
    assert_eq!((half.counted_class, half.agrees), (OVERHEAD_CLASSES[1], false));
}

#[test]
fn an_at_least_estimate_agrees_with_more_but_not_with_less() {
    assert!(!compare(2.0, false, XEON, "intel", 1.0).agrees);
    assert!(compare(2.0, true, XEON, "intel", 1.0).agrees);
    assert!(!compare(30.0, true, XEON, "intel", 0.5).agrees);
}

#[test]
fn counted_walks_agree_within_their_assumed_cost() {
    // 100 walks of 35 cycles in 100,000: 3.5 %, from 1.75 to 7 %.
    for (percent, agrees) in [(1.0, true), (5.0, true), (16.0, false)] {
        let one = compare(percent, false, EPYC, "amd", 1.0);
        assert!((one.counted.percent - 3.5).abs() < 1e-9, "{one:?}");
        assert_eq!(one.agrees, agrees, "{percent}");
    }
}

#[test]
fn counters_that_count_nothing_are_an_error() {
    let readings = readings("silent", 1.0);
    let error = readings.counted_overhead(&events(XEON)).expect_err("no walks");
    assert!(error.to_string().contains("no page walks"), "{error}");
}

#[test]
fn the_file_names_processor_and_events_but_not_the_machine() {
    let mut results =
        EstimateVerification::new_without_programs(XEON, "6.12.3-alices-laptop+\n", &events(XEON));
    results.programs.push(compare(18.0, false, XEON, "intel", 1.0));
    results.not_measured.push("Redis");
    let text = results.to_string();
    assert!(text.contains("20.0 %, over 15 %"), "{text}");
    assert!(text.contains("18.0 %, over 15 %: agrees"), "{text}");
    assert!(text.contains("agrees for 1 of 1"), "{text}");
    let json = serde_json::to_value(&results).expect("serialisable");
    assert_eq!(json["kernel"], "6.12.3");
    assert_eq!(json["cpu"], "Intel family 6 model 0x8f");
    let name = "DTLB_{LOAD,STORE}_MISSES.WALK_ACTIVE";
    assert_eq!(json["events"]["name"], name);
    assert_eq!(json["events"]["stores"], "0x1001013");
    assert_eq!(json["programs"][0]["estimate"]["percent"], 18.0);
    assert!(!json.to_string().contains("alice"), "{json}");
    let amd = EstimateVerification::new_without_programs(EPYC, "6.8.0", &events(EPYC));
    assert_eq!(amd.events.name, "ls_l1_d_tlb_miss.*_l2_miss");
    assert_eq!((amd.events.loads.as_str(), amd.events.stores), ("0xf045", None));
}

#[test]
fn without_counters_the_error_says_what_to_do() {
    let unknown = missing_counters_advice(&CountersUnavailable::UnknownProcessor("new".into()));
    assert!(unknown.contains("(new)") && unknown.contains("crates/linux/src/arch/"), "{unknown}");
    let none = missing_counters_advice(&CountersUnavailable::NotCounted("ENOENT".into()));
    assert!(none.contains("ENOENT") && none.contains("pmu=on"), "{none}");
}
