//! Tests that cannot run on this machine, by their names in the test harness.

use std::collections::HashSet;
use std::fs::OpenOptions;
use std::io::Write;
use std::process::Command;
use std::sync::{Mutex, OnceLock};

/// Environment variable with the path of a file to which each skipped test adds one line, "NAME:
/// WHY" (`scripts/test.sh`).
pub const VARIABLE: &str = "HAWKEYE_SKIPPED_TESTS";

/// The name of a test of this program. Only [`this_test!`](crate::this_test) makes one: the
/// compiler knows the name, and the harness's own list confirms it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TestName(&'static str);

/// The name of the test that contains this call.
///
/// # Panics
/// The call is not in the body of a test.
#[macro_export]
macro_rules! this_test {
    () => {{
        fn here() {}
        $crate::test_skips::TestName::containing(here)
    }};
}

impl TestName {
    /// The test around an item named `here`.
    ///
    /// # Panics
    /// There is no test around it.
    #[doc(hidden)]
    pub fn containing<T>(_here: T) -> Self {
        let path = std::any::type_name::<T>();
        let name = test_name_in_path(path);
        assert!(
            listed_tests().contains(name),
            "this_test!() must be called in the body of a test, and {path} is not in one"
        );
        Self(name)
    }

    /// The name in the harness's list.
    pub fn name(self) -> &'static str {
        self.0
    }

    /// Records that this test cannot run here.
    ///
    /// # Panics
    /// The file that `HAWKEYE_SKIPPED_TESTS` names cannot be written.
    pub fn skip(self, why: &str) {
        static NOTED: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
        let mut noted = NOTED.lock().unwrap_or_else(|broken| broken.into_inner());
        // Only once, because lines are counted.
        if !noted.get_or_insert_default().insert(self.0) {
            return;
        }
        let line = format!("{}: {}", self.0, why.replace('\n', " "));
        eprintln!("SKIPPED {line}");
        if let Some(path) = std::env::var_os(VARIABLE) {
            let file = OpenOptions::new().create(true).append(true).open(path);
            let mut file = file.expect("the file of skipped tests opens");
            file.write_all(format!("{line}\n").as_bytes()).expect("the skipped test is recorded");
        }
    }
}

/// `module::test` of `program::module::test::{{closure}}::here`.
fn test_name_in_path(path: &str) -> &str {
    let path = path.split_once("::").map_or(path, |(_, rest)| rest);
    let path = path.strip_suffix("::here").unwrap_or(path);
    path.split("::{{closure}}").next().unwrap_or(path)
}

fn listed_tests() -> &'static HashSet<String> {
    static LISTED: OnceLock<HashSet<String>> = OnceLock::new();
    LISTED.get_or_init(|| {
        let program = std::env::current_exe().expect("the path of the test program is known");
        let output = Command::new(program).arg("--list").output();
        let output = output.expect("the test program starts");
        let text = String::from_utf8_lossy(&output.stdout);
        let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
        names.map(str::to_owned).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_knows_its_name() {
        let name = "test_skips::tests::a_test_knows_its_name";
        assert_eq!(this_test!().name(), name);
        let in_a_closure = || this_test!().name();
        assert_eq!(in_a_closure(), name);
    }

    fn not_a_test() -> TestName {
        this_test!()
    }

    #[test]
    #[should_panic(expected = "must be called in the body of a test")]
    fn a_function_that_is_not_a_test_has_no_name() {
        not_a_test();
    }

    #[test]
    fn the_name_is_the_path_without_program_and_item() {
        assert_eq!(test_name_in_path("live::attach::it_ends::here"), "attach::it_ends");
        let closure = "live::attach::it_ends::{{closure}}::{{closure}}::here";
        assert_eq!(test_name_in_path(closure), "attach::it_ends");
        assert_eq!(test_name_in_path("page::it_opens::here"), "it_opens");
    }
}
