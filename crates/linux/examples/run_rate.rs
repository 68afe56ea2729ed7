use hawkeye_linux::page_tables::PageTables;
use std::time::{Duration, Instant};
fn main() {
    let t = Instant::now();
    let costs = hawkeye_linux::walk_costs::measure().unwrap();
    println!("{:#?} {:?}", costs, t.elapsed());
    let mut tables = PageTables::load().unwrap();
    for pid in std::env::args().skip(1) {
        for seed in 1..4 {
            let t = Instant::now();
            let e = hawkeye_linux::sampler::run_rate::estimate(&mut tables, pid.parse().unwrap(), &costs, Duration::from_nanos(450), seed).unwrap();
            println!("{:?} {:?} cores {:.2} regions {} in {:?}", e.overhead, e.rates, e.cpu_cores, e.walks.len(), t.elapsed());
        }
    }
}
