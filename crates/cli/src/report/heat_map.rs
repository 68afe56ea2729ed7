//! Coverage of a process over addresses and time, on a grid.

use super::recording_extent::ProcessExtent;
use hawkeye_policy::PAGES_PER_REGION;
use hawkeye_recording::CoverageRow;
use serde::Serialize;
use std::time::Duration;

/// Columns of a map at most; each has one or more sampling windows.
pub const MOST_COLUMNS: usize = 240;
/// Rows at most; each has one or more regions.
pub const MOST_ROWS: usize = 160;

/// Sums over some regions in some windows.
#[derive(Clone, Copy, Debug, Default)]
struct HeatCell {
    samples: u32,
    accessed: u64,
    huge: u32,
    walks_per_s: u64,
}

#[derive(Debug)]
pub struct HeatMapBuilder {
    blocks: Vec<u64>,
    block_bytes: u64,
    windows: u32,
    window: u32,
    rows: usize,
    cells: Vec<HeatCell>,
    columns: Vec<HeatColumn>,
    last: Option<Duration>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct HeatColumn {
    /// Start of the first window, or end of the previous column.
    pub from_s: f64,
    pub to_s: f64,
    pub windows: u32,
}

/// A map with time as columns and addresses as rows, lowest first. Cells are listed by column, and
/// by row within a column; `null` where nothing was mapped.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HeatMap {
    pub columns: Vec<HeatColumn>,
    /// The first address of each row.
    pub addresses: Vec<u64>,
    /// Average bytes per row, counting memory that was used at any time.
    pub row_bytes: u64,
    /// Share of base pages accessed in a window, among the regions that were mapped, in per cent.
    pub coverage_percent: Vec<Option<u8>>,
    /// Share of regions under one huge page, among those that were mapped, in per cent.
    pub huge_percent: Vec<Option<u8>>,
    /// Page walks of base pages per second, summed over the row: a promoted part adds none.
    pub walks_per_s: Vec<u64>,
}

impl HeatMapBuilder {
    pub fn new(seen: &ProcessExtent) -> Self {
        let (blocks, block_bytes) = seen.addresses.block_starts_and_bytes();
        let rows = blocks.len().clamp(1, MOST_ROWS);
        let columns = (seen.windows as usize).clamp(1, MOST_COLUMNS);
        Self {
            blocks,
            block_bytes,
            windows: seen.windows.max(1),
            window: 0,
            rows,
            cells: vec![HeatCell::default(); rows * columns],
            columns: vec![HeatColumn::default(); columns],
            last: None,
        }
    }

    fn current_column(&self) -> usize {
        let index = self.window.saturating_sub(1) as usize;
        (index * self.columns.len() / self.windows as usize).min(self.columns.len() - 1)
    }

    pub fn row_of_address(&self, address: u64) -> Option<usize> {
        let block = self.blocks.partition_point(|start| *start <= address).checked_sub(1)?;
        let held = address < self.blocks.get(block)? + self.block_bytes;
        held.then(|| block * self.rows / self.blocks.len())
    }

    pub fn add_coverage_row(&mut self, row: &CoverageRow) {
        if self.last != Some(row.at) {
            let began = self.last.unwrap_or(row.at.saturating_sub(row.window));
            self.last = Some(row.at);
            self.window += 1;
            let place = self.current_column();
            if let Some(column) = self.columns.get_mut(place) {
                if column.windows == 0 {
                    column.from_s = began.as_secs_f64();
                }
                column.windows += 1;
                column.to_s = row.at.as_secs_f64();
            }
        }
        let cell = self.row_of_address(row.region.region.start());
        let cell = cell.map(|place| self.current_column() * self.rows + place);
        if let Some(cell) = cell.and_then(|cell| self.cells.get_mut(cell)) {
            cell.samples += 1;
            cell.accessed += u64::from(row.region.accessed);
            cell.huge += u32::from(row.region.is_huge());
            // The figure of a huge page is what its accesses cost before its promotion.
            if !row.region.is_huge() {
                cell.walks_per_s += u64::from(row.region.walks_per_s);
            }
        }
    }

    pub fn finish(self) -> HeatMap {
        let percent = |part: u64, of: u64| (part * 100).checked_div(of).map(|p| p.min(100) as u8);
        let each = || self.cells.iter();
        let pages = |cell: &HeatCell| u64::from(cell.samples) * u64::from(PAGES_PER_REGION);
        let samples = |cell: &HeatCell| u64::from(cell.samples);
        let columns = self.columns.iter();
        let windows = columns.flat_map(|c| std::iter::repeat_n(u64::from(c.windows), self.rows));
        let mean = |(cell, windows): (&HeatCell, u64)| cell.walks_per_s / windows.max(1);
        // The inverse of `row_of_address`.
        let first_blocks = (0..self.rows).map(|row| (row * self.blocks.len()).div_ceil(self.rows));
        HeatMap {
            coverage_percent: each().map(|cell| percent(cell.accessed, pages(cell))).collect(),
            huge_percent: each().map(|cell| percent(cell.huge.into(), samples(cell))).collect(),
            walks_per_s: each().zip(windows).map(mean).collect(),
            addresses: first_blocks.filter_map(|block| self.blocks.get(block).copied()).collect(),
            row_bytes: self.blocks.len() as u64 * self.block_bytes / self.rows as u64,
            columns: self.columns,
        }
    }
}

impl HeatMap {
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }
}
