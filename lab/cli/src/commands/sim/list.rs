//! `hawkeye-lab sim list`.

use anyhow::Result;
use hawkeye_sim::mmu::PROCESSORS;
use hawkeye_sim::systems::SYSTEMS;
use hawkeye_sim::workloads;

pub fn list() -> Result<()> {
    println!("Systems:");
    for system in &SYSTEMS {
        println!("  {:12} {}", system.name, system.about);
    }
    println!("Workloads:");
    for name in workloads::names() {
        let source = workloads::by_name(name)?.source;
        println!("  {name:12} {}", source.trim());
    }
    println!("Processors:");
    for processor in &PROCESSORS {
        println!("  {}", processor.name);
    }
    Ok(())
}
