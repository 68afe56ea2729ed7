//! The plain model's mappings, and operations that exist only in the fast model.

use super::plain::{PlainRegion, PlainTranslator};
use super::{BEGIN, FULL, TestResult};
use hawkeye_policy::RegionAddr;
use hawkeye_sim::mmu::SKYLAKE;
use hawkeye_sim::mmu::translation::{
    Access, AccessFault, EntrySize, LeafSize, MappingError, Mappings, ProgramWork, Translator,
    TranslatorSpec,
};
use std::collections::BTreeSet;

fn numbers(begin: u64, pages: [u64; 8]) -> impl Iterator<Item = u64> {
    let chosen = (0..512u64).filter(move |n| pages[(n / 64) as usize] >> (n % 64) & 1 == 1);
    chosen.map(move |n| (begin >> 12) + n)
}

impl PlainRegion {
    fn clear(&mut self) {
        self.present.clear();
        self.protected.clear();
        self.groups.clear();
    }
}

impl PlainTranslator {
    fn region(&mut self, begin: u64) -> &mut PlainRegion {
        self.regions.entry(begin >> 21).or_default()
    }

    fn around(begin: u64) -> impl Iterator<Item = u64> {
        let first = begin >> 30 << 9;
        first..first + 512
    }

    /// Sets the groups of base pages, a bit each.
    pub fn set_groups(&mut self, begin: u64, groups: u128) {
        let Some(group) = self.base_group else {
            return;
        };
        if self.region(begin).size != Some(LeafSize::Base) {
            return;
        }
        self.change_groups(begin, |plain, region| {
            let first = (begin >> 12) >> group.order;
            let count = 512 >> group.order;
            region.groups =
                (0..count).filter(|n| groups >> n & 1 == 1).map(|n| first + n).collect();
            plain.drop_unlike(region);
        });
    }

    fn drop_unlike(&self, region: &mut PlainRegion) {
        let Some(group) = self.base_group else {
            return;
        };
        let (present, protected) = (&region.present, &region.protected);
        region.groups.retain(|number| {
            let pages = (number << group.order)..((number + 1) << group.order);
            let of = |set: &BTreeSet<u64>| pages.clone().filter(|page| set.contains(page)).count();
            of(present) == 1 << group.order && [0, 1 << group.order].contains(&of(protected))
        });
    }

    /// Changes a region of base pages, and carries access bits over. Each page of a group that ends
    /// gets the group's bit; a new group gets one bit for all its pages.
    fn change_groups(&mut self, begin: u64, change: impl FnOnce(&Self, &mut PlainRegion)) {
        let bits = self.accessed_bits(begin);
        let accessed: Vec<u64> = numbers(begin, bits).collect();
        let mut region = self.region(begin).clone();
        change(self, &mut region);
        self.regions.insert(begin >> 21, region);
        self.forget_pages(begin, FULL);
        for page in accessed {
            let bit = self.bit_of(LeafSize::Base, page << 12);
            self.accessed.insert(bit);
        }
    }

    fn end_huge_group(&mut self, begin: u64) {
        if !self.region(begin).in_huge_group {
            return;
        }
        let neighbours: Vec<u64> = self.huge_neighbours(begin).collect();
        let (_, first) = self.bit_of(LeafSize::Huge, begin);
        let accessed = self.accessed.contains(&(LeafSize::Huge, first));
        for number in neighbours {
            self.region(number << 21).in_huge_group = false;
            if accessed {
                self.accessed.insert((LeafSize::Huge, number));
            }
        }
    }

    fn huge_neighbours(&self, begin: u64) -> impl Iterator<Item = u64> + use<> {
        let order = self.huge_group.map_or(0, |group| group.order);
        let first = begin >> 21 >> order << order;
        first..first + (1 << order)
    }

    pub fn map_huge_group(&mut self, begin: u64) -> bool {
        let neighbours: Vec<u64> = self.huge_neighbours(begin).collect();
        if !neighbours.iter().all(|n| self.map_huge(n << 21)) {
            return false;
        }
        for number in neighbours {
            // Nothing of its earlier state is left.
            self.accessed.remove(&(LeafSize::Huge, number));
            self.region(number << 21).in_huge_group = self.huge_group.is_some();
        }
        let bit = self.bit_of(LeafSize::Huge, begin);
        self.accessed.insert(bit);
        true
    }

    pub fn map_pages(&mut self, begin: u64, pages: [u64; 8], protect: bool) {
        if self.region(begin).size == Some(LeafSize::Base) {
            // First the bits of pages in groups, then as without groups.
            self.change_groups(begin, |plain, region| {
                for page in numbers(begin, pages) {
                    match protect {
                        true => region.protected.insert(page),
                        false => region.protected.remove(&page),
                    };
                }
                plain.drop_unlike(region);
            });
        }
        let mut touched = Vec::new();
        let region = self.region(begin);
        match region.size {
            Some(LeafSize::Huge) => {
                if protect {
                    region.protected.extend(numbers(begin, FULL));
                    self.end_huge_group(begin);
                }
                return;
            }
            Some(LeafSize::Giant) => {
                if protect {
                    for number in Self::around(begin) {
                        let region = self.region(number << 21);
                        region.protected.extend(numbers(number << 21, FULL));
                    }
                }
                return;
            }
            None => region.clear(),
            Some(LeafSize::Base) => {}
        }
        for page in numbers(begin, pages) {
            if region.present.insert(page) {
                touched.push(page);
            }
            if protect {
                region.protected.insert(page);
            } else {
                region.protected.remove(&page);
            }
        }
        region.size = (!region.present.is_empty()).then_some(LeafSize::Base);
        self.accessed.extend(touched.into_iter().map(|page| (LeafSize::Base, page)));
    }

    pub fn map_huge(&mut self, begin: u64) -> bool {
        let region = self.region(begin);
        if region.size == Some(LeafSize::Giant) {
            return false;
        }
        self.end_huge_group(begin);
        let region = self.region(begin);
        region.size = Some(LeafSize::Huge);
        region.clear();
        self.forget_pages(begin, FULL);
        self.accessed.insert((LeafSize::Huge, begin >> 21));
        true
    }

    pub fn map_giant(&mut self, begin: u64) -> bool {
        let mut regions = Self::around(begin).filter_map(|n| self.regions.get(&n));
        if regions.any(|region| region.size.is_some()) {
            return false;
        }
        for number in Self::around(begin) {
            let region = self.region(number << 21);
            region.size = Some(LeafSize::Giant);
            region.clear();
        }
        self.accessed.insert((LeafSize::Giant, begin >> 30));
        true
    }

    pub fn unmap_pages(&mut self, begin: u64, pages: [u64; 8]) -> bool {
        match self.region(begin).size {
            None => return true,
            Some(LeafSize::Giant) => return false,
            _ => self.split(begin),
        }
        self.change_groups(begin, |plain, region| {
            for page in numbers(begin, pages) {
                region.present.remove(&page);
            }
            plain.drop_unlike(region);
        });
        let region = self.region(begin);
        for page in numbers(begin, pages) {
            region.present.remove(&page);
            region.protected.remove(&page);
        }
        region.size = (!region.present.is_empty()).then_some(LeafSize::Base);
        self.forget_pages(begin, pages);
        true
    }

    pub fn split(&mut self, begin: u64) {
        self.end_huge_group(begin);
        let region = self.region(begin);
        if region.size == Some(LeafSize::Huge) {
            region.size = Some(LeafSize::Base);
            region.present = numbers(begin, FULL).collect();
            if self.accessed.remove(&(LeafSize::Huge, begin >> 21)) {
                let pages = numbers(begin, FULL).map(|page| (LeafSize::Base, page));
                self.accessed.extend(pages);
            }
        }
    }

    pub fn set_host_page_size(&mut self, begin: u64, host: EntrySize) {
        // Memory behind one page of the host has one size.
        let before = self.region(begin).host;
        let with = |size: EntrySize| -> Vec<u64> {
            match size {
                EntrySize::Giant => Self::around(begin).collect(),
                EntrySize::HugeGroup => self.huge_neighbours(begin).collect(),
                _ => Vec::new(),
            }
        };
        let (old, new) = (with(before), with(host));
        for number in old {
            self.region(number << 21).host = EntrySize::Huge;
        }
        for number in new {
            self.region(number << 21).host = host;
        }
        self.region(begin).host = host;
    }

    pub fn clear_accessed(&mut self, begin: u64) {
        match self.region(begin).size {
            None => {}
            Some(LeafSize::Base) => self.forget_pages(begin, FULL),
            Some(size) => {
                let bit = self.bit_of(size, begin);
                self.accessed.remove(&bit);
            }
        }
    }

    fn forget_pages(&mut self, begin: u64, pages: [u64; 8]) {
        for page in numbers(begin, pages) {
            self.accessed.remove(&(LeafSize::Base, page));
        }
    }

    /// A region's groups of base pages, a bit each, and whether it is in a group of huge pages.
    pub fn groups_of(&self, begin: u64) -> (u128, bool) {
        let Some(region) = self.regions.get(&(begin >> 21)) else {
            return (0, false);
        };
        let order = self.base_group.map_or(0, |group| group.order);
        let first = (begin >> 12) >> order;
        let base = region.size == Some(LeafSize::Base);
        let groups = region.groups.iter().filter(|_| base);
        (groups.fold(0, |all, number| all | 1 << (number - first)), region.in_huge_group)
    }

    pub fn accessed_bits(&self, begin: u64) -> [u64; 8] {
        let size = self.regions.get(&(begin >> 21)).and_then(|region| region.size);
        let mut bits = [0; 8];
        for (n, page) in numbers(begin, FULL).enumerate() {
            let marked = match size {
                None => false,
                Some(size) => self.accessed.contains(&self.bit_of(size, page << 12)),
            };
            bits[n / 64] |= u64::from(marked) << (n % 64);
        }
        bits
    }
}

#[test]
fn faults_name_the_missing_mapping() -> TestResult {
    let mut mappings = Mappings::new();
    let region = RegionAddr::containing(BEGIN);
    mappings.map_pages(region, [0b001, 0, 0, 0, 0, 0, 0, 0])?;
    mappings.map_pages_read_only(region, [0b010, 0, 0, 0, 0, 0, 0, 0])?;
    let mut core = Translator::new(&TranslatorSpec::native(&SKYLAKE))?;
    let batch = [
        Access::store(BEGIN),
        Access::load(BEGIN + 4096),
        Access::store(BEGIN + 4096),
        Access::load(BEGIN + 8192),
    ];
    let mut translate = |core: &mut Translator, from: usize| {
        core.translate(&mut mappings, &batch[from..], ProgramWork::default())
    };
    let done = translate(&mut core, 0);
    assert_eq!((done.accesses, done.fault), (2, Some(AccessFault::Protected(batch[2]))));
    let done = translate(&mut core, 3);
    assert_eq!((done.accesses, done.fault), (0, Some(AccessFault::Unmapped(batch[3]))));
    let beyond = Access::load(1 << 60);
    let done = core.translate(&mut mappings, &[beyond], ProgramWork::default());
    assert_eq!(done.fault, Some(AccessFault::Unmapped(beyond)));
    assert_eq!(core.counters().accesses, 2);
    Ok(())
}

#[test]
fn what_cant_be_mapped_is_refused() -> TestResult {
    let mut mappings = Mappings::new();
    let region = RegionAddr::containing(1 << 57);
    let address = Err(MappingError::Address(1 << 57));
    assert_eq!(mappings.map_huge(region), address);
    let region = RegionAddr::containing(BEGIN);
    mappings.map_giant(BEGIN)?;
    assert_eq!(mappings.map_huge(region), Err(MappingError::Giant(BEGIN)));
    assert_eq!(mappings.map_giant(BEGIN), Err(MappingError::Occupied(BEGIN)));
    mappings.unmap_whole_gib(BEGIN)?;
    mappings.map_huge(region)?;
    let mut mappings = Mappings::new();
    let chunks = 8191;
    for gib in 0..chunks {
        mappings.map_giant(gib << 30)?;
    }
    let address = chunks << 30;
    let refused = mappings.map_giant(address);
    assert_eq!(refused, Err(MappingError::TooMuchMemory(address)));
    Ok(())
}
