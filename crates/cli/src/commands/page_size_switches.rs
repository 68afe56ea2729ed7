//! Lets the policy choose page sizes at first touches, if that is wanted and the kernel can do it.

use anyhow::Result;
use hawkeye_linux::machine_lease::thp_settings::{KernelSettingsGuard, THP_DIR};
use hawkeye_linux::page_sizes::{PageSizeSwitches, ThpMode};
use hawkeye_linux::probe::mthp_sizes::{
    FirstTouchCosts, derive_first_touch_costs, try_mthp_sizes, working_page_sizes,
};
use hawkeye_linux::test_costs;

pub type ProbedSizeSwitches = (PageSizeSwitches, Option<FirstTouchCosts>);

/// Tries the sizes on a temporary child process. Where none works, prints that and chooses nothing.
pub fn probe_page_size_switches(
    consent: ThpMode,
    settings: &mut KernelSettingsGuard,
) -> Result<Option<ProbedSizeSwitches>> {
    if consent == ThpMode::Never {
        return Ok(None);
    }
    let facts = try_mthp_sizes(Some(settings))?;
    let available = working_page_sizes(&facts);
    if available.is_empty() {
        tracing::warn!(
            "no page size between 4 KiB and 2 MiB works here (see `hawkeye doctor`): --small-pages has no effect"
        );
        return Ok(None);
    }
    let switches = PageSizeSwitches::new(THP_DIR.into(), settings.handle(), consent, available);
    let given = test_costs::configured_test_costs()?.and_then(|costs| costs.touches);
    Ok(Some((switches, given.or_else(|| derive_first_touch_costs(&facts)))))
}
