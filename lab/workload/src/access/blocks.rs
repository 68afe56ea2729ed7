//! Many allocations of one size, as an allocator's large ones. Each is mapped by itself and used in
//! part, at random.

use super::ReadWorkloadArgs;
use super::read_loop_control::ReadLoopControl;
use crate::prelude::*;
use crate::rate_schedule::RateSchedule;

#[derive(Clone, Debug, clap::Args)]
pub struct BlocksArgs {
    #[command(flatten)]
    pub(super) access: ReadWorkloadArgs,
    /// Size of a block in KiB, a multiple of 4: 132 is what glibc's malloc maps for 128 KiB.
    #[arg(long, default_value_t = 132, value_parser = clap::value_parser!(u64).range(4..=1 << 20))]
    pub block_kib: u64,
    /// How much of each is used, from its begin, in KiB, a multiple of 4.
    #[arg(long, default_value_t = 132, value_parser = clap::value_parser!(u64).range(4..=1 << 20))]
    pub used_kib: u64,
    /// End each block with a page that can't be accessed, so that no two are one mapping.
    #[arg(long)]
    pub guards: bool,
    /// Map all of them before the first is filled.
    #[arg(long)]
    pub fill_late: bool,
    /// Unmap N per cent of them at random once all are filled.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=99))]
    pub free_percent: u8,
    /// Replace N of them at random by new ones each second; fewer where the machine is too slow.
    #[arg(long, default_value_t = 0.0, value_parser = parse_rate)]
    pub renew_per_s: f64,
}

fn parse_rate(text: &str) -> WorkloadResult<f64, String> {
    let value = text.parse::<f64>().ok();
    let value = value.filter(|value| (0.0..=1e9).contains(value));
    value.ok_or_else(|| "expected a rate between 0 and 1e9 per second".to_owned())
}

struct BlockMemory<'a> {
    args: &'a BlocksArgs,
    blocks: Vec<WorkloadMemory>,
    used_bytes: usize,
    rng: WorkloadRng,
}

impl<'a> BlockMemory<'a> {
    /// Maps and fills the blocks. Returns the total time of filling.
    fn new(args: &'a BlocksArgs) -> WorkloadResult<(Self, Duration)> {
        let whole = |kib: u64| (kib << 10) as usize;
        let (block, used_bytes) = (whole(args.block_kib), whole(args.used_kib));
        if block % PAGE != 0 || used_bytes % PAGE != 0 || used_bytes > block {
            let message = "--block-kib and --used-kib must be multiples of 4, with --used-kib at most --block-kib";
            return Err(WorkloadError::Usage(message.to_owned()));
        }
        let count = (args.access.mib << 20) as usize / block;
        let mut this = Self {
            args,
            blocks: Vec::with_capacity(count.max(1)),
            used_bytes,
            rng: WorkloadRng::new(args.access.seed, 0),
        };
        let mut filling = Duration::ZERO;
        for _ in 0..count.max(1) {
            let mut mapping = this.map_block()?;
            if !args.fill_late {
                filling += fill_block(&mut mapping, used_bytes);
            }
            this.blocks.push(mapping);
        }
        if args.fill_late {
            let blocks = this.blocks.iter_mut();
            filling += blocks.map(|block| fill_block(block, used_bytes)).sum();
        }
        let keep = this.blocks.len() * usize::from(100 - args.free_percent) / 100;
        while this.blocks.len() > keep.max(1) {
            let gone = this.rng.draw_below(this.blocks.len());
            this.blocks.swap_remove(gone);
        }
        Ok((this, filling))
    }

    fn map_block(&self) -> WorkloadResult<WorkloadMemory> {
        let block = (self.args.block_kib << 10) as usize;
        let guard = if self.args.guards { PAGE } else { 0 };
        let mut mapping = WorkloadMemory::map_unaligned(block + guard)?;
        if guard > 0 {
            mapping.protect_range(block, guard, MemoryProtection::Nothing)?;
        }
        if self.args.access.pages == RequestedPageKind::Huge {
            mapping.advise_huge(block)?;
        }
        Ok(mapping)
    }

    fn read_batch(&mut self, count: usize) {
        let mut rng = self.rng.clone();
        let words = self.used_bytes / 8;
        for _ in 0..count {
            let block = rng.draw_below(self.blocks.len());
            let word = rng.draw_below(words);
            if let Some(block) = self.blocks.get(block) {
                block.read_word(word * 8);
            }
        }
        self.rng = rng;
    }

    fn reallocate_block(&mut self) -> WorkloadResult<()> {
        let index = self.rng.draw_below(self.blocks.len());
        drop(self.blocks.swap_remove(index));
        let mut mapping = self.map_block()?;
        fill_block(&mut mapping, self.used_bytes);
        self.blocks.push(mapping);
        Ok(())
    }

    fn verify_blocks(&self) -> WorkloadResult<()> {
        for block in &self.blocks {
            for offset in (0..self.used_bytes).step_by(PAGE) {
                let (expected, found) = (expected_word(block, offset), block.read_word(offset));
                if found != expected {
                    let wrong = block.wrong_word_report(offset, expected, found, "reading");
                    return Err(WorkloadError::Wrong(wrong));
                }
            }
        }
        Ok(())
    }
}

fn fill_block(block: &mut WorkloadMemory, used_bytes: usize) -> Duration {
    let begun = Instant::now();
    for offset in (0..used_bytes).step_by(PAGE) {
        block.write_word(offset, expected_word(block, offset));
    }
    begun.elapsed()
}

fn expected_word(block: &WorkloadMemory, offset: usize) -> u64 {
    mix_bits(block.start_address() + offset as u64) | 1
}

/// Reports the time of filling before it is ready.
pub(crate) fn run_block_reads(args: &BlocksArgs, console: &mut Console) -> WorkloadResult<()> {
    let (mut blocks, filling) = BlockMemory::new(args)?;
    console.emit_event(&WorkloadEvent::Touched {
        elapsed_s: filling.as_secs_f64(),
        mean_ns: 0.0,
        p99_ns: 0.0,
        longest_ns: 0,
    })?;
    let used_bytes = (blocks.blocks.len() * blocks.used_bytes) as u64;
    console.emit_event(&WorkloadEvent::Ready(ready_report(0, used_bytes, 0)))?;
    let mut pace = ReadLoopControl::new(&args.access);
    let mut renewals = RateSchedule::new(args.renew_per_s);
    while let Some(count) = pace.serve_and_next_batch_size(console)? {
        blocks.read_batch(count);
        renewals.take_due_steps(|| blocks.reallocate_block())?;
    }
    blocks.verify_blocks()
}
