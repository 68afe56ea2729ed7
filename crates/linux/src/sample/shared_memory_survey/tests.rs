use super::*;
use hawkeye_test_support::event_constructors::process_with_pid;
use procfs::FromBufRead;
use procfs::process::MemoryMaps;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const H: u64 = HUGE_PAGE_BYTES;
const INTERNAL: Option<(i32, i32)> = Some((0, 1));

/// A line of `maps`: `regions` huge pages, at `misaligned_by` bytes above the right address.
fn line(regions: u64, misaligned_by: u64, offset: u64, device: &str, name: &str) -> String {
    let start = 64 * H + misaligned_by + offset;
    let end = start + regions * H;
    format!("{start:x}-{end:x} rw-s {offset:08x} {device} 7 {name}\n")
}

/// As `smaps` shows it.
fn with_resident(line: String, regions: u64, flags: &str) -> String {
    format!("{line}Rss: {} kB\nShmemPmdMapped: 2048 kB\nVmFlags: {flags}\n", regions * 2048)
}

fn mapper_of(pid: u32, namespace: u64, text: &str) -> MapperReading {
    let maps = MemoryMaps::from_buf_read(text.as_bytes()).expect("the text is valid");
    let mounts = MountedFileSystems::parse(b"36 35 0:27 / /x rw - tmpfs x rw\n");
    let large = |map| large_shared_mapping(map, &mounts, INTERNAL, Some(namespace));
    MapperReading {
        process: process_with_pid(pid),
        mappings: maps.iter().filter_map(large).collect(),
        resident_at_most: None,
    }
}

fn survey_of(mappers: impl IntoIterator<Item = MapperReading>) -> SharedMemorySurvey {
    let mut found = CollectedFiles::default();
    for mapper in mappers {
        let command = format!("program-{}", mapper.process.pid);
        found.add_mapper(mapper, &command);
    }
    found.into_survey()
}

#[test]
fn a_file_of_several_processes_is_listed_once_with_the_one_that_has_most_resident() {
    let text = |misaligned_by, resident| {
        let line = line(16, misaligned_by, 0, "00:01", "/memfd:guest (deleted)");
        with_resident(line, resident, "rd wr sh ms")
    };
    let mappers = [(5, 0, 2), (6, 0x3000, 9), (7, 0x1000, 3)];
    let found = survey_of(mappers.map(|(pid, by, rss)| mapper_of(pid, 1, &text(by, rss))));
    assert_eq!(found.coverage.read, 3);
    let [file] = &found.files[..] else { panic!("{found:?}") };
    assert_eq!((file.resident_bytes, file.mapped_bytes), (9 * H, 16 * H));
    assert_eq!((file.largest_pid, &*file.largest_command), (6, "program-6"));
    assert_eq!((file.processes, file.mappings, file.blocked_mappings), (3, 3, 2));
    assert_eq!(file.obstacle, Some(SharedMemoryObstacle::Misaligned { by_bytes: 0x3000 }));
    assert_eq!(file.huge_bytes, Some(H));
}

#[test]
fn only_large_shared_memory_is_a_candidate() {
    let text = [
        line(4, 0, 0, "00:1b", "/dev/shm/segment"),
        line(4, 0, 0, "00:01", "/dev/zero (deleted)"),
        // The hugetlb pool, by its device; a file with the name of a memfd on another device.
        line(4, 0, 0, "00:0f", "/memfd:huge (deleted)"),
        line(4, 0, 0, "00:0f", "/anon_hugepage (deleted)"),
        // A disk, a small file, private memory, a device.
        line(4, 0, 0, "fd:00", "/memfd:x"),
        line(1, 0, 0, "00:01", "/memfd:x").replace("8200000", "8100000"),
        line(4, 0, 0, "00:01", "/memfd:x").replace("rw-s", "rw-p"),
        with_resident(line(4, 0, 0, "00:1b", "/dev/dri/card0"), 4, "rd wr sh io pf"),
    ];
    let found = survey_of([mapper_of(5, 1, &text.concat())]);
    let names: Vec<&str> = found.files.iter().map(|file| &*file.what).collect();
    assert_eq!(names, ["/dev/zero (deleted)", "/dev/shm/segment"]);
    assert_eq!(found.files[0].blocked_mappings, 0);
}

#[test]
fn segments_with_one_id_in_two_namespaces_are_two_files() {
    let segment = line(4, 0, 0, "00:01", "/SYSV00000000 (deleted)");
    // It has the segment's number, too.
    let memfd = line(4, 0, 0, "00:01", "/memfd:x (deleted)");
    let mapper = |pid, namespace| mapper_of(pid, namespace, &(segment.clone() + &memfd));
    let found = survey_of([mapper(5, 1), mapper(6, 2), mapper(7, 2)]);
    let mut processes: Vec<usize> = found.files.iter().map(|file| file.processes).collect();
    processes.sort_unstable();
    assert_eq!(processes, [1, 2, 3]);
}

#[test]
fn parts_that_a_process_maps_twice_count_once() {
    let part = |regions, offset| {
        let line = line(regions, 0, offset, "00:01", "/memfd:ring (deleted)");
        with_resident(line, regions, "rd wr sh ms")
    };
    let text = [part(8, 0), part(8, 0), part(4, 6 * H), part(2, 20 * H)].concat();
    let found = survey_of([mapper_of(5, 1, &text)]);
    let file = &found.files[0];
    assert_eq!((file.mapped_bytes, file.resident_bytes), (12 * H, 12 * H));
    assert_eq!((file.processes, file.mappings), (1, 4));
}

#[test]
fn the_memory_of_a_large_process_is_an_upper_bound() {
    let text = line(16, 0x1000, 0, "00:01", "/memfd:guest (deleted)");
    let with_bound = |pid, bytes| {
        let resident_at_most = Some(bytes);
        survey_of([MapperReading { resident_at_most, ..mapper_of(pid, 1, &text) }])
    };
    for (bound, expected) in [(3 * H, 3 * H), (u64::MAX, 16 * H)] {
        let found = with_bound(5, bound);
        let file = &found.files[0];
        assert_eq!((found.read_in_part, file.resident_bytes), (1, expected));
        assert!(file.resident_is_upper_bound && file.blocked_mappings == 1);
        assert_eq!(file.huge_bytes, None);
    }
    // What a small process shows of the same file is kept.
    let small = with_resident(text.clone(), 2, "rd wr sh ms");
    let large = MapperReading { resident_at_most: Some(u64::MAX), ..mapper_of(5, 1, &text) };
    for mappers in [[mapper_of(6, 1, &small), large.clone()], [large, mapper_of(6, 1, &small)]] {
        let found = survey_of(mappers);
        assert_eq!((found.files[0].largest_pid, found.files[0].huge_bytes), (5, Some(H)));
    }
}

#[test]
fn names_of_devices_are_known() {
    assert!(has_name_of_device("/dev/nvidia0"));
    for name in ["/dev/shm/x", "/dev/zero (deleted)", "/memfd:x (deleted)", "/srv/dev/x"] {
        assert!(!has_name_of_device(name), "{name}");
    }
}

#[test]
fn files_with_the_least_memory_are_dropped_where_there_are_too_many() {
    let resident = with_resident(line(4, 0, 0, "00:01", "/memfd:x"), 1, "rd wr sh ms");
    let mut mapper = mapper_of(5, 1, &resident);
    let (key, mapping) = mapper.mappings[0].clone();
    let empty = SharedMapping { resident_bytes: 0, ..mapping };
    let many =
        (100..100 + 2 * MOST_FILES as u64).map(|inode| (FileKey { inode, ..key }, empty.clone()));
    mapper.mappings.extend(many);
    let found = survey_of([mapper]);
    assert_eq!((found.files.len(), found.files_dropped), (MOST_FILES, MOST_FILES + 1));
    assert_eq!(found.files[0].resident_bytes, H);
}

#[test]
fn a_process_that_does_not_answer_delays_no_other_for_long() {
    let (free, held) = channel::<()>();
    let held = Arc::new(Mutex::new(held));
    let text = line(4, 0, 0, "00:01", "/memfd:x (deleted)");
    let read = move |pid| match pid {
        2 => {
            let _ = held.lock().map(|held| held.recv());
            Err(LinuxError::NoSuchProcess(pid))
        }
        // Another process has its pid meanwhile.
        3 => Ok(mapper_of(9, 1, &text)),
        4 => Err(LinuxError::NoSuchProcess(pid)),
        5 => Err(LinuxError::NotPermitted { pid, owner: 0 }),
        _ => Ok(mapper_of(pid, 1, &text)),
    };
    let processes = || {
        (1..8).map(|pid| ScannedProcess {
            process: process_with_pid(pid),
            anonymous_bytes: 1,
            own_bytes: 1,
            family: 1,
            cpu: Duration::ZERO,
            program: Default::default(),
        })
    };
    let mut limits = ReadLimits {
        patience: Duration::from_secs(2),
        deadline: Instant::now() + Duration::from_secs(600),
        rest_per_read: 0,
    };
    let found = survey_processes(processes(), read.clone(), limits);
    assert_eq!(found.coverage, SurveyCoverage { read: 3, left_out: 2 });
    assert_eq!(found.files[0].processes, 3);
    drop(free);
    limits.deadline = Instant::now();
    let late = survey_processes(processes(), read, limits);
    assert_eq!(late.coverage, SurveyCoverage { read: 0, left_out: 7 });
}

#[test]
fn this_process_is_read_and_its_memfd_is_on_the_internal_device() {
    let internal = device_of_internal_files();
    assert!(internal.is_some());
    let own = read_mapper(std::process::id(), internal).expect("this process can be read");
    assert_eq!(own.process.pid, std::process::id());
}
