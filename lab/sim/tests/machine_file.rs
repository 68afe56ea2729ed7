//! Machine files are read as they were written, and invalid ones are rejected.

use hawkeye_sim::kernel::KernelCosts;
use hawkeye_sim::machine_file::{FROM_FILE, MachineFile};
use hawkeye_sim::mmu::{PROCESSORS, Processor};

#[test]
fn every_preset_survives_a_file() {
    for processor in PROCESSORS {
        let costs = KernelCosts::paper();
        let text = MachineFile { costs, processor }
            .to_toml()
            .expect("finite figures");
        let read = MachineFile::parse("here.toml", &text).expect("as it was written");
        assert_eq!(read.costs, costs);
        let (name, source) = (processor.name, processor.source);
        assert_eq!(read.processor.name, FROM_FILE);
        assert_eq!(
            Processor {
                name,
                source,
                ..read.processor
            },
            processor
        );
    }
}

#[test]
fn what_cant_be_is_refused_with_its_place() {
    let costs = KernelCosts::paper();
    let processor = PROCESSORS[0];
    let text = MachineFile { costs, processor }
        .to_toml()
        .expect("finite figures");
    let told = |text: &str| {
        MachineFile::parse("here.toml", text)
            .expect_err("refused")
            .to_string()
    };
    assert!(told("").contains("missing field"));
    let misspelt = told(&text.replace("split_ns", "splitt_ns"));
    assert!(
        misspelt.contains("here.toml") && misspelt.contains("splitt_ns"),
        "{misspelt}"
    );
    let slow = told(&text.replace("ghz = 2.6", "ghz = 0.0"));
    assert!(slow.contains("clock"), "{slow}");
    let odd = told(&text.replace("entries = 1024", "entries = 1000"));
    assert!(odd.contains("second-level TLB"), "{odd}");
}
