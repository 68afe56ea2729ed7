//! Lets the policy choose page sizes at first touches, where that was asked for and works.

use anyhow::Result;
use hawkeye_linux::LinuxMachine;
use hawkeye_linux::page_sizes::{GivenTo, SizeSwitches};
use hawkeye_linux::probe::small_pages::{touch_costs, try_sizes, working};
use hawkeye_linux::probe::touch_costs::TouchCosts;
use hawkeye_linux::takeover::thp_settings::{SettingsGuard, THP_DIR};
use hawkeye_linux::test_costs;

/// Sizes that were seen to work, and what they cost.
#[derive(Default)]
pub struct Choosing {
    offered: Option<(SizeSwitches, Option<TouchCosts>)>,
}

impl Choosing {
    /// Tries the sizes on a throw-away child. Where none works that is said, and nothing is chosen.
    pub fn prepare(consent: GivenTo, settings: &mut SettingsGuard) -> Result<Self> {
        if consent == GivenTo::Nobody {
            return Ok(Self::default());
        }
        let facts = try_sizes(Some(settings))?;
        let available = working(&facts);
        if available.is_empty() {
            tracing::warn!(
                "no pages between 4 KiB and 2 MiB can be given here (see `hawkeye doctor`): --small-pages changes nothing"
            );
            return Ok(Self::default());
        }
        let switches = SizeSwitches::new(THP_DIR.into(), settings.handle(), consent, available);
        let given = test_costs::given()?.and_then(|costs| costs.touches);
        Ok(Self {
            offered: Some((switches, given.or_else(|| touch_costs(&facts)))),
        })
    }

    /// Hands them over to the machine.
    pub fn attach(self, machine: &mut LinuxMachine) {
        if let Some((switches, costs)) = self.offered {
            machine.choose_sizes_with(switches, costs);
        }
    }
}
