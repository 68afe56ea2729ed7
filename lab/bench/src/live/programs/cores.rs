//! Keeps a server and its client on cores of their own. Left to itself the scheduler now and then has one
//! waken the other on the same core for seconds, and then it is that which is measured.

use hawkeye_workload::core_set::CoreSet;

/// The cores of a client and those of its server; nothing where there is only one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cores {
    pub(super) client: CoreSet,
    pub(super) server: CoreSet,
}

impl Cores {
    /// The first core for the client, all others for the server.
    pub(super) fn divided() -> Option<Self> {
        match CoreSet::allowed().split_first() {
            Some((client, server @ [_, ..])) => Some(Self {
                client: CoreSet::of(&[*client])?,
                server: CoreSet::of(server)?,
            }),
            _ => None,
        }
    }
}
