//! The memory of a virtual machine becomes huge in QEMU, and in a process that serves a device of
//! the guest and maps the same memory (vhost-user).

use crate::common::{TestMachine, assert_unharmed, machine_with, or_skip, until, workload};
use crate::shared_files::{CAPABILITY, attach, huge_kib};
use hawkeye_live_test_support::virtual_machine::VirtualMachine;
use hawkeye_policy::{BASE_PAGE_BYTES, PAGES_PER_REGION};
use hawkeye_test_support::this_test;
use hawkeye_workload::page_of_shared_file;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read as _, Write as _};
use std::time::Duration;

const MIB: u64 = 64;
const PAGES: usize = ((MIB << 20) / BASE_PAGE_BYTES) as usize;
/// The kernel may refuse some regions for longer than a test waits (EAGAIN).
const MOST_KIB: u64 = (MIB << 10) / 10 * 9;
/// On a busy host each promotion takes over 30 ms. Then the manager pauses for up to 12.8 s.
const LONGEST: Duration = Duration::from_secs(MIB / 2 * 13);

#[test]
fn the_memory_of_a_guest_is_huge_in_qemu_and_in_the_process_of_a_device() {
    let test = this_test!();
    let machine = or_skip!(machine_with(test, CAPABILITY));
    let mut guest = or_skip!(VirtualMachine::start(test, MIB));
    let file = guest.memory_file().display().to_string();
    let (mut device, device_pid) =
        workload(&format!("shared-file --mib {MIB} --workers 0 --file {file}"));
    let pids = [guest.pid(), device_pid];
    assert_become_huge(&machine, "--policy hawkeye-g", &mut guest, &pids);
    assert_unharmed(&mut device);
    assert_guest_sees_pattern(&mut guest);
}

#[test]
fn the_memory_of_a_guest_that_only_qemu_maps_becomes_huge() {
    let test = this_test!();
    let machine = or_skip!(machine_with(test, CAPABILITY));
    let mut guest = or_skip!(VirtualMachine::start(test, MIB));
    // Without a mapping, so that no other process has one.
    let file = File::options().write(true).open(guest.memory_file());
    let mut file = BufWriter::new(file.expect("the file can be opened"));
    for page in 0..PAGES {
        file.write_all(&page_of_shared_file(page)).expect("the file can be written");
    }
    file.flush().expect("the file can be written");
    let pids = [guest.pid()];
    assert_become_huge(&machine, "--policy linux --rate 1000", &mut guest, &pids);
    assert_guest_sees_pattern(&mut guest);
    let file = File::open(guest.memory_file()).expect("the file can be opened");
    let mut file = BufReader::new(file);
    for page in 0..PAGES {
        let mut found = [0; BASE_PAGE_BYTES as usize];
        file.read_exact(&mut found).expect("the file is as long as the guest's memory");
        assert!(found[..] == page_of_shared_file(page), "page {page}");
    }
}

fn assert_become_huge(
    machine: &TestMachine,
    options: &str,
    guest: &mut VirtualMachine,
    pids: &[u32],
) {
    let manager = attach(machine, &format!("--shared-memory {options}"), pids);
    let became_huge = until(LONGEST, || {
        // A stopped guest does not map again what was promoted in the other process.
        guest.touch_memory();
        std::thread::sleep(Duration::from_millis(500));
        pids.iter().all(|pid| huge_kib(*pid) >= MOST_KIB)
    });
    let found: Vec<u64> = pids.iter().map(|pid| huge_kib(*pid)).collect();
    let summary = manager.interrupt();
    eprintln!("{found:?} of {} KiB are huge after {} promotions", MIB << 10, summary["promoted"]);
    assert!(became_huge, "{found:?} KiB: {summary}");
}

/// Reads another base page of each region through QEMU.
fn assert_guest_sees_pattern(guest: &mut VirtualMachine) {
    let per_region = usize::from(PAGES_PER_REGION);
    for region in 0..PAGES / per_region {
        let page = region * per_region + region * 37 % per_region;
        let found = guest.read_memory(page as u64 * BASE_PAGE_BYTES, BASE_PAGE_BYTES);
        assert!(found == page_of_shared_file(page), "page {page} as the guest sees it");
    }
}
