use super::*;
use crate::error::LinuxError;
use crate::memory::prezeroing::KernelPrezeroingState;
use crate::probe::host_facts::KernelLockdown;
use crate::probe::kernel_checks::TryFailure;
use crate::probe::mthp_sizes::tests::size;
use hawkeye_policy::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES};

impl KernelFacts {
    /// A host on which everything works.
    pub(crate) fn all_work() -> Self {
        let works = || KernelCheckResult::Works;
        let host = HostFacts {
            kernel: "6.18.0".into(),
            missing_capabilities: vec![],
            container: None,
            lockdown: KernelLockdown::None,
            base_page_bytes: BASE_PAGE_BYTES,
            huge_page_bytes: Some(HUGE_PAGE_BYTES),
            thp_enabled: Some("madvise".into()),
            own_thp_disabled: false,
            cgroup: Some("version 2".into()),
            psi: true,
            swap_bytes: 1 << 30,
        };
        let prezeroing = PrezeroingFacts::There(KernelPrezeroingState {
            active: true,
            module: None,
            zones: Vec::new(),
        });
        Self {
            page_table_levels: Some(4),
            first_touch_ns: 10,
            small_pages: vec![size(4, works(), [2, 3, 9])],
            ..Self::all_alike(host, works, prezeroing)
        }
    }
}

#[test]
fn an_error_in_a_primitive_that_is_optional_ends_no_start() {
    let failed = check_optional(|| Err(TryFailure::ChildFailed(LinuxError::NoSuchProcess(7))));
    assert!(matches!(failed, KernelCheckResult::Fails(_)), "{failed:?}");
    assert_eq!(check_optional(|| skipped_try("no")), KernelCheckResult::NotTried("no".into()));
    assert!(check_optional(|| Ok(())).works());
}
