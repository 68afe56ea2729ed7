//! Keeps a server and its client on separate cores. Otherwise the scheduler sometimes runs both on
//! one core for seconds, and the measurement shows that instead.

use hawkeye_workload::core_set::CoreSet;

#[derive(Clone, Copy, Debug)]
pub(super) struct ClientServerCores {
    pub(super) client: CoreSet,
    pub(super) server: CoreSet,
}

impl ClientServerCores {
    /// The first core for the client, all others for the server; `None` if there is only one.
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
