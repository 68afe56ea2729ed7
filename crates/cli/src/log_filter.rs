//! Which messages are logged: the environment variable `HAWKEYE_LOG`.
//!
//! It holds levels and targets separated by commas, as in `warn,hawkeye_linux=debug`. A level alone
//! (`off`, `error`, `warn`, `info`, `debug`, `trace`) holds for every target that is not named.
//! Spans can't be named: there are none.

use crate::commands::daemon::RELOAD_LOG_TARGET;
use crate::output::print_to_stderr;
use tracing_subscriber::filter::{LevelFilter, ParseError, Targets};

const VARIABLE: &str = "HAWKEYE_LOG";
const USUAL: LevelFilter = LevelFilter::WARN;
/// Every valid target is a module of one of our crates.
const OUR_CRATES: &str = "hawkeye";

/// The filter of the environment variable. If it is wrong: a warning, and the default.
pub fn filter_from_environment() -> Targets {
    let usual = default_filter();
    let Some(text) = std::env::var_os(VARIABLE).filter(|text| !text.is_empty()) else {
        return usual;
    };
    parse_filter(&text.to_string_lossy()).unwrap_or_else(|why| {
        print_to_stderr(&format!("hawkeye: {VARIABLE} is ignored: {why}\n"));
        usual
    })
}

/// The default: warnings, and the answer to a user's request to reload the configuration.
fn default_filter() -> Targets {
    Targets::new().with_default(USUAL).with_target(RELOAD_LOG_TARGET, LevelFilter::INFO)
}

fn parse_filter(text: &str) -> Result<Targets, String> {
    let filter: Targets = text.parse().map_err(|e: ParseError| e.to_string())?;
    // A misspelt level parses as a target that does not exist.
    let mut targets = filter.iter().map(|(target, _)| target.to_owned());
    match targets.find(|target| !target.starts_with(OUR_CRATES)) {
        None => Ok(filter),
        Some(target) => Err(format!(
            "{target:?} is neither a level (off, error, warn, info, debug, trace) nor a module of HawkEye (such as hawkeye_linux)"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn levels_and_targets_are_parsed() {
        let filter = parse_filter("warn,hawkeye_linux=debug,hawkeye::daemon=trace")
            .expect("the filter is valid");
        assert!(filter.would_enable("hawkeye_linux::processes::proc_scanner", &Level::DEBUG));
        assert!(!filter.would_enable("hawkeye_linux", &Level::TRACE));
        assert!(filter.would_enable("hawkeye::daemon::server", &Level::TRACE));
        assert!(filter.would_enable("hawkeye_manager", &Level::WARN));
        assert!(!filter.would_enable("hawkeye_manager", &Level::INFO));
        let filter = parse_filter("DEBUG").expect("the filter is valid");
        assert!(filter.would_enable("hawkeye_policy", &Level::DEBUG));
        let filter = parse_filter("hawkeye_manager").expect("the filter is valid");
        assert!(filter.would_enable("hawkeye_manager", &Level::TRACE));
        assert!(!filter.would_enable("hawkeye_linux", &Level::ERROR));
    }

    #[test]
    fn reloads_are_shown_by_default() {
        assert!(default_filter().would_enable(RELOAD_LOG_TARGET, &Level::INFO));
        assert!(!default_filter().would_enable("hawkeye_linux", &Level::INFO));
        assert!(default_filter().would_enable("hawkeye_linux", &Level::WARN));
    }

    #[test]
    fn errors_name_the_wrong_part() {
        for (wrong, said) in [
            ("debgu", "\"debgu\" is neither a level"),
            ("info,[span]=debug", "\"[span]\" is neither"),
            ("hawkeye_linux=loud", "level"),
            ("hawkeye=debug=info", "too many '='"),
        ] {
            let why = parse_filter(wrong).expect_err(wrong);
            assert!(why.contains(said), "{wrong}: {why}");
        }
    }
}
