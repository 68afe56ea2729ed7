//! The machine, which tests use one at a time, with costs that are the same on every host.

use crate::settings::Changed;
use crate::time_limits::{from_environment, is_emulated};
use hawkeye_linux::probe::{self, KernelDecision, KernelFacts, ProbeExtent};
use hawkeye_linux::{RecoveryMethod, test_costs};
use hawkeye_test_support::test_skips::TestName;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Once, OnceLock};

/// The machine for one test, with a state folder of its own and the kernel's default settings.
pub struct TestMachine {
    // Declared before the turn, so that the settings are restored before the next test starts.
    _settings: Changed,
    _turn: Flock<File>,
    /// The state folder of the managers that the test starts.
    pub state: PathBuf,
    costs: CostsFile,
}

impl Drop for TestMachine {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.state);
    }
}

/// Costs of promotions and walks, for every manager that the test starts.
struct CostsFile(PathBuf);

impl CostsFile {
    fn write(&self, costs: &Value) {
        std::fs::write(&self.0, costs.to_string()).expect("the costs can be written");
    }
}

impl Drop for CostsFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl TestMachine {
    /// Sets this machine's state folder and costs for a command.
    pub fn set_up(&self, command: &mut Command) {
        command.env("HAWKEYE_STATE_DIR", &self.state);
        command.env(test_costs::VARIABLE, &self.costs.0);
    }

    /// Changes the cost of a promotion from now on; all other costs are the usual ones.
    ///
    /// # Panics
    /// The file can't be written.
    pub fn promotions_cost(&self, us: u64) {
        self.costs.write(&costs(us));
    }
}

/// Waits until no other live test runs, in this process or in another one. The first wait of a
/// process is reported: the other test may hang.
fn wait_for_turn() -> Flock<File> {
    static REPORTED: Once = Once::new();
    let path = std::env::temp_dir();
    let folder = File::open(&path).expect("the folder can be opened");
    match Flock::lock(folder, FlockArg::LockExclusiveNonblock) {
        Ok(turn) => turn,
        Err((folder, Errno::EWOULDBLOCK)) => {
            // Not `eprintln!`, which the harness shows only after the test.
            REPORTED.call_once(|| {
                let at = path.display();
                let _ = writeln!(std::io::stderr(), "a live test waits: another one locks {at}");
            });
            Flock::lock(folder, FlockArg::LockExclusive).expect("the folder can be locked")
        }
        Err((_, errno)) => panic!("the folder cannot be locked: {errno}"),
    }
}

/// Takes the machine for a test. `None`, and the test counts as skipped, where it can't be managed.
///
/// # Panics
/// A file of the test can't be written.
pub fn machine(test: TestName) -> Option<TestMachine> {
    static TURNS: AtomicU32 = AtomicU32::new(0);
    let turn = wait_for_turn();
    let count = TURNS.fetch_add(1, Ordering::Relaxed);
    // Short, because the path of a socket in it is limited to 107 bytes.
    let name = format!("hawkeye-live-{}-{count}", std::process::id());
    let state = std::env::temp_dir().join(name);
    let costs_file = CostsFile(state.with_extension("costs.json"));
    costs_file.write(&costs(promotion_us()));
    // Before anything reads them: they are read once.
    test_costs::configure_test_costs_from_file(&costs_file.0).expect("the costs can be read");
    if let Some(why) = why_unmanageable() {
        test.skip(&why);
        return None;
    }
    std::fs::create_dir_all(&state).expect("a temporary folder");
    let settings = Changed::to_defaults();
    Some(TestMachine { _settings: settings, _turn: turn, state, costs: costs_file })
}

/// Like `machine`, for tests that depend on how many processors really run at the same time.
pub fn machine_at_speed(test: TestName) -> Option<TestMachine> {
    at_speed(test).then(|| machine(test))?
}

/// Whether such a test can show anything here; otherwise it counts as skipped.
pub fn at_speed(test: TestName) -> bool {
    let is_emulated = is_emulated();
    if is_emulated {
        test.skip("it depends on how fast the machine is, which is emulated");
    }
    !is_emulated
}

/// Like `machine`, for tests that need a kernel that gives zero pages back without swap. `why`
/// explains what other kernels do.
pub fn machine_with_remap(test: TestName, why: &str) -> Option<TestMachine> {
    let machine = machine(test)?;
    if !remaps() {
        test.skip(why);
        return None;
    }
    Some(machine)
}

/// Like `machine`, for tests that need a capability of some kernels, by the doctor's name for it.
/// It is one that managers look for (`ProbeExtent::ForManaging`). For every test skipped `without`
/// a capability, `.ci/run` checks with the doctor that it is missing.
///
/// # Panics
/// There is no such capability.
pub fn machine_with(test: TestName, capability: &str) -> Option<TestMachine> {
    let machine = machine(test)?;
    let mut capabilities = decision().ok()?.capabilities.into_iter();
    let found = capabilities.find(|c| c.name == capability);
    let found = found.expect("the probe knows the capability");
    if !found.available {
        test.skip(&format!("without {capability}: {}", found.found));
        return None;
    }
    Some(machine)
}

/// Whether this kernel gives zero pages back without swap.
pub fn remaps() -> bool {
    matches!(decision(), Ok(decision) if decision.recovery == RecoveryMethod::SplitRemaps)
}

/// Cost of a promotion in these tests unless a test sets another, in microseconds.
/// `HAWKEYE_TEST_PROMOTION_US` simulates a faster or slower machine.
fn promotion_us() -> u64 {
    from_environment("HAWKEYE_TEST_PROMOTION_US", 400)
}

/// The costs that policies use, the same on every host. Random readers lose at least a tenth of
/// their time to page walks, however slow they are. Sequential readers lose too little for a
/// promotion to pay.
fn costs(promotion_us: u64) -> Value {
    let at = |mib: u64, independent_ns: f64, dependent_ns: f64| {
        json!({
            "footprint_bytes": mib << 20,
            "independent_ns": independent_ns,
            "dependent_ns": dependent_ns,
        })
    };
    json!({
        "first_touch_ns": 50,
        "promotion_us": promotion_us,
        "walks": {
            "by_footprint": [at(64, 6.0, 60.0), at(4096, 24.0, 270.0)],
            "by_distance": [
                {"apart_ns": 20.0, "walk_ns": 24.0},
                {"apart_ns": 250.0, "walk_ns": 270.0},
            ],
            "streamed": [{"apart_ns": 20.0, "walk_ns": 0.5}],
            "strided": [{"apart_ns": 20.0, "walk_ns": 0.5}],
            "data_independent_ns": 12.0,
            "data_dependent_ns": 160.0,
            "tlb_pages": 2048,
            "tlb_huge_pages": 2048,
        },
        "touches": {"fault_ns": 500.0, "zero_base_ns": 200.0, "touch_ns": 30.0},
    })
}

fn why_unmanageable() -> Option<String> {
    match decision() {
        Ok(decision) if decision.can_manage => None,
        Ok(decision) => Some(decision.verdict),
        Err(error) => Some(error.to_owned()),
    }
}

/// What the probe of this machine decides.
fn decision() -> Result<KernelDecision, &'static str> {
    facts().map(probe::decide_with_best_sampler)
}

/// What the probe finds on this machine. It runs once.
pub(crate) fn facts() -> Result<&'static KernelFacts, &'static str> {
    static FACTS: OnceLock<Result<KernelFacts, String>> = OnceLock::new();
    let facts = FACTS.get_or_init(|| {
        let probed = probe::gather_kernel_facts(ProbeExtent::ForManaging, None);
        probed.map(|probed| probed.facts).map_err(|error| error.to_string())
    });
    facts.as_ref().map_err(String::as_str)
}
