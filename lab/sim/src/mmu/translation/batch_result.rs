//! Result of a batch of accesses.

use super::access::Access;
use super::mappings::Mappings;
use super::region_translation::RegionTranslation;
use super::sizes::LeafSize;

/// Why an access could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessFault {
    /// No page is mapped there.
    Unmapped(Access),
    /// A store to a page that can only be loaded from.
    Protected(Access),
}

/// Result of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchResult {
    /// Number of accesses made, from the first on. If there is a fault, the next one caused it.
    pub accesses: usize,
    /// The fault that stopped the batch. Continue with the same access once it is resolved.
    pub fault: Option<AccessFault>,
}

/// Whether a page is writable, in a region with some that are not; or why the access faults.
#[cold]
pub(super) fn check_page_access(
    mappings: &Mappings,
    page: u32,
    state: RegionTranslation,
    access: Access,
) -> Result<bool, AccessFault> {
    let (present, writable) = match state.size() {
        None => (false, false),
        Some(LeafSize::Base) => mappings.page_permissions(page),
        Some(_) => (true, false),
    };
    if !present {
        return Err(AccessFault::Unmapped(access));
    }
    if access.is_store() && !writable {
        return Err(AccessFault::Protected(access));
    }
    Ok(writable)
}
