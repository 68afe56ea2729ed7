//! A whole machine: the processor's memory management, the kernel's miss handlers and its memory.

mod invariants;
mod misses;

use super::ItaniumError;
use super::address::{BasePage, offset_of};
use super::kernel::{Backing, Fragmentation, Kernel, KernelSettings, Purge};
use super::mmu::{Counters, Miss, Mmu, Processor, Pte, Walker};
use serde::Serialize;

/// Settings of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Setup {
    /// Its processor.
    pub processor: Processor,
    /// The kernel's setting of the hardware walker.
    pub walker: Walker,
    /// Settings of its kernel.
    pub kernel: KernelSettings,
    /// Number of pinned TLB entries beyond the kernel's own, as in the thesis' test with fewer
    /// entries (section 6.3.2).
    pub fake_pinned: u32,
    /// Other memory that fragments free memory. The thesis saw no fragmentation.
    pub fragmentation: Option<Fragmentation>,
    /// Page sizes that the program, or its administrator, asks for.
    pub advice: Option<Advice>,
}

/// A page size that a program, or its administrator, asks for. Policies that choose by themselves
/// ignore it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// It applies to mappings of at least this number of bytes.
    pub from_bytes: u64,
    /// Page size in bytes: a power of two, at least the kernel's base page.
    pub page_bytes: u64,
}

impl Advice {
    /// The order to request for a mapping of `bytes` bytes.
    fn order(&self, bytes: u64, base: BasePage) -> Option<u8> {
        let order = self.page_bytes.ilog2().saturating_sub(base.shift());
        (bytes >= self.from_bytes).then_some(order as u8)
    }

    fn check(&self, base: BasePage) -> Result<(), ItaniumError> {
        let right = self.page_bytes.is_power_of_two() && self.page_bytes >= base.bytes();
        let wrong = ItaniumError::Setup {
            what: "an advised page size",
            allowed: "a power of two, and at least the kernel's page size",
        };
        if right { Ok(()) } else { Err(wrong) }
    }
}

/// A machine with one processor.
#[derive(Clone, Debug)]
pub struct Machine {
    setup: Setup,
    mmu: Mmu,
    kernel: Kernel,
    counters: Counters,
}

impl Machine {
    /// A machine without processes. The seed determines random choices: those of hardware, and the
    /// place of other memory.
    ///
    /// # Errors
    /// Invalid settings.
    pub fn new(setup: Setup, seed: u64) -> Result<Self, ItaniumError> {
        let mmu = Mmu::new(
            &setup.processor,
            setup.kernel.base,
            setup.walker,
            setup.fake_pinned,
            seed,
        )?;
        if let Some(advice) = setup.advice {
            advice.check(setup.kernel.base)?;
        }
        let mut kernel = Kernel::new(setup.kernel)?;
        if let Some(how) = setup.fragmentation {
            kernel.fragment(how, seed);
        }
        Ok(Self {
            setup,
            mmu,
            kernel,
            counters: Counters::default(),
        })
    }

    /// Its settings.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Its counters.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Its kernel.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// Its memory management unit.
    pub fn mmu(&self) -> &Mmu {
        &self.mmu
    }

    /// Starts a process.
    ///
    /// # Errors
    /// As [`Kernel::spawn`].
    pub fn spawn(&mut self) -> Result<u32, ItaniumError> {
        self.kernel.spawn()
    }

    /// As [`Kernel::mmap`].
    ///
    /// # Errors
    /// The same.
    pub fn mmap(
        &mut self,
        process: u32,
        bytes: u64,
        at: Option<u64>,
        backing: Backing,
    ) -> Result<u64, ItaniumError> {
        let base = self.setup.kernel.base;
        let advice = self.setup.advice;
        let advised = advice.and_then(|advice| advice.order(bytes, base));
        let work = &mut self.counters;
        self.kernel.mmap(process, bytes, at, backing, advised, work)
    }

    /// As [`Kernel::munmap`].
    ///
    /// # Errors
    /// The same.
    pub fn munmap(&mut self, process: u32, address: u64, bytes: u64) -> Result<(), ItaniumError> {
        let purge = self.kernel.munmap(process, address, bytes)?;
        self.purge(purge)
    }

    /// As [`Kernel::mprotect`].
    ///
    /// # Errors
    /// The same.
    pub fn mprotect(
        &mut self,
        process: u32,
        address: u64,
        bytes: u64,
        writable: bool,
    ) -> Result<(), ItaniumError> {
        let purge = self.kernel.mprotect(process, address, bytes, writable)?;
        self.purge(purge)
    }

    /// As [`Kernel::mremap`].
    ///
    /// # Errors
    /// The same.
    pub fn mremap(
        &mut self,
        process: u32,
        address: u64,
        old_bytes: u64,
        new_bytes: u64,
    ) -> Result<u64, ItaniumError> {
        let work = &mut self.counters;
        let moved = self
            .kernel
            .mremap(process, address, old_bytes, new_bytes, work);
        let (address, purge) = moved?;
        purge.map_or(Ok(()), |purge| self.purge(purge))?;
        Ok(address)
    }

    /// As [`Kernel::populate`].
    ///
    /// # Errors
    /// The same.
    pub fn populate(&mut self, process: u32, address: u64, bytes: u64) -> Result<(), ItaniumError> {
        let mut purges = Vec::new();
        let work = &mut self.counters;
        let done = self
            .kernel
            .populate(process, address, bytes, &mut purges, work);
        self.purge_all(purges)?;
        done
    }

    /// As [`Kernel::fork`].
    ///
    /// # Errors
    /// The same.
    pub fn fork(&mut self, process: u32) -> Result<u32, ItaniumError> {
        self.kernel.fork(process)
    }

    /// As [`Kernel::exit`].
    ///
    /// # Errors
    /// The same.
    pub fn exit(&mut self, process: u32) -> Result<(), ItaniumError> {
        self.kernel.exit(process)
    }

    /// Accounts for a program's work without memory references.
    pub fn work(&mut self, cycles: u64) {
        self.counters.useful_cycles += cycles;
    }

    /// Refers to an address of a program, several times in a row. A context switch consists only of
    /// the change of process: region ids keep translations apart (thesis, section 3.1).
    ///
    /// # Errors
    /// As [`Kernel::fault`].
    pub fn access(
        &mut self,
        process: u32,
        address: u64,
        write: bool,
        references: u32,
    ) -> Result<(), ItaniumError> {
        self.kernel.space(process)?;
        self.counters.references += u64::from(references);
        if self.kernel.looks_at_references() {
            let work = &mut self.counters;
            let purges = self.kernel.referred(process, address, references, work)?;
            self.purge_all(purges)?;
        }
        let misses = self.counters.misses;
        loop {
            let space = self.kernel.space(process)?;
            let base = self.setup.kernel.base;
            let entry_of = |address| {
                let entry = space.table.get(base.page_of(address));
                entry.unwrap_or(Pte::sized(0))
            };
            let registers = &space.registers;
            let found = self
                .mmu
                .translate(registers, address, &mut self.counters, entry_of);
            match found {
                Ok(entry) if entry.writable || !write => break,
                Ok(_) => self.page_fault(process, address, write)?,
                Err(miss) => self.miss(process, address, write, miss)?,
            }
        }
        let missed = self.counters.misses > misses;
        let registers = &self.kernel.space(process)?.registers;
        self.mmu
            .use_first_level(registers, address, missed, &mut self.counters);
        Ok(())
    }

    fn miss(
        &mut self,
        process: u32,
        address: u64,
        write: bool,
        miss: Miss,
    ) -> Result<(), ItaniumError> {
        match miss {
            Miss::Table => self.counters.nested += 1,
            Miss::Entry => self.counters.software += 1,
        }
        if self.kernel.counts_misses() {
            self.count_miss(process, address)?;
        }
        if self.fill(process, address, miss)? {
            return Ok(());
        }
        self.page_fault(process, address, write)
    }

    /// Reports a miss to the kernel's policy, and the nearest other page in the TLB.
    fn count_miss(&mut self, process: u32, address: u64) -> Result<(), ItaniumError> {
        let rid = self.kernel.space(process)?.registers.rid(address);
        let shift = self.setup.kernel.base.shift();
        let near = self.mmu.tlb.nearest(rid, offset_of(address), shift);
        let Some(order) = near.and_then(|order| u8::try_from(order).ok()) else {
            return Ok(());
        };
        let work = &mut self.counters;
        let purge = self.kernel.missed(process, address, order, work)?;
        purge.map_or(Ok(()), |purge| self.purge(purge))
    }

    fn page_fault(&mut self, process: u32, address: u64, write: bool) -> Result<(), ItaniumError> {
        let work = &mut self.counters;
        let purges = self.kernel.fault(process, address, write, work)?;
        self.purge_all(purges)
    }

    fn purge_all(&mut self, purges: Vec<Purge>) -> Result<(), ItaniumError> {
        purges.into_iter().try_for_each(|purge| self.purge(purge))
    }

    /// Drops translations, and entries of the hash table, one for each base page.
    fn purge(&mut self, purge: Purge) -> Result<(), ItaniumError> {
        let base = self.setup.kernel.base;
        let first = base.address_of(purge.first);
        let registers = &self.kernel.space(purge.process)?.registers;
        let (rid, preferred) = (registers.rid(first), registers.preferred(first));
        let start = offset_of(first);
        let end = start + base.address_of(purge.pages);
        self.mmu.purge(rid, start, end);
        // Tables have an entry for each page of the region's preferred size.
        let (start, end) = (start >> preferred, end >> preferred);
        if let Some(hash) = &mut self.mmu.hash {
            for page in base.page_of(start)..base.page_of(end) {
                hash.invalidate(rid, page);
            }
            self.counters.hash_entries += purge.pages >> preferred;
        } else if purge.tables {
            let (first, last) = (base.entry_offset(start), base.entry_offset(end - 1));
            self.mmu.purge(rid, first, last + 1);
        }
        Ok(())
    }
}
