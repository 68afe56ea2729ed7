//! Switches page sizes on while a managed process should get them.

use super::{ThpMode, page_size_enabled_file, read_page_size_setting};
use crate::error::{LinuxError, Result};
use crate::machine_lease::thp_settings::KernelSettingsHandle;
use hawkeye_policy::{PageOrder, PageOrderSet, ProcessId};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Sizes at first touches that may be chosen, and the processes that should get them.
///
/// A size is on while any managed process should get it; it is then on for all memory in
/// `given_to`. A size that another program has switched on stays as it was.
#[derive(Debug)]
pub struct PageSizeSwitches {
    thp: PathBuf,
    settings: KernelSettingsHandle,
    given_to: ThpMode,
    available: PageOrderSet,
    wanted: BTreeMap<ProcessId, PageOrderSet>,
    /// Sizes that this manager switched on.
    on: PageOrderSet,
}

impl PageSizeSwitches {
    /// Starts with no size switched on. `thp`: the folder of the settings. `available`: sizes that
    /// were seen to work. `given_to`: the memory for which sizes are switched on; with
    /// `ThpMode::Never` no setting is ever changed.
    pub fn new(
        thp: PathBuf,
        settings: KernelSettingsHandle,
        given_to: ThpMode,
        available: PageOrderSet,
    ) -> Self {
        let none = given_to == ThpMode::Never;
        Self {
            thp,
            settings,
            given_to,
            available: if none { PageOrderSet::NONE } else { available },
            wanted: BTreeMap::new(),
            on: PageOrderSet::NONE,
        }
    }

    /// Sizes that may be chosen.
    pub fn switchable_sizes(&self) -> PageOrderSet {
        self.available
    }

    /// The memory for which sizes are switched on.
    pub fn target_thp_mode(&self) -> ThpMode {
        self.given_to
    }

    /// Gives a process these sizes from now on, as far as they may be chosen.
    /// Fails if a setting cannot be changed. The request is kept, and tried again with the next
    /// change.
    pub fn request_fault_sizes(&mut self, process: ProcessId, orders: PageOrderSet) -> Result<()> {
        self.wanted.insert(process, orders.intersection(self.available));
        self.apply_requests()
    }

    /// Drops all processes except these. Fails if a setting cannot be changed.
    pub fn retain_processes(&mut self, there: impl Fn(ProcessId) -> bool) -> Result<()> {
        self.wanted.retain(|process, _| there(*process));
        self.apply_requests()
    }

    fn apply_requests(&mut self) -> Result<()> {
        let wanted = self.wanted.values().flat_map(|orders| orders.iter());
        let wanted: PageOrderSet = wanted.collect();
        for order in self.available.iter() {
            match (wanted.contains(order), self.on.contains(order)) {
                (true, false) => match self.switch_size_on(order) {
                    Ok(()) => self.on = self.on.with(order),
                    // The setting is that program's from now on, and the size may not be chosen.
                    Err(LinuxError::ChangedByOthers { .. }) => {
                        let left = self.available.iter().filter(|left| *left != order);
                        self.available = left.collect();
                    }
                    Err(error) => return Err(error),
                },
                (false, true) => {
                    self.settings.put_back(&page_size_enabled_file(&self.thp, order))?;
                    self.on = self.on.iter().filter(|on| *on != order).collect();
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Switches a size on unless it is on already; never for less memory than was found.
    fn switch_size_on(&self, order: PageOrder) -> Result<()> {
        let found = read_page_size_setting(&self.thp, order).and_then(|state| state.given_to);
        if found.is_some_and(|found| found >= self.given_to) {
            return Ok(());
        }
        let file = page_size_enabled_file(&self.thp, order);
        self.settings.set(&file, self.given_to.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine_lease::thp_settings::testing::TestFolder;
    use crate::machine_lease::thp_settings::{KernelSettingsGuard, read_setting};
    use hawkeye_test_support::event_constructors::process_with_pid;

    const SIZES: [u64; 3] = [16, 64, 128];

    fn orders(kib: &[u64]) -> PageOrderSet {
        let order = |kib: &u64| PageOrder::from_bytes(kib << 10);
        kib.iter().filter_map(order).collect()
    }

    struct FakeSwitches {
        folder: TestFolder,
        guard: KernelSettingsGuard,
    }

    impl FakeSwitches {
        /// `words`: the settings for all sizes, and for each of [`SIZES`].
        fn new(name: &str, for_all: &str, words: [&str; 3]) -> Self {
            let folder = TestFolder::new(name);
            folder.file("enabled", for_all);
            for (kib, word) in SIZES.iter().zip(words) {
                folder.file(&format!("hugepages-{kib}kB/enabled"), word);
            }
            let guard = folder.guard();
            Self { folder, guard }
        }

        fn switches(&self, given_to: ThpMode) -> PageSizeSwitches {
            let thp = self.folder.0.clone();
            PageSizeSwitches::new(thp, self.guard.handle(), given_to, orders(&SIZES))
        }

        fn set(&self) -> Vec<String> {
            let read = |kib| {
                let file = format!("hugepages-{kib}kB/enabled");
                read_setting(&self.folder.0.join(file)).expect("the file can be read")
            };
            SIZES.map(read).to_vec()
        }
    }

    #[test]
    fn a_size_is_on_while_any_process_wants_it() -> Result<()> {
        let machine = FakeSwitches::new("union", "madvise", ["never"; 3]);
        let mut switches = machine.switches(ThpMode::Always);
        switches.request_fault_sizes(process_with_pid(1), orders(&[64]))?;
        switches.request_fault_sizes(process_with_pid(2), orders(&[64, 128]))?;
        assert_eq!(machine.set(), ["never", "always", "always"]);
        switches.request_fault_sizes(process_with_pid(2), PageOrderSet::NONE)?;
        assert_eq!(machine.set(), ["never", "always", "never"]);
        switches.retain_processes(|there| there == process_with_pid(2))?;
        assert_eq!(machine.set(), ["never"; 3]);
        switches.request_fault_sizes(process_with_pid(3), orders(&[16]))?;
        drop(machine.guard);
        let left = read_setting(&machine.folder.0.join("hugepages-16kB/enabled"))?;
        assert_eq!(left, "never", "a dropped switch is off");
        Ok(())
    }

    #[test]
    fn wider_settings_stay_and_narrower_inherited_ones_are_set() -> Result<()> {
        let found = [["always", "inherit", "never"], ["never", "inherit", "madvise"]];
        for (given_to, found, set) in [
            (ThpMode::Madvise, found[0], ["always", "inherit", "madvise"]),
            (ThpMode::Always, found[1], ["always"; 3]),
        ] {
            let machine = FakeSwitches::new("stays", "madvise", found);
            let mut switches = machine.switches(given_to);
            switches.request_fault_sizes(process_with_pid(1), orders(&SIZES))?;
            assert_eq!(machine.set(), set);
            switches.request_fault_sizes(process_with_pid(1), PageOrderSet::NONE)?;
            assert_eq!(machine.set(), found);
        }
        Ok(())
    }

    #[test]
    fn without_consent_no_setting_is_changed() -> Result<()> {
        let machine = FakeSwitches::new("off", "madvise", ["never"; 3]);
        let mut switches = machine.switches(ThpMode::Never);
        assert!(switches.switchable_sizes().is_empty());
        switches.request_fault_sizes(process_with_pid(1), orders(&SIZES))?;
        assert_eq!(machine.set(), ["never"; 3]);
        Ok(())
    }
}
