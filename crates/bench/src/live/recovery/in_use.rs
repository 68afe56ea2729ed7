//! Which memory a program uses, seen while all of it is under base pages, and how much of that is huge later. Unlike its speed this is
//! the same whatever the machine's neighbours do.

use crate::live::BenchError;
use crate::live::programs::Program;
use crate::live::programs::speed::turn;
use hawkeye_linux::page_tables::{Detail, PageTables, Target};
use hawkeye_linux::{access_bits, mappings};
use hawkeye_policy::{RegionAddr, RegionSample};
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

/// In so long a program touches much of what is hot, and little of the rest.
pub(super) const WITHIN: Duration = Duration::from_millis(60);
/// Turns that are seen.
const TURNS: usize = 24;

/// What a program uses.
pub(super) struct InUse {
    tables: PageTables,
    target: Target,
    ranges: Vec<Range<u64>>,
    /// Pages touched in all turns, by region.
    touched: BTreeMap<RegionAddr, u64>,
}

impl InUse {
    /// Has a program work for some turns, its access bits cleared before each: the kernel's own way, nothing that a manager does.
    pub(super) fn of(program: &mut dyn Program) -> Result<Self, BenchError> {
        let mut tables = PageTables::load()?;
        let target = tables.bind(program.pid())?;
        let ranges = mappings::eligible(&tables.mappings(&target)?).ranges;
        let mut in_use = Self {
            tables,
            target,
            ranges,
            touched: BTreeMap::new(),
        };
        for _ in 0..TURNS {
            access_bits::clear(program.pid())?;
            turn(program, WITHIN)?;
            for seen in in_use.walk(Detail::Regions)? {
                *in_use.touched.entry(seen.region).or_default() += u64::from(seen.accessed);
            }
        }
        Ok(in_use)
    }

    /// The share of that which is under huge pages now, in per cent (0-100).
    pub(super) fn huge_percent(&mut self) -> Result<f64, BenchError> {
        let huge = self.walk(Detail::HugeOnly)?;
        let touched = |region: &RegionSample| self.touched.get(&region.region);
        let huge: u64 = huge.iter().filter_map(touched).sum();
        let all: u64 = self.touched.values().sum();
        Ok(huge as f64 * 100.0 / all.max(1) as f64)
    }

    fn walk(&mut self, detail: Detail) -> Result<Vec<RegionSample>, BenchError> {
        let mut found = Vec::new();
        let (target, ranges) = (&self.target, &self.ranges);
        self.tables
            .walk(target, ranges, detail, &mut found, |_| {})?;
        if detail == Detail::HugeOnly {
            found.retain(RegionSample::is_huge);
        }
        Ok(found)
    }
}
