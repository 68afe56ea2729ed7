//! Systems that the thesis classifies: small cases for the decisions of each. No calls, in whatever
//! order, may confuse any of them.

mod classes;
mod global;
mod growing;
mod promoting;
mod random;
mod reserving;
mod sub_blocks;

use hawkeye_itanium::address::BasePage;
use hawkeye_itanium::kernel::policies::Policy;
use hawkeye_itanium::kernel::{Backing, KernelSettings};
use hawkeye_itanium::{Advice, ItaniumError, Machine, Setup};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const PAGE: u64 = 16 * KIB;
/// Region 2, aligned for any page size.
const AT: u64 = 2 << 61;

/// A machine of the thesis with this policy and one process.
fn machine(policy: Policy, change: impl FnOnce(&mut Setup)) -> (Machine, u32) {
    let mut setup = setup(policy);
    change(&mut setup);
    let mut machine = Machine::new(setup, 1).unwrap();
    let process = machine.spawn().unwrap();
    (machine, process)
}

fn setup(policy: Policy) -> Setup {
    Setup {
        kernel: KernelSettings {
            policy,
            ..KernelSettings::large(BasePage::Kib16)
        },
        ..Setup::default()
    }
}

fn advice(from_bytes: u64, page_bytes: u64) -> Option<Advice> {
    Some(Advice {
        from_bytes,
        page_bytes,
    })
}

fn map(machine: &mut Machine, process: u32, at: Option<u64>, bytes: u64) -> u64 {
    machine
        .mmap(process, bytes, at, Backing::Anonymous)
        .unwrap()
}

fn write(machine: &mut Machine, process: u32, addresses: impl Iterator<Item = u64>) {
    for address in addresses {
        machine.access(process, address, true, 1).unwrap();
    }
    machine.check().unwrap();
}

/// Every base page of a range.
fn pages(from: u64, bytes: u64) -> impl Iterator<Item = u64> {
    (from..from + bytes).step_by(PAGE as usize)
}

/// The order of the page at an address; `None` without memory.
fn order(machine: &Machine, process: u32, address: u64) -> Option<u8> {
    let table = &machine.space(process).unwrap().table;
    let entry = table.get(BasePage::Kib16.page_of(address));
    entry.filter(|entry| entry.present).map(|entry| entry.order)
}

fn frame(machine: &Machine, process: u32, address: u64) -> u32 {
    let table = &machine.space(process).unwrap().table;
    table.get(BasePage::Kib16.page_of(address)).unwrap().frame
}

fn refused(setup: Setup) -> bool {
    matches!(Machine::new(setup, 1), Err(ItaniumError::Setup { .. }))
}
