//! Lets the policy choose page sizes at first touches, if that is wanted and the kernel can do it.

use anyhow::Result;
use hawkeye_linux::page_sizes::{GivenTo, SizeSwitches};
use hawkeye_linux::probe::small_pages::{touch_costs, try_sizes, working};
use hawkeye_linux::probe::touch_costs::TouchCosts;
use hawkeye_linux::takeover::thp_settings::{SettingsGuard, THP_DIR};
use hawkeye_linux::test_costs;

/// Sizes that the probe found to work, and their costs.
pub type Offered = (SizeSwitches, Option<TouchCosts>);

/// Tries the sizes on a temporary child process. Where none works, prints that and chooses nothing.
pub fn offer(consent: GivenTo, settings: &mut SettingsGuard) -> Result<Option<Offered>> {
    if consent == GivenTo::Nobody {
        return Ok(None);
    }
    let facts = try_sizes(Some(settings))?;
    let available = working(&facts);
    if available.is_empty() {
        tracing::warn!(
            "no page size between 4 KiB and 2 MiB works here (see `hawkeye doctor`): --small-pages has no effect"
        );
        return Ok(None);
    }
    let switches = SizeSwitches::new(THP_DIR.into(), settings.handle(), consent, available);
    let given = test_costs::given()?.and_then(|costs| costs.touches);
    Ok(Some((switches, given.or_else(|| touch_costs(&facts)))))
}
