//! Published tables, by name.

use super::output_options::print_json;
use anyhow::{Result, bail};
use hawkeye_bench::experiments::ExperimentName;
use serde::Serialize;
use std::fmt::Display;

/// Simulates the named tables (without names, all of them). Prints each when it is done, or, for
/// JSON, all at the end.
pub fn simulate_named_tables<T, R: Display + Serialize>(
    tables: &[T],
    name_of: impl Fn(&T) -> ExperimentName,
    wanted: &[String],
    json: bool,
    run: impl Fn(&T) -> Result<R>,
) -> Result<Vec<R>> {
    let has_name = |table, name: &str| name_of(table).matches_name_or_alias(name);
    for name in wanted {
        if !tables.iter().any(|table| has_name(table, name)) {
            let known: Vec<String> = tables.iter().map(|t| name_of(t).to_string()).collect();
            bail!("no table {name:?}; known tables: {}", known.join(", "));
        }
    }
    let mut reports = Vec::new();
    for table in tables {
        if !wanted.is_empty() && !wanted.iter().any(|name| has_name(table, name)) {
            continue;
        }
        let report = run(table)?;
        if !json {
            print_line!("{report}");
        }
        reports.push(report);
    }
    if json {
        print_json(&reports)?;
    }
    Ok(reports)
}
