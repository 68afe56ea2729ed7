//! Switches page sizes on while some managed process is to have them.

use super::{GivenTo, setting_file, state};
use crate::error::{LinuxError, Result};
use crate::takeover::thp_settings::SettingsHandle;
use hawkeye_policy::{PageOrder, PageOrders, ProcessId};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Sizes at first touches that may be chosen, and who is to have which. A size is on while anybody under management is
/// to have it, for everybody that the consent is about. What somebody else has switched on stays as it was.
#[derive(Debug)]
pub struct SizeSwitches {
    thp: PathBuf,
    settings: SettingsHandle,
    given_to: GivenTo,
    available: PageOrders,
    wanted: BTreeMap<ProcessId, PageOrders>,
    on: PageOrders,
}

impl SizeSwitches {
    /// Nothing is on yet. `thp`: the folder of the settings. `available`: sizes that were seen to work. `given_to`: whom
    /// those that are switched on are for; for nobody, nothing is ever changed.
    pub fn new(
        thp: PathBuf,
        settings: SettingsHandle,
        given_to: GivenTo,
        available: PageOrders,
    ) -> Self {
        Self {
            thp,
            settings,
            given_to,
            available: if given_to == GivenTo::Nobody {
                PageOrders::NONE
            } else {
                available
            },
            wanted: BTreeMap::new(),
            on: PageOrders::NONE,
        }
    }

    /// Sizes that may be chosen.
    pub fn available(&self) -> PageOrders {
        self.available
    }

    /// Whom sizes are switched on for.
    pub fn given_to(&self) -> GivenTo {
        self.given_to
    }

    /// A process is to have these sizes from now on, as far as they may be chosen.
    ///
    /// # Errors
    /// A setting can't be changed. What it is to have is kept, and tried again with the next change.
    pub fn want(&mut self, process: ProcessId, orders: PageOrders) -> Result<()> {
        self.wanted.insert(process, orders.and(self.available));
        self.apply()
    }

    /// Forgets all processes but these.
    ///
    /// # Errors
    /// A setting can't be changed.
    pub fn retain(&mut self, there: impl Fn(ProcessId) -> bool) -> Result<()> {
        self.wanted.retain(|process, _| there(*process));
        self.apply()
    }

    /// Which sizes are on because of us.
    pub fn on(&self) -> PageOrders {
        self.on
    }

    fn apply(&mut self) -> Result<()> {
        let wanted: PageOrders = self
            .wanted
            .values()
            .flat_map(|orders| orders.iter())
            .collect();
        for order in self.available.iter() {
            match (wanted.contains(order), self.on.contains(order)) {
                (true, false) => match self.switch_on(order) {
                    Ok(()) => self.on = self.on.with(order),
                    // It is that program's from now on, and not to be chosen.
                    Err(LinuxError::ChangedByOthers { .. }) => {
                        let left = self.available.iter().filter(|left| *left != order);
                        self.available = left.collect();
                    }
                    Err(error) => return Err(error),
                },
                (false, true) => {
                    self.settings.put_back(&setting_file(&self.thp, order))?;
                    self.on = self.on.iter().filter(|on| *on != order).collect();
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// As far as it is not on already: never for fewer than as found.
    fn switch_on(&self, order: PageOrder) -> Result<()> {
        let found = state(&self.thp, order).and_then(|state| state.given_to);
        if found.is_some_and(|found| found >= self.given_to) {
            return Ok(());
        }
        let file = setting_file(&self.thp, order);
        self.settings.set(&file, self.given_to.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::takeover::thp_settings::testing::Folder;
    use crate::takeover::thp_settings::{Allowed, SettingsGuard, read_setting};

    const SIZES: [u64; 3] = [16, 64, 128];

    fn orders(kib: &[u64]) -> PageOrders {
        kib.iter()
            .filter_map(|kib| PageOrder::from_bytes(kib << 10))
            .collect()
    }

    fn process(pid: u32) -> ProcessId {
        ProcessId {
            pid,
            start_ticks: 1,
        }
    }

    struct Machine {
        folder: Folder,
        guard: SettingsGuard,
    }

    impl Machine {
        /// `words`: what is set for all sizes, and for each of [`SIZES`].
        fn new(name: &str, for_all: &str, words: [&str; 3]) -> Self {
            let folder = Folder::new(name);
            folder.file("enabled", for_all);
            for (kib, word) in SIZES.iter().zip(words) {
                folder.file(&format!("hugepages-{kib}kB/enabled"), word);
            }
            let guard =
                SettingsGuard::start_with(&folder.0, Allowed::under(&folder.0)).expect("starts");
            Self { folder, guard }
        }

        fn switches(&self, given_to: GivenTo) -> SizeSwitches {
            let thp = self.folder.0.clone();
            SizeSwitches::new(thp, self.guard.handle(), given_to, orders(&SIZES))
        }

        fn set(&self) -> Vec<String> {
            let read = |kib: &u64| {
                read_setting(
                    &self
                        .folder
                        .0
                        .join(format!("hugepages-{kib}kB"))
                        .join("enabled"),
                )
            };
            SIZES
                .iter()
                .map(|kib| read(kib).expect("reads"))
                .collect::<Vec<_>>()
        }
    }

    #[test]
    fn a_size_is_on_while_anybody_wants_it() -> Result<()> {
        let machine = Machine::new("union", "madvise", ["never"; 3]);
        let mut switches = machine.switches(GivenTo::Everybody);
        switches.want(process(1), orders(&[64]))?;
        switches.want(process(2), orders(&[64, 128]))?;
        assert_eq!(machine.set(), ["never", "always", "always"]);
        switches.want(process(2), PageOrders::NONE)?;
        assert_eq!(machine.set(), ["never", "always", "never"]);
        switches.retain(|there| there == process(2))?;
        assert_eq!(machine.set(), ["never"; 3]);
        switches.want(process(3), orders(&[16]))?;
        drop(machine.guard);
        let left = read_setting(&machine.folder.0.join("hugepages-16kB/enabled"))?;
        assert_eq!(left, "never", "whatever is still wanted");
        Ok(())
    }

    #[test]
    fn what_is_on_for_more_than_that_stays() -> Result<()> {
        let machine = Machine::new("stays", "madvise", ["always", "inherit", "never"]);
        let mut switches = machine.switches(GivenTo::Advised);
        switches.want(process(1), orders(&SIZES))?;
        assert_eq!(machine.set(), ["always", "inherit", "madvise"]);
        switches.want(process(1), PageOrders::NONE)?;
        assert_eq!(machine.set(), ["always", "inherit", "never"]);
        Ok(())
    }

    #[test]
    fn what_inherits_too_little_is_set() -> Result<()> {
        let machine = Machine::new("inherits", "madvise", ["never", "inherit", "madvise"]);
        let mut switches = machine.switches(GivenTo::Everybody);
        switches.want(process(1), orders(&SIZES))?;
        assert_eq!(machine.set(), ["always"; 3]);
        switches.retain(|_| false)?;
        assert_eq!(machine.set(), ["never", "inherit", "madvise"]);
        Ok(())
    }

    #[test]
    fn without_consent_nothing_is_touched() -> Result<()> {
        let machine = Machine::new("off", "madvise", ["never"; 3]);
        let mut switches = machine.switches(GivenTo::Nobody);
        assert!(switches.available().is_empty());
        switches.want(process(1), orders(&SIZES))?;
        assert_eq!(machine.set(), ["never"; 3]);
        Ok(())
    }
}
