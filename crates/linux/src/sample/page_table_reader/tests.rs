use super::*;
use crate::anonymous_mapping::AnonymousMapping;
use crate::processes::process::ProcessHandle;
use hawkeye_test_support::this_test;

#[test]
fn a_region_is_contiguous_where_contiguous_entries_map_most_of_it() {
    let order = |present, contiguous, huge| {
        let record = types::region_record { present, contiguous, huge, ..Default::default() };
        region_sample_from_record(&record).order
    };
    assert_eq!(order(512, 32, 0), PageOrder::CONTIGUOUS);
    assert_eq!(order(31, 1, 0), PageOrder::CONTIGUOUS);
    assert_eq!(order(32, 1, 0), PageOrder::BASE);
    assert_eq!(order(512, 0, 0), PageOrder::BASE);
    assert_eq!(order(512, 0, 1), PageOrder::HUGE);
    // The shared zero page only.
    assert_eq!(order(0, 0, 0), PageOrder::BASE);
}

fn touched_page() -> AnonymousMapping {
    let page = AnonymousMapping::map(4096).expect("memory can be mapped");
    // SAFETY: the mapping is writable, and nothing refers to it.
    unsafe { page.start().cast::<u8>().write_volatile(1) };
    page
}

#[test]
fn memory_that_was_added_is_read() {
    if !nix::unistd::geteuid().is_root() {
        return this_test!().skip("it needs root");
    }
    let mut tables = PageTableReader::load_bpf_programs().expect("the BPF programs load");
    let own = tables.bind_to_process(std::process::id()).expect("the programs bind");
    let page = touched_page();
    let region = RegionAddr::containing(page.address());
    let is_read = |tables: &mut PageTableReader| {
        tables.read_region(&own, region).expect("the region can be read").is_some()
    };
    assert!(is_read(&mut tables));
    // As if nearly all memory had been added after its end was read.
    tables.bss_mut().memory_frames = 1;
    tables.end_frame_read_at = Instant::now().checked_sub(END_FRAME_PAUSE).expect("it is past");
    assert!(!is_read(&mut tables), "an entry behind the end of memory was followed");
    assert!(is_read(&mut tables));
}

#[test]
fn an_address_space_is_held_while_a_mapping_in_it_is_looked_up() {
    if !nix::unistd::geteuid().is_root() {
        return this_test!().skip("it needs root");
    }
    let mut tables = PageTableReader::load_bpf_programs().expect("the BPF programs load");
    let own = ProcessHandle::open(std::process::id()).expect("this process exists").id;
    let target = tables.bind_to_process(own.pid).expect("the programs bind");
    let mut calls = CallHelperPool::with_time_limit(Duration::from_secs(60));
    let page = touched_page();
    let found = tables.vma_at_address(&target, own, page.address(), &mut calls);
    let found = found.expect("the mapping can be looked up").expect("it is mapped");
    assert!(found.range.contains(&page.address()));
    // The helper opened this before, and closes it at its next call.
    let helper = calls.idle_helper_pid().expect("the helper is kept");
    let files = std::fs::read_dir(format!("/proc/{helper}/fd")).expect("the helper runs");
    let mut files = files.flatten().filter_map(|file| std::fs::read_link(file.path()).ok());
    let pagemap = format!("/proc/{}/pagemap", own.pid);
    assert!(files.any(|file| file.as_os_str() == pagemap.as_str()));
}

#[test]
fn access_bits_of_an_ended_process_are_not_those_of_the_process_before() {
    if !nix::unistd::geteuid().is_root() {
        return this_test!().skip("it needs root");
    }
    let mut tables = PageTableReader::load_bpf_programs().expect("the BPF programs load");
    let own = tables.bind_to_process(std::process::id()).expect("the programs bind");
    let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("it starts");
    let ended = tables.bind_to_process(child.id()).expect("the programs bind");
    child.kill().expect("the child can be killed");
    child.wait().expect("the child ends");
    let page = touched_page();
    let regions = [RegionAddr::containing(page.address())];
    let read = tables.read_access_bits(&own, &regions).expect("the region can be read");
    assert!(matches!(read[..], [Some(_)]));
    let refused = tables.read_access_bits(&ended, &regions);
    assert!(matches!(refused, Err(LinuxError::NoSuchProcess(_))), "{refused:?}");
}

#[test]
fn the_search_reads_only_the_direct_map() {
    if !nix::unistd::geteuid().is_root() {
        return this_test!().skip("it needs root");
    }
    let tables = PageTableReader::load_bpf_programs().expect("the BPF programs load");
    let frames = read_end_frame().expect("the end of memory is known");
    let start = tables.bss().direct_map;
    let end = start + frames * 4096;
    eprintln!("the direct map: {start:#x} to {end:#x}");
    // No candidate is above the right one.
    assert_eq!(tables.bss().calibration_highest_base, start);
    let highest = tables.bss().calibration_highest;
    assert!((start + 1..end).contains(&highest), "{highest:#x}");
}
