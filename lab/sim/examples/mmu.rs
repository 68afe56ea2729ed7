//! What address translation costs by the simulator's counters, for every access pattern:
//! `cargo run --release -p hawkeye-sim --example mmu [PROCESSOR] [GIB] [MILLION_ACCESSES]`.

use hawkeye_sim::mmu::{MmuError, PROCESSORS, Pattern, Truth, calibrate};
use std::time::Instant;

fn main() -> Result<(), MmuError> {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or("skylake".to_owned());
    let mut number = |default| args.next().and_then(|n| n.parse().ok()).unwrap_or(default);
    let (gib, millions): (u64, u64) = (number(4), number(20));
    let Some(processor) = PROCESSORS.iter().find(|p| p.name == name) else {
        let names = PROCESSORS.map(|p| p.name).join(", ");
        eprintln!("there is no processor {name}; there are: {names}");
        return Ok(());
    };
    println!("{name}, {gib} GiB, {millions} million accesses");
    println!(
        "{:14} {:>15} {:>15} {:>11} {:>9} {:>6} {:>8} {:>13}",
        "",
        "ns/access",
        "million walks/s",
        "walks/read",
        "walking %",
        "gain %",
        "ns/walk",
        "simulated/s"
    );
    for (pattern_name, pattern) in Pattern::ALL {
        let clock = Instant::now();
        let accesses = millions * 1_000_000;
        let truth = Truth::measure(processor, pattern, gib << 30, accesses, 1)?;
        let seconds = clock.elapsed().as_secs_f64();
        let (base, huge) = (&truth.base, &truth.huge);
        println!(
            "{pattern_name:14} {:>7.2} {:>7.2} {:>7.2} {:>7.2} {:>11.4} {:>9.1} {:>6.1} {:>8.1} {:>11.1} M",
            base.access_ns(),
            huge.access_ns(),
            base.walks_per_s() / 1e6,
            huge.walks_per_s() / 1e6,
            base.walks as f64 / base.accesses as f64,
            base.walk_active_percent(),
            truth.gain_percent(),
            truth.walk_ns().unwrap_or_default(),
            4.0 * accesses as f64 / seconds / 1e6,
        );
    }
    for mib in [64, 256, 1024, 2048] {
        let costs = calibrate(processor, mib << 20)?;
        println!(
            "calibrated over {mib:4} MiB: streamed {:.1} ns, independent {:.1} ns, dependent {:.1} ns a walk",
            costs.streamed_ns, costs.independent_ns, costs.dependent_ns
        );
    }
    Ok(())
}
