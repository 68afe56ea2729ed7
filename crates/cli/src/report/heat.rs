//! A process's coverage over addresses and time, on a grid.

use super::extent::Addresses;
use hawkeye_policy::PAGES_PER_REGION;
use hawkeye_recording::CoverageRow;
use serde::Serialize;
use std::time::Duration;

/// Columns of a map at the most, each one sampling window or more.
pub const MOST_COLUMNS: usize = 240;
/// Rows at the most, each one region or more.
pub const MOST_ROWS: usize = 160;

/// What was seen of some regions in some windows.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    samples: u32,
    accessed: u64,
    huge: u32,
    walks_per_s: u64,
}

/// The grid while it is filled.
#[derive(Debug)]
pub struct Filling {
    blocks: Vec<u64>,
    block_bytes: u64,
    windows: u32,
    window: u32,
    rows: usize,
    cells: Vec<Cell>,
    columns: Vec<Column>,
    last: Option<Duration>,
}

/// Some windows, one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Column {
    /// When the first of them began, or the one before ended.
    pub from_s: f64,
    /// When the last of them ended.
    pub to_s: f64,
    /// How many.
    pub windows: u32,
}

/// A map: columns are time, rows are addresses, lowest first. Cells are by column, within it by row; `null` where nothing was mapped.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HeatMap {
    /// The columns.
    pub columns: Vec<Column>,
    /// The first address of each row.
    pub addresses: Vec<u64>,
    /// Bytes of memory, used at any time, that a row stands for on average.
    pub row_bytes: u64,
    /// Base pages accessed in a window, of those of the regions that were there, in per cent.
    pub coverage_percent: Vec<Option<u8>>,
    /// Regions under one huge page, of those that were there, in per cent.
    pub huge_percent: Vec<Option<u8>>,
    /// Page walks a second, in all of the row.
    pub walks_per_s: Vec<u64>,
}

impl Filling {
    /// A grid over so many windows and these addresses.
    pub fn new(windows: u32, addresses: &Addresses) -> Self {
        let (blocks, block_bytes) = addresses.blocks();
        let rows = blocks.len().clamp(1, MOST_ROWS);
        let columns = (windows as usize).clamp(1, MOST_COLUMNS);
        Self {
            blocks,
            block_bytes,
            windows: windows.max(1),
            window: 0,
            rows,
            cells: vec![Cell::default(); rows * columns],
            columns: vec![Column::default(); columns],
            last: None,
        }
    }

    fn column(&self) -> usize {
        let index = self.window.saturating_sub(1) as usize;
        (index * self.columns.len() / self.windows as usize).min(self.columns.len() - 1)
    }

    /// Which row an address is in.
    pub fn row_of(&self, address: u64) -> Option<usize> {
        let after = self.blocks.partition_point(|start| *start <= address);
        let block = after.checked_sub(1)?;
        let held = address < self.blocks.get(block)? + self.block_bytes;
        held.then(|| block * self.rows / self.blocks.len())
    }

    /// Adds what was seen of a region.
    pub fn add(&mut self, row: &CoverageRow) {
        if self.last != Some(row.at) {
            let began = self.last.unwrap_or(row.at.saturating_sub(row.window));
            self.last = Some(row.at);
            self.window += 1;
            let place = self.column();
            if let Some(column) = self.columns.get_mut(place) {
                if column.windows == 0 {
                    column.from_s = began.as_secs_f64();
                }
                column.windows += 1;
                column.to_s = row.at.as_secs_f64();
            }
        }
        let Some(place) = self.row_of(row.region.region.start()) else {
            return;
        };
        let cell = self.column() * self.rows + place;
        if let Some(cell) = self.cells.get_mut(cell) {
            cell.samples += 1;
            cell.accessed += u64::from(row.region.accessed);
            cell.huge += u32::from(row.region.is_huge());
            cell.walks_per_s += u64::from(row.region.walks_per_s);
        }
    }

    /// The map.
    pub fn finish(self) -> HeatMap {
        let percent = |part: u64, of: u64| (part * 100).checked_div(of).map(|p| p.min(100) as u8);
        let pages = u64::from(PAGES_PER_REGION);
        let cells = self.cells.iter();
        let columns = self.columns.iter();
        let windows = columns.flat_map(|c| std::iter::repeat_n(u64::from(c.windows), self.rows));
        HeatMap {
            coverage_percent: cells
                .clone()
                .map(|cell| percent(cell.accessed, u64::from(cell.samples) * pages))
                .collect(),
            huge_percent: cells
                .clone()
                .map(|cell| percent(cell.huge.into(), cell.samples.into()))
                .collect(),
            walks_per_s: cells
                .zip(windows)
                .map(|(cell, windows)| cell.walks_per_s / windows.max(1))
                .collect(),
            addresses: (0..self.rows)
                .filter_map(|row| {
                    // The first block of the row, as `row_of` divides them.
                    let block = (row * self.blocks.len()).div_ceil(self.rows);
                    self.blocks.get(block).copied()
                })
                .collect(),
            row_bytes: self.blocks.len() as u64 * self.block_bytes / self.rows as u64,
            columns: self.columns,
        }
    }
}

impl HeatMap {
    /// Nothing was sampled.
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    /// Coverage by column and row, 0-100.
    pub fn coverage(&self, column: usize, row: usize) -> Option<u8> {
        let cell = column * self.addresses.len() + row;
        self.coverage_percent.get(cell).copied().flatten()
    }

    /// Share under huge pages by column and row, 0-100.
    pub fn huge(&self, column: usize, row: usize) -> Option<u8> {
        let cell = column * self.addresses.len() + row;
        self.huge_percent.get(cell).copied().flatten()
    }
}
