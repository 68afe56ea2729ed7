//! A whole machine: the processor's memory management, the kernel's miss handlers and its memory.

mod invariants;
mod misses;

use super::ItaniumError;
use super::address::offset_of;
use super::kernel::{Backing, Kernel, KernelSettings, Purge};
use super::mmu::{Counters, Miss, Mmu, Processor, Pte, Walker};
use serde::Serialize;

/// What a machine is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Setup {
    /// The processor.
    pub processor: Processor,
    /// How the kernel sets its walker.
    pub walker: Walker,
    /// The kernel.
    pub kernel: KernelSettings,
    /// TLB entries that are pinned beside the kernel's own, as in the thesis' test with fewer entries (section 6.3.2).
    pub fake_pinned: u32,
    /// If set, no page of this order or more can be had: somebody holds a frame of each. The thesis saw no fragmentation.
    pub fragmented_order: Option<u8>,
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
    /// Nothing runs. The seed is for what hardware does by chance.
    ///
    /// # Errors
    /// A machine that can't be.
    pub fn new(setup: Setup, seed: u64) -> Result<Self, ItaniumError> {
        let mmu = Mmu::new(
            &setup.processor,
            setup.kernel.base,
            setup.walker,
            setup.fake_pinned,
            seed,
        )?;
        let mut kernel = Kernel::new(setup.kernel)?;
        if let Some(order) = setup.fragmented_order {
            kernel.fragment(order);
        }
        Ok(Self {
            setup,
            mmu,
            kernel,
            counters: Counters::default(),
        })
    }

    /// What it is.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// What has happened.
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

    /// A new process.
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
        let work = &mut self.counters;
        self.kernel.mmap(process, bytes, at, backing, work)
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
        self.kernel
            .populate(process, address, bytes, &mut self.counters)
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

    /// A program works for a while without memory.
    pub fn work(&mut self, cycles: u64) {
        self.counters.useful_cycles += cycles;
    }

    /// A program refers to an address, several times in a row. Which process runs is all there is to a context switch: region ids
    /// keep translations apart (thesis, section 3.1).
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
        let misses = self.counters.misses;
        loop {
            let space = self.kernel.space(process)?;
            let page = self.setup.kernel.base.page_of(address);
            let found = self
                .mmu
                .translate(&space.registers, address, &mut self.counters, |_| {
                    space.table.get(page).unwrap_or(Pte::sized(0))
                });
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
        if self.fill(process, address, miss)? {
            return Ok(());
        }
        self.page_fault(process, address, write)
    }

    fn page_fault(&mut self, process: u32, address: u64, write: bool) -> Result<(), ItaniumError> {
        let purge = self
            .kernel
            .fault(process, address, write, &mut self.counters)?;
        purge.map_or(Ok(()), |purge| self.purge(purge))
    }

    /// Drops translations, and entries of the hash table, one for each base page.
    fn purge(&mut self, purge: Purge) -> Result<(), ItaniumError> {
        let base = self.setup.kernel.base;
        let first = base.address_of(purge.first);
        let rid = self.kernel.space(purge.process)?.registers.rid(first);
        let start = offset_of(first);
        let end = start + base.address_of(purge.pages);
        self.mmu.purge(rid, start, end);
        if let Some(hash) = &mut self.mmu.hash {
            for page in base.page_of(start)..base.page_of(end) {
                hash.invalidate(rid, page);
            }
            self.counters.hash_entries += purge.pages;
        } else if purge.tables {
            let (first, last) = (base.entry_offset(start), base.entry_offset(end - 1));
            self.mmu.purge(rid, first, last + 1);
        }
        Ok(())
    }
}
