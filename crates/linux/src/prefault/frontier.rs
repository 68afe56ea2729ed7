//! Where managed processes touch memory for the first time, as BPF sees it in the kernel's page faults.

use crate::bpf::frontier::{FrontierSkel, FrontierSkelBuilder};
use crate::error::{LinuxError, Result};
use crate::processes::pid_namespace::PidNamespace;
use crate::reports::Reports;
use hawkeye_policy::fault_ahead::Advance;
use hawkeye_policy::{HUGE_PAGE_BYTES, RegionAddr};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// A process that was heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// Which.
    pub pid: u32,
    /// What it did.
    pub advance: Advance,
}

/// Watches first touches from its creation until it is dropped.
pub struct Frontier {
    /// While they are here the programs run. The skeleton keeps pointers to links of its own: it is not asked to attach
    /// anything, for those would stay when these are dropped.
    links: Vec<Link>,
    reports: Reports<Heard>,
    skel: FrontierSkel<'static>,
}

/// Which processes are watched. Can be changed from any thread.
pub struct Watchlist(MapHandle);

impl Frontier {
    /// Loads and attaches the program. Nobody is watched yet.
    ///
    /// # Errors
    /// BPF is missing or forbidden, or the kernel has no tracepoint `page_fault_user`.
    pub fn attach() -> Result<(Self, Watchlist)> {
        // One a manager, like the page-table programs: never freed, but detached when dropped.
        let storage = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = FrontierSkelBuilder::default()
            .open(storage)
            .map_err(failed)?;
        if let (Some(own), Some(told)) = (PidNamespace::own(), &mut open.maps.rodata_data) {
            told.pidns_dev = own.dev;
            told.pidns_ino = own.ino;
        }
        let skel = open.load().map_err(failed)?;
        let reports = Reports::of(&skel.maps.advances, parse).map_err(failed)?;
        let watchlist = Watchlist(MapHandle::try_from(&skel.maps.watched).map_err(failed)?);
        let mut frontier = Self {
            links: Vec::new(),
            reports,
            skel,
        };
        frontier.resume()?;
        Ok((frontier, watchlist))
    }

    /// Who was heard of since the last call; waits for the first for so long at the most.
    pub fn listen(&mut self, wait: Duration) -> Vec<Heard> {
        self.reports.wait(wait)
    }

    /// The same without waiting.
    pub fn take(&mut self) -> Vec<Heard> {
        self.reports.take()
    }

    /// Readable when somebody was heard of.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.reports.fd()
    }

    /// Hears no more of a process, but for regions that it touches densely.
    pub fn mute(&self, pid: u32) {
        let key = pid.to_ne_bytes();
        // As many as are watched have room.
        let muted = &self.skel.maps.muted;
        let _ = muted.update(&key, &1u32.to_ne_bytes(), MapFlags::ANY);
    }

    /// Hears of it again.
    pub fn unmute(&self, pid: u32) {
        // It was not muted: as good.
        let _ = self.skel.maps.muted.delete(&pid.to_ne_bytes());
    }

    /// First touches of watched processes so far: of those who touch memory in order, and of those at random.
    pub fn touches(&self) -> (u64, u64) {
        let counts = self.skel.maps.bss_data.as_deref();
        counts.map_or((0, 0), |bss| (bss.in_order, bss.at_random))
    }

    /// Hears nothing at all, and costs nobody anything, until [`Self::resume`].
    pub fn pause(&mut self) {
        self.links.clear();
    }

    /// Hears again.
    ///
    /// # Errors
    /// As for [`Self::attach`].
    pub fn resume(&mut self) -> Result<()> {
        let programs = &self.skel.progs;
        self.links = [&programs.touch_by_program, &programs.touch_for_program]
            .into_iter()
            .map(|program| program.attach().map_err(failed))
            .collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Reports that were lost because nobody listened for too long.
    pub fn lost(&self) -> u64 {
        self.skel.maps.bss_data.as_deref().map_or(0, |bss| bss.lost)
    }
}

impl Watchlist {
    /// Watches a process from now on.
    ///
    /// # Errors
    /// There are as many as can be watched.
    pub fn add(&self, pid: u32) -> Result<()> {
        let nothing = vec![0u8; self.0.value_size() as usize];
        self.0
            .update(&pid.to_ne_bytes(), &nothing, MapFlags::ANY)
            .map_err(failed)
    }

    /// Watches it no longer.
    pub fn remove(&self, pid: u32) {
        // It was not watched: as good.
        let _ = self.0.delete(&pid.to_ne_bytes());
    }
}

/// One `struct advance`.
fn parse(bytes: &[u8]) -> Option<Heard> {
    let word = |at: usize| {
        bytes
            .get(at..at + 8)?
            .try_into()
            .ok()
            .map(u64::from_ne_bytes)
    };
    let half = |at: usize| {
        bytes
            .get(at..at + 4)?
            .try_into()
            .ok()
            .map(u32::from_ne_bytes)
    };
    Some(Heard {
        pid: half(16)?,
        advance: Advance {
            region: RegionAddr::containing(word(0)?.checked_mul(HUGE_PAGE_BYTES)?),
            step: i32::try_from(i64::from_ne_bytes(word(8)?.to_ne_bytes())).ok()?,
            dense: half(20)? != 0,
        },
    })
}

fn failed(error: libbpf_rs::Error) -> LinuxError {
    LinuxError::Bpf(format!("watching first touches: {error:#}"))
}
