//! Page sizes that the policy may choose, and what is learned of programs.

use super::LinuxMachine;
use crate::learned::{Learned, Notebook};
use crate::page_sizes::{SizeSwitches, SizesSeen};
use crate::probe::small_pages::TouchCosts;
use hawkeye_manager::Machine;

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
