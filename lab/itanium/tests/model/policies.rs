//! Systems that the thesis classifies: small cases for the decisions of each. No calls, in whatever
//! order, may confuse any of them.

mod classes;
mod global;
mod promotion;
mod random;

use hawkeye_itanium::address::BasePageSize;
use hawkeye_itanium::kernel::policies::PageSizePolicy;
use hawkeye_itanium::kernel::{KernelSettings, MappingBacking};
use hawkeye_itanium::mmu::Pte;
use hawkeye_itanium::{ItaniumError, ItaniumMachine, MachineSettings, PageSizeAdvice};

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
pub const PAGE: u64 = 16 * KIB;
/// Region 2, aligned for any page size.
pub const AT: u64 = 2 << 61;

/// The first process.
pub const P: u32 = 0;

/// A machine of the thesis with this policy and one process.
pub fn machine(
    policy: PageSizePolicy,
    change: impl FnOnce(&mut MachineSettings),
) -> ItaniumMachine {
    let mut setup = setup(policy);
    change(&mut setup);
    let mut machine = ItaniumMachine::new(setup, 1).unwrap();
    assert_eq!(machine.spawn_process(), Ok(P));
    machine
}

pub fn setup(policy: PageSizePolicy) -> MachineSettings {
    MachineSettings {
        kernel: KernelSettings {
            policy,
            ..KernelSettings::with_all_page_sizes(BasePageSize::Kib16)
        },
        ..MachineSettings::default()
    }
}

fn advice(from_bytes: u64, page_bytes: u64) -> Option<PageSizeAdvice> {
    Some(PageSizeAdvice { from_bytes, page_bytes })
}

pub fn map(machine: &mut ItaniumMachine, at: Option<u64>, bytes: u64) -> u64 {
    machine.mmap(P, bytes, at, MappingBacking::Anonymous).unwrap()
}

pub fn write(machine: &mut ItaniumMachine, addresses: impl IntoIterator<Item = u64>) {
    for address in addresses {
        machine.access_memory(P, address, true, 1).unwrap();
    }
    machine.check_invariants().unwrap();
}

/// Maps memory at an address and writes to each of its pages.
fn map_and_write(machine: &mut ItaniumMachine, at: u64, bytes: u64) {
    map(machine, Some(at), bytes);
    write(machine, pages(at, bytes));
}

fn pages(from: u64, bytes: u64) -> impl Iterator<Item = u64> {
    (from..from + bytes).step_by(PAGE as usize)
}

fn entry(machine: &ItaniumMachine, address: u64) -> Pte {
    let page = BasePageSize::Kib16.page_of_address(address);
    machine.process_space(P).unwrap().table.entry_or_empty(page)
}

/// The order of the page at an address; `None` without memory.
fn order(machine: &ItaniumMachine, address: u64) -> Option<u8> {
    let entry = entry(machine, address);
    entry.present.then_some(entry.order)
}

fn frame(machine: &ItaniumMachine, address: u64) -> u32 {
    entry(machine, address).frame
}

pub fn refused(setup: MachineSettings) -> bool {
    matches!(ItaniumMachine::new(setup, 1), Err(ItaniumError::Setup { .. }))
}
