//! Machine files are read as they were written, and invalid ones are rejected.

use hawkeye_sim::kernel::KernelCosts;
use hawkeye_sim::machine_file::{FROM_FILE, MachineFile};
use hawkeye_sim::mmu::{PROCESSORS, ProcessorSpec};

fn text(processor: ProcessorSpec) -> String {
    let costs = KernelCosts::paper();
    let file = MachineFile { costs, processor };
    file.to_toml().expect("finite figures")
}

#[test]
fn every_preset_survives_a_file() {
    for processor in PROCESSORS {
        let mut read = MachineFile::parse("here.toml", &text(processor)).expect("as written");
        assert_eq!(read.costs, KernelCosts::paper());
        assert_eq!(read.processor.name, FROM_FILE);
        (read.processor.name, read.processor.source) = (processor.name, processor.source);
        assert_eq!(read.processor, processor);
    }
}

#[test]
fn what_cant_be_is_refused_with_its_place() {
    let text = text(PROCESSORS[0]);
    let told = |text: &str| {
        let read = MachineFile::parse("here.toml", text);
        read.expect_err("refused").to_string()
    };
    assert!(told("").contains("missing field"));
    let misspelt = told(&text.replace("split_ns", "splitt_ns"));
    assert!(misspelt.contains("here.toml") && misspelt.contains("splitt_ns"), "{misspelt}");
    let slow = told(&text.replace("ghz = 2.6", "ghz = 0.0"));
    assert!(slow.contains("clock"), "{slow}");
    let odd = told(&text.replace("entries = 1024", "entries = 1000"));
    assert!(odd.contains("second-level TLB"), "{odd}");
}
