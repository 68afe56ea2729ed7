//! Random calls to a machine.

use hawkeye_itanium::kernel::MappingBacking;
use hawkeye_itanium::mmu::{LargePageHashFill, WalkerMode};
use hawkeye_itanium::{ItaniumMachine, MachineSettings};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

/// A call of a process. Places are numbers that each test maps to pages.
#[derive(Clone, Debug)]
pub enum Call {
    Spawn,
    Map(u64, Option<u64>),
    Unmap(u64, u64),
    Protect(u64, u64, bool),
    Remap(u64, u64, u64),
    Populate(u64, u64),
    Fork,
    Exit,
    /// Neighbouring pages, one after the other, and the number of references to each.
    Access(u64, u64, bool, u8),
}

/// A process and its call.
pub type Step = (u32, Call);

/// Places in one of eight ranges under test.
pub const WINDOW: u64 = 96;

pub fn steps() -> impl Strategy<Value = Vec<Step>> {
    let process = prop_oneof![4 => Just(0u32), 1 => 1u32..4];
    let place = || 0..8 * WINDOW;
    let pages = || prop_oneof![1u64..6, 1u64..70];
    let few = || 1u64..12;
    let call = prop_oneof![
        1 => Just(Call::Spawn),
        6 => (pages(), proptest::option::of(place())).prop_map(|(n, at)| Call::Map(n, at)),
        2 => (place(), pages()).prop_map(|(at, n)| Call::Unmap(at, n)),
        3 => (place(), few(), any::<bool>()).prop_map(|(at, n, w)| Call::Protect(at, n, w)),
        3 => (place(), few(), pages()).prop_map(|(at, n, m)| Call::Remap(at, n, m)),
        1 => (place(), pages()).prop_map(|(at, n)| Call::Populate(at, n)),
        1 => Just(Call::Fork),
        1 => Just(Call::Exit),
        24 => (place(), 1u64..20, any::<bool>(), 1u8..3)
            .prop_map(|(at, n, w, times)| Call::Access(at, n, w, times)),
    ];
    // Mappings to begin with, in two ranges.
    let calls = proptest::collection::vec((process, call), 1..120);
    (pages(), pages(), calls).prop_map(|(one, other, calls)| {
        let first = [Call::Map(one, Some(3)), Call::Map(other, Some(WINDOW + 9))];
        let first = first.into_iter().map(|call| (0, call));
        first.chain(calls).collect()
    })
}

pub fn walkers() -> impl Strategy<Value = WalkerMode> {
    use LargePageHashFill::{All, BaseOnly, First, Missed};
    let fill = proptest::sample::select(vec![First, Missed, All, BaseOnly]);
    let long = (fill, 5u32..12).prop_map(|(fill, bits)| {
        let entries = 1 << bits;
        WalkerMode::LongFormat { entries, fill }
    });
    prop_oneof![1 => Just(WalkerMode::None), 3 => Just(WalkerMode::ShortFormat), 3 => long]
}

/// Makes a call. Returns the page or the process in its result, 0 without one; `None` if it failed.
pub fn make(
    machine: &mut ItaniumMachine,
    (process, call): &Step,
    page: impl Fn(u64) -> u64,
) -> Option<u64> {
    let base = machine.settings().kernel.base;
    let process = *process;
    let address = |place: u64| base.address_of_page(page(place));
    let bytes = |pages: u64| base.address_of_page(pages);
    let zero = |()| 0;
    let done = match *call {
        Call::Spawn => machine.spawn_process().map(u64::from),
        Call::Map(pages, at) => machine
            .mmap(process, bytes(pages), at.map(address), MappingBacking::Anonymous)
            .map(|address| base.page_of_address(address)),
        Call::Unmap(at, pages) => machine.munmap(process, address(at), bytes(pages)).map(zero),
        Call::Protect(at, pages, write) => {
            machine.mprotect(process, address(at), bytes(pages), write).map(zero)
        }
        Call::Remap(at, old, new) => machine
            .mremap(process, address(at), bytes(old), bytes(new))
            .map(|address| base.page_of_address(address)),
        Call::Populate(at, pages) => {
            machine.populate_range(process, address(at), bytes(pages)).map(zero)
        }
        Call::Fork => machine.fork(process).map(u64::from),
        Call::Exit => machine.exit(process).map(zero),
        Call::Access(at, pages, write, times) => {
            let places = (0..times).flat_map(|_| at..at + pages);
            let one = |place| machine.access_memory(process, address(place), write, 1);
            places.map(one).fold(Ok(()), Result::and).map(zero)
        }
    };
    done.ok()
}

/// The sums of the events of `runs` runs with random setups and calls, the same each time.
pub fn events<const N: usize>(
    runs: u32,
    setups: &impl Strategy<Value = MachineSettings>,
    run: impl Fn(MachineSettings, Vec<Step>) -> [u64; N],
) -> [u64; N] {
    let mut runner = TestRunner::deterministic();
    let mut sums = [0; N];
    for _ in 0..runs {
        let setup = setups.new_tree(&mut runner).unwrap().current();
        let steps = steps().new_tree(&mut runner).unwrap().current();
        for (sum, events) in sums.iter_mut().zip(run(setup, steps)) {
            *sum += events;
        }
    }
    sums
}
