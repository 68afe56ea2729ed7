//! Page sizes that the policy may choose, and what is learned of programs.

use super::LinuxMachine;
use crate::error::LinuxError;
use crate::page_sizes::{SizeSwitches, SizesSeen};
use crate::prefault::learned::{Learned, Notebook};
use crate::probe::touch_costs::TouchCosts;
use hawkeye_manager::{FaultPageSizes, LearnedSizes, Machine, MachineError};
use hawkeye_policy::{PageOrders, ProcessId};

impl LinuxMachine {
    /// Keeps what is learned of programs, and uses what is known of them, from now on.
    pub fn learn(&mut self, learned: Learned) {
        self.notebook = Some(Notebook::new(learned));
    }

    /// Management is over: writes down what was learned of those who are still there.
    pub fn finish_learning(&mut self) {
        let now = self.now();
        let sizes = self.sizes_seen().unwrap_or_default().sizes;
        if let Some(notebook) = &mut self.notebook {
            notebook.finish(now, || sizes);
        }
    }

    /// Has the policy choose among page sizes at first touches from now on.
    pub fn choose_sizes_with(&mut self, switches: SizeSwitches, costs: Option<TouchCosts>) {
        self.sizing.choose_with(switches, costs);
    }

    /// By pages of which sizes managed processes are mapped, as last seen; `None` where nobody is given others than base
    /// and huge pages.
    pub fn sizes_seen(&self) -> Option<SizesSeen> {
        self.sizing.seen(self.now())
    }

    /// Looks at that once more, as far as processes are still there.
    pub fn look_at_sizes(&mut self) {
        let now = self.now();
        self.sizing.look_again(self.members.order(), now);
    }
}

impl FaultPageSizes for LinuxMachine {
    fn set_fault_sizes(
        &mut self,
        process: ProcessId,
        orders: PageOrders,
    ) -> Result<(), MachineError> {
        let failed = |error: LinuxError| error.for_process(process);
        self.sizing.set(process, orders).map_err(failed)?;
        let now = self.now();
        // None: memory may be short, which tells nothing of the program.
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
