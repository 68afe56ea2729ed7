//! Programs that map the same file of shared memory.

use crate::common::{engine, parse, run, sample, second_phase_s, small};
use crate::workload_toml::{process, workload};
use hawkeye_manager::{Machine, PromotionResult, Sampling};
use hawkeye_policy::{
    CoverageSource, FileRegion, ProcessId, ProcessSample, Promotion, Reason, SampleKinds,
};
use hawkeye_sim::engine::Engine;
use hawkeye_sim::workloads::{ByteSize, WorkloadSpec};
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// The file that all readers map.
const FILE_BYTES: u64 = 128 * MIB;

/// A program that fills the file, with these further keys of the fill, and then reads it.
fn reader(name: &str, fill: &str, ideal_s: f64) -> String {
    process(
        name,
        "",
        r#"{ name = "table", size = "128MiB", file = "f" }"#,
        &format!(
            r#"{{ kind = "fill", area = "table", page_ns = 100.0, {fill} }},
               {{ kind = "access", ideal_s = {ideal_s:?}, stream = [{{ area = "table", pattern = "random", cycles = 60.0 }}] }}"#
        ),
    )
}

fn readers(programs: &[String]) -> WorkloadSpec {
    parse(&workload(programs))
}

fn two_readers() -> WorkloadSpec {
    readers(&[reader("a", "", 60.0), reader("b", "", 60.0)])
}

/// The readers after this time, in the order of the workload.
fn running(system: &str, workload: &WorkloadSpec, seconds: u64) -> (Engine, Vec<ProcessId>) {
    let mut engine = engine(system, workload, &small());
    let _ = engine.wait_until(Duration::from_secs(seconds));
    let processes = engine.admit_and_list_processes(Duration::MAX);
    let processes = processes.into_done().expect("all have joined");
    (engine, processes)
}

/// A window of a second.
fn sample_window(engine: &mut Engine, process: ProcessId) -> ProcessSample {
    let needs = SampleKinds::COVERAGE.union(SampleKinds::OVERHEAD);
    engine.start_window(process, needs, Duration::MAX).unwrap();
    let until = engine.now() + Duration::from_secs(1);
    let _ = engine.wait_until(until);
    sample(engine, process).unwrap()
}

#[test]
fn a_file_takes_memory_once() {
    for system in ["linux-4k", "linux-shmem", "hawkeye"] {
        let done = run(system, &two_readers(), &small());
        assert_eq!(done.figures.shared_file_peak_bytes, FILE_BYTES, "{system}");
        let peaks = done.figures.programs.iter().map(|p| p.rss_peak_bytes);
        assert!(peaks.eq([FILE_BYTES; 2]), "{system}: {:?}", done.figures.programs);
    }
}

#[test]
fn the_manager_promotes_each_region_once_for_both() {
    let workload = two_readers();
    let managed = run("hawkeye", &workload, &small());
    let [base, huge] = ["linux-4k", "linux-shmem"].map(|system| run(system, &workload, &small()));
    assert_eq!((managed.promoted, base.promoted, huge.promoted), (64, 0, 0));
    assert!(managed.errors.is_empty(), "{:?}", managed.errors);
    for (reader, managed) in managed.figures.programs.iter().enumerate() {
        assert_eq!(managed.phases[1].huge_bytes, FILE_BYTES, "{managed:?}");
        let [base_s, huge_s] =
            [&base, &huge].map(|it| second_phase_s(&it.figures.programs[reader]));
        let managed_s = second_phase_s(managed);
        // Most of the time that huge pages from the start save.
        assert!(managed_s - huge_s < 0.5 * (base_s - huge_s), "{base_s} {managed_s} {huge_s}");
    }
}

#[test]
fn other_mappers_get_the_huge_page_at_their_next_access() {
    let (mut engine, readers) = running("linux-4k", &two_readers(), 5);
    let regions = sample(&mut engine, readers[0]).unwrap().regions;
    let first = regions[0];
    let file = FileRegion::at_offset(1, 1, 0);
    assert_eq!((regions.len(), first.file), (64, file));
    // What is expected to be private memory is none.
    let promotion = |file| {
        let reason = Reason::new("a test");
        Promotion::to_huge_page(readers[0], first.region, 512, file, reason)
    };
    let wrong = engine.promote(&promotion(None));
    assert_eq!(wrong, Ok(PromotionResult::NotCandidate));
    let done = engine.promote(&promotion(file));
    assert!(matches!(done, Ok(PromotionResult::Done { .. })), "{done:?}");
    let until = engine.now() + Duration::from_millis(100);
    let _ = engine.wait_until(until);
    for reader in readers {
        let regions = sample(&mut engine, reader).unwrap().regions;
        let huge: Vec<bool> = regions.iter().map(|region| region.is_huge()).collect();
        assert_eq!(huge.iter().filter(|huge| **huge).count(), 1, "{reader}");
        assert!(huge[0] && regions.len() == 64, "{reader}");
    }
    let bytes = engine.figures().shared_file_peak_bytes;
    assert_eq!(bytes, FILE_BYTES);
}

#[test]
fn accesses_are_hidden_while_several_map_the_memory() {
    // The second one ends soon.
    let workload = readers(&[reader("a", "", 60.0), reader("b", "", 5.0)]);
    let (mut engine, both) = running("linux-4k", &workload, 1);
    assert_eq!(both.len(), 2);
    let seen = sample_window(&mut engine, both[0]);
    assert_eq!((seen.source, seen.overhead), (CoverageSource::Population, None));
    let all_accessed = seen.regions.iter().all(|r| r.accessed == r.present && r.walks_per_s == 0);
    assert!(all_accessed, "{:?}", seen.regions);
    let _ = engine.wait_until(Duration::from_secs(20));
    let left = engine.admit_and_list_processes(Duration::MAX).into_done().expect("listed");
    assert_eq!(left, both[..1]);
    let seen = sample_window(&mut engine, both[0]);
    assert_eq!(seen.source, CoverageSource::AccessBits);
    assert!(seen.overhead.is_some_and(|overhead| overhead.percent > 2.0), "{seen:?}");
    assert!(seen.regions.iter().all(|region| region.walks_per_s > 0));
}

#[test]
fn sparse_files_are_left_alone() {
    // 112 of 512 pages are holes.
    let sparse = "pages_per_region = 400";
    let workload = readers(&[reader("a", sparse, 60.0), reader("b", sparse, 60.0)]);
    let done = run("hawkeye", &workload, &small());
    assert_eq!((done.promoted, done.figures.shared_file_peak_bytes), (0, FILE_BYTES / 512 * 400));
    // Where the other one has filled the holes, they are none.
    let workload = readers(&[reader("a", sparse, 60.0), reader("b", "", 60.0)]);
    assert_eq!(run("hawkeye", &workload, &small()).promoted, 64);
}

#[test]
fn programs_of_a_virtual_machine_share_files_of_its_own() {
    let inside = two_readers().in_guest(ByteSize(256 * MIB), 4);
    let done = run("hawkeye", &inside, &small());
    let guest = &done.figures.guests[0].inside;
    assert_eq!(
        (guest.shared_file_peak_bytes, done.figures.shared_file_peak_bytes),
        (FILE_BYTES, 0)
    );
    assert!(guest.programs.iter().all(|p| p.huge_peak_bytes == FILE_BYTES), "{guest:?}");
}
