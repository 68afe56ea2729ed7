//! Tests of fast translation: against a plain model of the same rules, the exact model, and by
//! hand.

mod agree;
mod exact;
mod golden;
mod groups;
mod mapping;
mod plain;

use hawkeye_policy::RegionAddr;
use hawkeye_sim::mmu::translation::{
    Access, Mappings, ProgramWork, TranslationCounters, Translator, TranslatorSpec,
};

type TestResult<T = ()> = Result<T, Box<dyn std::error::Error>>;

const BEGIN: u64 = 0x7f00_0000_0000;
const FULL: [u64; 8] = [u64::MAX; 8];

fn random(seed: u64) -> impl Iterator<Item = u64> {
    let next = |n: &u64| n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    std::iter::successors(Some(seed), move |n| Some(next(n))).skip(1)
}

fn region(number: u64) -> RegionAddr {
    RegionAddr::containing(BEGIN + number * (2 << 20))
}

struct Machine {
    mappings: Mappings,
    core: Translator,
}

impl Machine {
    fn new(spec: &TranslatorSpec) -> TestResult<Self> {
        Ok(Self {
            mappings: Mappings::with_groups(spec.processor.groups)?,
            core: Translator::new(spec)?,
        })
    }

    /// The same with a region of base pages in groups, all bits cleared.
    fn grouped(spec: &TranslatorSpec) -> TestResult<Self> {
        let mut machine = Self::new(spec)?;
        machine.map(FULL)?;
        machine.group(u128::MAX);
        machine.clear();
        Ok(machine)
    }

    fn map(&mut self, pages: [u64; 8]) -> TestResult {
        Ok(self.mappings.map_pages(region(0), pages)?)
    }

    fn group(&mut self, groups: u128) {
        self.mappings.set_groups(region(0), groups);
    }

    fn clear(&mut self) {
        self.mappings.clear_accessed(region(0));
    }

    fn accessed(&self) -> u64 {
        self.mappings.accessed(region(0))[0]
    }

    fn load(&mut self, pages: &[u64]) -> TranslationCounters {
        let accesses: Vec<Access> =
            pages.iter().map(|page| Access::load(BEGIN + page * 4096)).collect();
        let before = self.core.counters();
        let work = ProgramWork::default();
        let done = self.core.translate(&mut self.mappings, &accesses, work);
        assert_eq!(done.fault, None);
        self.core.counters().since(&before)
    }

    fn invalidate(&mut self, page: u64) {
        let address = BEGIN + page * 4096;
        self.core.invalidate(&self.mappings, address..address + 1);
    }
}
