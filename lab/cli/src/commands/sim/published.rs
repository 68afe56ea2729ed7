//! Published tables, by name.

use super::output::print_json;
use anyhow::{Result, bail};
use serde::Serialize;
use std::fmt::Display;

/// Simulates the named tables (without names, all of them). Prints each when it is done, or, for
/// JSON, all at the end.
pub fn simulate<T, R: Display + Serialize>(
    tables: &[T],
    name_of: impl Fn(&T) -> &str,
    wanted: &[String],
    json: bool,
    run: impl Fn(&T) -> Result<R>,
) -> Result<Vec<R>> {
    let known: Vec<&str> = tables.iter().map(&name_of).collect();
    for name in wanted {
        if !known.contains(&name.as_str()) {
            bail!("there is no table {name:?}; there are {}", known.join(", "));
        }
    }
    let mut reports = Vec::new();
    for table in tables {
        if !wanted.is_empty() && !wanted.iter().any(|name| name == name_of(table)) {
            continue;
        }
        let report = run(table)?;
        if !json {
            println!("{report}");
        }
        reports.push(report);
    }
    if json {
        print_json(&reports)?;
    }
    Ok(reports)
}
