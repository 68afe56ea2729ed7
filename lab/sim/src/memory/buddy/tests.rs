use super::*;
use proptest::prelude::*;

const OWNER: FrameOwner = FrameOwner::Kernel { frame: 0 };

fn memory(blocks: u64) -> PhysicalMemory {
    PhysicalMemory::new(blocks * HUGE_PAGE_BYTES)
}

fn one(first: u32, order: u8) -> FrameRun {
    FrameRun::new(first, 1 << order)
}

#[test]
fn all_memory_is_free_in_the_largest_blocks() {
    let mut memory = memory(7);
    assert_eq!(memory.check(), Ok(()));
    assert_eq!(memory.count_free_frames(), 7 * 512);
    assert_eq!(memory.count_free_blocks(FrameContent::Dirty, 10), 3);
    assert_eq!(memory.count_free_blocks(FrameContent::Dirty, 9), 1);
    assert_eq!(memory.count_free_huge_frames(FrameContent::Dirty), 7);
    assert_eq!(memory.unusable_free_index(), 0.0);
    // One frame breaks up the odd pageblock, which then has a block of each of its orders.
    let got = memory.allocate(0, FrameContent::Dirty, OWNER);
    assert_eq!(got.map(|a| a.frames), Some(one(6 * 512, 0)));
    for order in 0..9 {
        assert_eq!(memory.count_free_blocks(FrameContent::Dirty, order), 1);
    }
    assert_eq!(memory.unusable_free_index(), 511.0 / 3583.0);
    memory.free(one(6 * 512, 0));
    assert_eq!(memory.check(), Ok(()));
    assert_eq!(memory.count_free_huge_frames(FrameContent::Dirty), 7);
}

#[test]
fn zeroed_memory_is_preferred_where_it_is_asked_for() {
    let mut memory = memory(8);
    let zeroed = memory.zero_free_frames(2 * 512 + 10);
    assert_eq!((zeroed.frames, zeroed.all_done), (1034, false));
    assert_eq!(memory.check(), Ok(()));
    assert_eq!(memory.count_free_huge_frames(FrameContent::Zeroed), 2);
    let prefer = |memory: &mut PhysicalMemory, content| {
        memory.allocate(9, content, OWNER).map(|got| got.dirty)
    };
    assert_eq!(prefer(&mut memory, FrameContent::Dirty), Some(502));
    assert_eq!(prefer(&mut memory, FrameContent::Zeroed), Some(0));
    assert_eq!(prefer(&mut memory, FrameContent::Zeroed), Some(0));
    assert_eq!(prefer(&mut memory, FrameContent::Zeroed), Some(512));
    assert_eq!(memory.count_zeroed_frames(), 0);
    assert_eq!(memory.check(), Ok(()));
}

#[test]
fn freed_memory_is_dirty_and_a_merge_forgets_nothing() {
    let mut memory = memory(2);
    assert!(memory.zero_free_frames(u64::MAX).all_done);
    let got = memory.allocate(0, FrameContent::Zeroed, OWNER).expect("a frame");
    assert_eq!(memory.count_free_blocks(FrameContent::Zeroed, 9), 1);
    memory.free(got.frames);
    assert_eq!(memory.count_zeroed_frames(), 1023);
    assert_eq!(memory.count_free_blocks(FrameContent::Dirty, 10), 1);
    assert_eq!(memory.zero_free_frames(u64::MAX).frames, 1);
    assert_eq!(memory.count_free_blocks(FrameContent::Zeroed, 10), 1);
    assert_eq!(memory.check(), Ok(()));
}

#[test]
fn one_tebibyte_is_cheap_and_a_very_small_machine_works() {
    let mut large = memory(524_288);
    assert_eq!(large.count_free_blocks(FrameContent::Dirty, 10), 262_144);
    assert!(large.allocate(0, FrameContent::Zeroed, OWNER).is_some());
    let mut small = PhysicalMemory::new(0);
    assert!(small.allocate(10, FrameContent::Dirty, OWNER).is_none());
    let run = small.allocate_frame_run(512, FrameContent::Dirty, OWNER);
    assert_eq!(run.map(|a| a.frames.count), Some(512));
    assert!(small.allocate_frame_run(1, FrameContent::Dirty, OWNER).is_none());
    assert_eq!(small.check(), Ok(()));
}

#[derive(Clone, Debug)]
enum BuddyStep {
    Allocate(u8, bool),
    Run(u16, bool),
    At(u32),
    Free(usize),
    FreeSome(usize, u16),
    Zero(u16),
}

fn step() -> impl Strategy<Value = BuddyStep> {
    prop_oneof![
        (0u8..11, any::<bool>()).prop_map(|(o, z)| BuddyStep::Allocate(o, z)),
        (1u16..=512, any::<bool>()).prop_map(|(n, z)| BuddyStep::Run(n, z)),
        (0u32..16 * 512).prop_map(BuddyStep::At),
        any::<usize>().prop_map(BuddyStep::Free),
        (any::<usize>(), any::<u16>()).prop_map(|(i, n)| BuddyStep::FreeSome(i, n)),
        (0u16..2000).prop_map(BuddyStep::Zero),
    ]
}

struct MemoryPair {
    memory: PhysicalMemory,
    single: PhysicalMemory,
    held: Vec<FrameRun>,
}

impl MemoryPair {
    fn step(&mut self, step: &BuddyStep) -> Result<(), TestCaseError> {
        match *step {
            BuddyStep::Allocate(order, zeroed) => {
                let prefer = FrameContent::zeroed_if(zeroed);
                let got = self.memory.allocate(order, prefer, OWNER);
                let other = self.single.allocate(order, prefer, OWNER);
                prop_assert_eq!(got, other);
                if let Some(got) = got {
                    prop_assert_eq!(got.frames.first % (1 << order), 0);
                    self.held.push(got.frames);
                }
            }
            BuddyStep::Run(most, zeroed) => {
                let prefer = FrameContent::zeroed_if(zeroed);
                let mut left = most;
                while left > 0 {
                    let Some(run) = self.memory.allocate_frame_run(left, prefer, OWNER) else {
                        let other = self.single.allocate(0, prefer, OWNER);
                        prop_assert!(other.is_none());
                        break;
                    };
                    for frame in 0..run.frames.count {
                        let one = self.single.allocate(0, prefer, OWNER);
                        let one = one.expect("the other memory has a frame");
                        prop_assert_eq!(one.frames.first, run.frames.first + frame);
                        prop_assert_eq!(one.dirty > 0, run.dirty > 0);
                    }
                    prop_assert!(run.dirty == 0 || run.dirty == run.frames.count);
                    left -= run.frames.count as u16;
                    self.held.push(run.frames);
                }
            }
            BuddyStep::At(frame) => {
                let frame = frame % self.memory.count_all_frames() as u32;
                let got = self.memory.allocate_at(frame, 1, OWNER);
                self.single.allocate_at(frame, 1, OWNER);
                let held =
                    self.held.iter().any(|run| (run.first..run.first + run.count).contains(&frame));
                prop_assert_eq!(got.is_none(), held);
                self.held.extend(got.map(|got| got.frames));
            }
            BuddyStep::Free(index) if !self.held.is_empty() => {
                let run = self.held.swap_remove(index % self.held.len());
                self.free(run);
            }
            BuddyStep::FreeSome(index, count) if !self.held.is_empty() => {
                let index = index % self.held.len();
                let run = self.held[index];
                let count = 1 + u32::from(count) % run.count;
                self.held[index].first += count;
                self.held[index].count -= count;
                self.held.retain(|run| run.count > 0);
                self.free(FrameRun { count, ..run });
            }
            BuddyStep::Zero(most) => {
                let done = self.memory.zero_free_frames(most.into());
                prop_assert_eq!(done, self.single.zero_free_frames(most.into()));
            }
            BuddyStep::Free(_) | BuddyStep::FreeSome(..) => {}
        }
        Ok(())
    }

    fn free(&mut self, run: FrameRun) {
        self.memory.free(run);
        for first in run.first..run.first + run.count {
            self.single.free(FrameRun { first, count: 1 });
        }
    }
}

proptest! {
    #[test]
    fn frames_are_conserved_merged_and_listed(steps in prop::collection::vec(step(), 1..120), blocks in 1u64..16) {
        let mut twins = MemoryPair { memory: memory(blocks), single: memory(blocks), held: Vec::new() };
        for step in &steps {
            let before = twins.memory.count_zeroed_frames();
            twins.step(step)?;
            prop_assert_eq!(twins.memory.check(), Ok(()));
            let held: u64 = twins.held.iter().map(|run| u64::from(run.count)).sum();
            prop_assert_eq!(twins.memory.count_free_frames() + held, blocks * 512);
            // Only allocation and zeroing change the number of zeroed frames.
            if matches!(step, BuddyStep::Free(_) | BuddyStep::FreeSome(..)) {
                prop_assert_eq!(twins.memory.count_zeroed_frames(), before);
            }
        }
        // The same frames are free in the same blocks, whether by runs or one by one.
        for content in FrameContent::BOTH {
            for order in 0..ORDERS {
                let free = |memory: &PhysicalMemory| memory.count_free_blocks(content, order);
                prop_assert_eq!(free(&twins.memory), free(&twins.single));
            }
        }
        for run in std::mem::take(&mut twins.held) {
            twins.free(run);
        }
        let twin = &twins.memory;
        prop_assert_eq!(twin.check(), Ok(()));
        prop_assert_eq!(twin.count_free_huge_frames(FrameContent::Zeroed) + twin.count_free_huge_frames(FrameContent::Dirty), blocks);
    }
}
