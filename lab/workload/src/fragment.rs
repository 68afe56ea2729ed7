//! Fragments the machine's free memory on purpose, and holds it so until it is stopped.
//!
//! The workload fills nearly all free memory with base pages. It then gives them back, except one
//! page in each of a number of physical blocks of a huge page's size. The free memory between these
//! pages is no huge page. The held memory is a thousandth of the memory that it fragments. The held
//! pages can be moved, so that compaction makes huge pages of the rest again, or they are pinned,
//! and it can't.
//!
//! All of it is given back when the process ends, however that ends. But single pages that are
//! freed go to lists of the processor first. There are hundreds of thousands of them on kernels
//! that tune these lists (6.7 and later, `nr_pcp_high` in `mm/page_alloc.c`). They join their
//! neighbours only when they leave these lists. All but some ten thousand were seen to do so within
//! half a minute. The others stay until another program allocates and frees memory, or until
//! `vm.percpu_pagelist_high_fraction` is set high for a moment.

mod held_pages;
mod pinned_pages;

use crate::prelude::*;
use hawkeye_linux::memory::fragmentation::FreeMemorySummary;
use held_pages::{FilledBlocks, HeldPages};
use pinned_pages::PinnedPages;
use std::fs;

#[derive(Clone, Debug, clap::Args)]
pub struct FragmentArgs {
    /// Share of free memory to leave in blocks smaller than a huge page (0-1).
    #[arg(long, default_value_t = 0.9, value_parser = parse_share)]
    pub fmfi: f64,
    /// Pin what stays, so that compaction can't move it.
    #[arg(long)]
    pub unmovable: bool,
    /// Free memory that is left alone, in MiB: it stays as fragmented as it is.
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u64).range(64..=1 << 20))]
    pub spare_mib: u64,
}

fn parse_share(text: &str) -> WorkloadResult<f64, String> {
    let value = text.parse::<f64>().ok();
    let value = value.filter(|value| (0.0..=1.0).contains(value));
    value.ok_or_else(|| "expected a share between 0 and 1".to_owned())
}

/// Bytes filled between two reads of the amount of free memory.
const PIECE: usize = 64 << 20;
pub(super) fn run_fragment(args: &FragmentArgs, console: &mut Console) -> WorkloadResult<()> {
    // Compaction would move the pages of files into the holes, and leave whole blocks behind.
    // Without the permission, the workload fragments less.
    let _ = fs::write("/proc/sys/vm/drop_caches", "1");
    let before = read_free_blocks()?;
    // If memory runs out after all, this process ends first. Where this is forbidden, the risk is
    // as before.
    let _ = fs::write("/proc/self/oom_score_adj", "1000");
    let (mut memory, filled) = fill_free_memory(args.spare_mib << 20, before)?;
    let mut holding = HeldPages::choose_from_blocks(FilledBlocks::read(&memory, filled)?);
    holding.keep_pages_for_unusable_free_index(read_free_blocks()?, filled, args.fmfi);
    holding.free_other_pages(&mut memory, filled)?;
    let _pins = if args.unmovable {
        Some(PinnedPages::pin_pages(&memory, &holding.held_pages())?)
    } else {
        None
    };
    report_ready(console, memory.start_address(), memory.bytes() as u64)?;
    console.emit_event(&WorkloadEvent::Fragmented {
        fmfi_before: before.unusable_free_index(),
        fmfi: read_free_blocks()?.unusable_free_index(),
        held_bytes: (holding.held_pages().len() * PAGE) as u64,
        pinned: args.unmovable,
    })?;
    serve_until_quit(console)
}

fn read_free_blocks() -> WorkloadResult<FreeMemorySummary> {
    FreeMemorySummary::read().map_err(WorkloadError::wrap_system_error("/proc/buddyinfo"))
}

/// Spares `spare` bytes. Returns the mapping and the number of bytes that are filled.
fn fill_free_memory(
    spare: u64,
    free: FreeMemorySummary,
) -> WorkloadResult<(WorkloadMemory, usize)> {
    let bytes = free.bytes.saturating_sub(spare) as usize / REGION * REGION;
    if bytes == 0 {
        return Err(WorkloadError::Usage(format!(
            "only {} MiB are free, but --spare-mib is {}: use a smaller value",
            free.bytes >> 20,
            spare >> 20
        )));
    }
    let mut memory = WorkloadMemory::map_without_huge_pages(bytes)?;
    let mut filled = 0;
    while filled < bytes && read_free_blocks()?.bytes > spare + PIECE as u64 {
        let end = (filled + PIECE).min(bytes);
        memory.populate_range(filled, end - filled)?;
        filled = end;
    }
    Ok((memory, filled))
}
