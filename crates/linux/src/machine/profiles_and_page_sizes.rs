//! Page sizes that the policy may choose, and records of programs.

use super::LinuxMachine;
use crate::error::LinuxError;
use crate::page_sizes::{ObservedPageSizes, PageSizeSwitches};
use crate::prefault::profile_store::{ExecutableIdentity, ProfileRecorder, ProfileStore};
use crate::probe::mthp_sizes::FirstTouchCosts;
use hawkeye_manager::machine::CallResult;
use hawkeye_manager::{FaultPageSizes, LearnedFaultSizes, Machine};
use hawkeye_policy::{PageOrderSet, ProcessId};

impl LinuxMachine {
    /// Keeps records of programs from now on, and uses those that exist.
    pub fn enable_program_profiles(&mut self, learned: ProfileStore) {
        self.profile_recorder = Some(ProfileRecorder::new(learned, ExecutableIdentity::of_process));
    }

    /// Writes the records of the processes that are still managed. Call it when management ends.
    pub fn save_program_profiles(&mut self) {
        let now = self.now();
        let sizes = self.observed_page_sizes().unwrap_or_default().sizes;
        if let Some(recorder) = &mut self.profile_recorder {
            recorder.open_and_save_profiles(&[], now, || sizes);
            recorder.wait_until_saved();
        }
    }

    /// Lets the policy choose among page sizes at first touches from now on.
    pub fn enable_page_size_choice(
        &mut self,
        switches: PageSizeSwitches,
        costs: Option<FirstTouchCosts>,
    ) {
        self.sizing.enable_page_size_choice(switches, costs);
    }

    /// The page sizes by which managed processes were mapped when last seen. `None` if no process
    /// gets sizes other than base and huge pages.
    pub fn observed_page_sizes(&self) -> Option<ObservedPageSizes> {
        self.sizing.observed_page_sizes(self.now())
    }

    /// Looks at these page sizes once more, for processes that still run.
    pub fn read_page_sizes_now(&mut self) {
        let now = self.now();
        if let Some(looks) = &mut self.sizing.mapped_sizes {
            looks.read_all_waiting_briefly(self.members.processes_in_join_order(), now);
        }
    }
}

impl FaultPageSizes for LinuxMachine {
    fn set_fault_sizes(&mut self, process: ProcessId, orders: PageOrderSet) -> CallResult<()> {
        let failed = |error: LinuxError| error.into_machine_error(process);
        self.sizing.request_fault_sizes(process, orders).map_err(failed)?;
        let now = self.now();
        // An empty set can mean that memory is short, which says nothing about the program.
        if let (Some(recorder), false) = (&mut self.profile_recorder, orders.is_empty()) {
            recorder.record_fault_sizes(process, orders, now);
        }
        Ok(())
    }

    fn learned_fault_sizes(&self, process: ProcessId) -> Option<LearnedFaultSizes> {
        let known = self.profile_recorder.as_ref()?.stored_profile(process)?;
        Some(LearnedFaultSizes { orders: known.best_fault_sizes()?, starts: known.confirmed })
    }
}
