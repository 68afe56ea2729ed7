//! Page sizes that the policy may choose, and records of programs.

use super::LinuxMachine;
use crate::error::LinuxError;
use crate::page_sizes::{SizeSwitches, SizesSeen};
use crate::prefault::learned::{Learned, Notebook};
use crate::probe::touch_costs::TouchCosts;
use hawkeye_manager::machine::Called;
use hawkeye_manager::{FaultPageSizes, LearnedSizes, Machine};
use hawkeye_policy::{PageOrders, ProcessId};

impl LinuxMachine {
    /// Keeps records of programs from now on, and uses those that exist.
    pub fn learn(&mut self, learned: Learned) {
        self.notebook = Some(Notebook::new(learned));
    }

    /// Writes the records of the processes that are still managed. Call it when management ends.
    pub fn finish_learning(&mut self) {
        let now = self.now();
        let sizes = self.sizes_seen().unwrap_or_default().sizes;
        if let Some(notebook) = &mut self.notebook {
            notebook.update(&[], now, || sizes);
        }
    }

    /// Lets the policy choose among page sizes at first touches from now on.
    pub fn choose_sizes_with(&mut self, switches: SizeSwitches, costs: Option<TouchCosts>) {
        self.sizing.choose_with(switches, costs);
    }

    /// The page sizes by which managed processes were mapped when last seen. `None` if no process
    /// gets sizes other than base and huge pages.
    pub fn sizes_seen(&self) -> Option<SizesSeen> {
        self.sizing.seen(self.now())
    }

    /// Looks at these page sizes once more, for processes that still run.
    pub fn look_at_sizes(&mut self) {
        let now = self.now();
        if let Some(looks) = &mut self.sizing.looks {
            looks.look_again(self.members.order(), now);
        }
    }
}

impl FaultPageSizes for LinuxMachine {
    fn set_fault_sizes(&mut self, process: ProcessId, orders: PageOrders) -> Called<()> {
        let failed = |error: LinuxError| error.for_process(process);
        self.sizing.set(process, orders).map_err(failed)?;
        let now = self.now();
        // An empty set can mean that memory is short, which says nothing about the program.
        if let Some(notebook) = self.notebook.as_mut().filter(|_| !orders.is_empty()) {
            notebook.note_sizes(process, orders, now);
        }
        Ok(())
    }

    fn learned_sizes(&self, process: ProcessId) -> Option<LearnedSizes> {
        let known = self.notebook.as_ref()?.known(process)?;
        Some(LearnedSizes {
            orders: known.fault_sizes()?,
            starts: known.confirmed,
        })
    }
}
