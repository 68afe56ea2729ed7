//! The two programs of the demo, each a process of its own. One reads memory at random; the huge
//! pages of the other are mostly zeros. Words on standard input control them, and they answer with
//! lines on standard output.

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use hawkeye_linux::anonymous_mapping::AnonymousMapping;
use hawkeye_linux::sample::random::{map_random_below, next_random};
use hawkeye_policy::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES};
use nix::sys::mman::MmapAdvise;
use std::io::{BufRead, Write};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Instant;

const REGION: usize = HUGE_PAGE_BYTES as usize;
const PAGE: usize = BASE_PAGE_BYTES as usize;
const PAGE_WORDS: usize = PAGE / 8;
/// Reads between two checks for a command.
const BATCH: usize = 1 << 16;

/// One of the demo's own programs.
#[derive(Subcommand)]
pub enum DemoProgram {
    /// Read memory at random from `go` to `stop`, mostly at the highest addresses. Then print the
    /// number of reads and the seconds.
    Reader {
        #[arg(long)]
        mib: usize,
        #[arg(long)]
        hot_mib: usize,
        #[arg(long)]
        hot_percent: u64,
        #[arg(long)]
        huge: bool,
    },
    /// Write to some base pages of each huge page. At `verify`, print how many bytes differ from
    /// what was written.
    Bloated {
        #[arg(long)]
        mib: usize,
        #[arg(long)]
        used_pages: usize,
    },
}

impl DemoProgram {
    /// Runs the program until its standard input ends.
    pub fn execute(self) -> Result<()> {
        match self {
            Self::Reader { mib, hot_mib, hot_percent, huge } => {
                run_reader_program(DemoMemory::new(mib, huge)?, hot_mib, hot_percent)
            }
            Self::Bloated { mib, used_pages } => {
                run_bloated_program(DemoMemory::new(mib, true)?, used_pages)
            }
        }
    }
}

fn run_reader_program(memory: DemoMemory, hot_mib: usize, hot_percent: u64) -> Result<()> {
    memory.write_pages_and_print_address(|_| true)?;
    let memory = memory.words();
    let hot = ((hot_mib << 20) / 8).min(memory.len());
    let cold = memory.len() - hot;
    let threshold = match (hot, cold) {
        (0, _) => 0,
        (_, 0) => 1 << 32,
        _ => (hot_percent.min(100) << 32) / 100,
    };
    let told = read_commands_in_thread();
    let mut random = 1;
    loop {
        match told.recv().as_deref() {
            Ok("go") => {}
            Ok(word) => bail!("unknown command {word:?}: expected go"),
            Err(_) => return Ok(()),
        }
        let (begun, mut reads) = (Instant::now(), 0u64);
        loop {
            for _ in 0..BATCH {
                // The low bits choose the part, the high ones the word.
                random = next_random(random);
                let in_hot_part = random & 0xffff_ffff < threshold;
                let (begin, words) = if in_hot_part { (cold, hot) } else { (0, cold) };
                let word = &memory[begin + map_random_below(random, words as u64) as usize];
                // Makes the next number depend on what was read, as when pointers are followed.
                // Otherwise the processor would overlap page walks of several reads.
                random ^= word.load(Ordering::Relaxed);
            }
            reads += BATCH as u64;
            match told.try_recv() {
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return Ok(()),
                Ok(_) => break,
            }
        }
        print_line(format_args!("{reads} {}", begun.elapsed().as_secs_f64()))?;
    }
}

fn run_bloated_program(memory: DemoMemory, used_pages: usize) -> Result<()> {
    let is_used = |page: usize| page % (REGION / PAGE) < used_pages;
    memory.write_pages_and_print_address(is_used)?;
    let told = read_commands_in_thread();
    while let Ok(word) = told.recv() {
        if word != "verify" {
            bail!("unknown command {word:?}: expected verify");
        }
        let mut wrong = 0;
        for (n, word) in memory.words().iter().enumerate() {
            let page = n / PAGE_WORDS;
            let written = n % PAGE_WORDS == 0 && is_used(page);
            let right = if written { page as u64 + 1 } else { 0 };
            let different = (word.load(Ordering::Relaxed) ^ right).to_ne_bytes();
            wrong += different.iter().filter(|byte| **byte != 0).count();
        }
        print_line(format_args!("{wrong}"))?;
    }
    Ok(())
}

fn print_line(line: std::fmt::Arguments<'_>) -> Result<()> {
    writeln!(std::io::stdout(), "{line}").context("can't write to standard output")
}

/// The commands, line by line, until standard input ends.
fn read_commands_in_thread() -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Memory of whole regions.
struct DemoMemory {
    _mapped: AnonymousMapping,
    start: NonNull<AtomicU64>,
    words: usize,
}

impl DemoMemory {
    fn new(mib: usize, huge: bool) -> Result<Self> {
        let bytes = (mib << 20).next_multiple_of(REGION).max(REGION);
        let mapped = AnonymousMapping::map(bytes + REGION);
        let mapped = mapped.with_context(|| format!("can't map {mib} MiB"))?;
        let head = mapped.start().align_offset(REGION);
        // SAFETY: the mapping is at least `bytes` longer than `head`.
        let start = unsafe { mapped.start().add(head) };
        if huge {
            mapped.advise(MmapAdvise::MADV_HUGEPAGE).context("can't request huge pages")?;
        }
        Ok(Self { _mapped: mapped, start: start.cast(), words: bytes / 8 })
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the words are aligned, mapped and zeroed as long as this, and nothing else refers
        // to them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }

    /// Writes its number, from 1, to each page that `is_used` selects. Then prints the address.
    fn write_pages_and_print_address(&self, is_used: impl Fn(usize) -> bool) -> Result<()> {
        let first_words = self.words().iter().step_by(PAGE_WORDS).enumerate();
        for (page, word) in first_words.filter(|(page, _)| is_used(*page)) {
            word.store(page as u64 + 1, Ordering::Relaxed);
        }
        print_line(format_args!("{:#x}", self.start.as_ptr() as usize))
    }
}
