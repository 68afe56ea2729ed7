//! Parameters are found by their keys.

use crate::workload_toml::reader;
use hawkeye_sim::mmu::translation::PageTableLevels;
use hawkeye_sim::simulate::SimulationSetup;
use hawkeye_sim::sweep_parameters::{SweepBase, SweepParameter};
use hawkeye_sim::workloads::WorkloadSpec;

const POPULAR: &str = r#"stream = [{ area = "heap", pattern = { zipf = 0.9 }, cycles = 60.0 }]"#;

fn base() -> SweepBase {
    SweepBase {
        setup: SimulationSetup {
            memory_bytes: 256 << 20,
            cores: 2,
            sample: 4_000,
            ..SimulationSetup::default()
        },
        name: "test".to_owned(),
        text: reader(64, "", 5.0, POPULAR),
    }
}

fn set(key: &str, value: &str) -> (SimulationSetup, WorkloadSpec) {
    SweepParameter::new(key).apply(&base(), value).unwrap()
}

fn refused(key: &str, value: &str) -> String {
    let set = SweepParameter::new(key).apply(&base(), value);
    set.expect_err("refused").to_string()
}

#[test]
fn every_part_of_a_run_can_be_varied() {
    assert_eq!(set("machine.memory", "1GiB").0.memory_bytes, 1 << 30);
    assert_eq!(set("machine.cores", "7").0.cores, 7);
    assert_eq!(set("machine.fragment", "0.5").0.fragmented, 0.5);
    let five = set("machine.page_table_levels", "5").0.page_table_levels;
    assert_eq!(five, PageTableLevels::Five);
    assert!(refused("machine.page_table_levels", "3").contains("4 or 5 levels"));
    let (setup, _) = set("machine.next_page_prefetch", "false");
    assert!(!setup.next_page_prefetch);
    assert_eq!(set("processor", "zen-4").0.processor.name, "zen-4");
    let (setup, _) = set("processor.l2_tlb.shape.entries", "2048");
    assert_eq!(setup.processor.l2_tlb.shape.entries, 2048);
    assert_eq!(setup.processor.name, "haswell");
    let (setup, _) = set("processor.l1_tlb.split.huge.entries", "64");
    assert_eq!(setup.processor.width, 4);
    let (setup, _) = set("processor.memory.caches.2.latency_cycles", "99");
    assert_eq!(setup.processor.memory.caches[2].latency_cycles, 99);
    assert_eq!(set("costs.collapse_ns", "123").0.costs.collapse_ns, 123);
    let (setup, _) = set("system.rate_per_s", "8.4");
    assert_eq!(setup.rate.map(|rate| rate.get()), Some(8.4));
    assert_eq!(set("system.period_s", "5").0.tuning.period_s, Some(5.0));
    let (_, workload) = set("workload.process.reader.area.heap.size", "128MiB");
    assert_eq!(workload.processes[0].areas[0].size.0, 128 << 20);
    let (_, workload) = set("workload.process.0.phase.1.ideal_s", "9");
    assert_ne!(workload, set("machine.cores", "1").1);
    let zipf = "workload.process.reader.phase.1.stream.0.pattern.zipf";
    assert_ne!(set(zipf, "0.5").1, set(zipf, "1.5").1);
    // A key that the file leaves out.
    let (_, workload) = set("workload.process.reader.count", "3");
    assert_eq!(workload.processes[0].count, 3);
}

#[test]
fn wrong_keys_are_answered_with_right_ones() {
    assert!(refused("cores", "1").contains("starts with machine."));
    let told = refused("machine.core", "1");
    assert!(told.contains("memory, cores, fragment"), "{told}");
    let told = refused("costs.fault_ns", "1");
    let both = told.starts_with("costs.fault_ns ") && told.contains("base_fault_ns");
    assert!(both, "{told}");
    let told = refused("processor.l2_tlb", "1");
    assert!(told.contains("shape"), "{told}");
    let told = refused("workload.process.writer.count", "1");
    assert!(told.contains("reader"), "{told}");
    let told = refused("workload.process.reader.phase.7.ideal_s", "1");
    assert!(told.contains("0, 1"), "{told}");
    assert!(refused("system.mood", "1").contains("period_s"));
    assert!(refused("workload", "1").contains("process"));
}

#[test]
fn wrong_values_are_refused_with_the_key() {
    for (key, value) in [
        ("machine.cores", "many"),
        ("machine.memory", "4GB"),
        ("processor", "z80"),
        ("processor.ghz", "fast"),
        ("costs.collapse_ns", "-1"),
        ("costs.collapse_ns", "1.5"),
        ("system.rate_per_s", "-1"),
        ("workload.process.reader.area.heap.size", "big"),
        ("workload.process.reader.phase.0.pages_per_region", "600"),
    ] {
        let told = refused(key, value);
        assert!(told.starts_with(key), "{told}");
    }
}
