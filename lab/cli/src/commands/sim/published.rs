//! Tables that were published, by name.

use anyhow::{Result, bail};
use std::fmt::Display;

/// Simulates those tables that are named, all of them if none is, and prints each as it is done unless JSON is wanted of all of
/// them.
pub fn simulate<T, R: Display>(
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
    Ok(reports)
}
