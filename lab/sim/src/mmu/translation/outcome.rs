//! How far accesses got, and what stopped them.

use super::access::Access;
use super::mappings::Mappings;
use super::sizes::LeafSize;
use super::state::RegionState;

/// Why an access could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No page is mapped there.
    Unmapped(Access),
    /// A store to a page that can only be loaded from.
    Protected(Access),
}

/// How far a batch got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Accesses made, from the first on. The next one faulted, if there is a fault.
    pub accesses: usize,
    /// What stopped it. Accesses go on from there once it is resolved.
    pub fault: Option<Fault>,
}

/// How far sweeps got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swept {
    /// Sweeps made as a whole, from the first on.
    pub sweeps: usize,
    /// Accesses made of the next one.
    pub of_next: u64,
    /// What stopped it.
    pub fault: Option<Fault>,
}

/// Whether a page can be stored to, where not all of its region can; or why the access faults.
#[cold]
pub(super) fn check(
    mappings: &Mappings,
    page: u32,
    state: RegionState,
    access: Access,
) -> Result<bool, Fault> {
    let (present, writable) = match state.size() {
        None => (false, false),
        Some(LeafSize::Base) => mappings.page(page),
        Some(_) => (true, false),
    };
    if !present {
        return Err(Fault::Unmapped(access));
    }
    if access.is_store() && !writable {
        return Err(Fault::Protected(access));
    }
    Ok(writable)
}
