//! Pages by size, as a table.

use super::{LEAST, column_width, format_bytes};
use crate::commands::sim::run_result::RunResult;
use anyhow::Result;
use hawkeye_policy::PageOrder;
use hawkeye_sim::engine::ProgramFigures;

/// Whether a program had only base and huge pages.
fn has_only_base_and_huge(program: &ProgramFigures) -> bool {
    let usual = [PageOrder::BASE, PageOrder::HUGE].map(PageOrder::bytes);
    let mut sizes = program.sizes.iter();
    sizes.all(|size| usual.contains(&size.page_bytes))
}

/// Prints a line for each size of each program that had other pages than base and huge ones.
pub fn print_page_size_table(entries: &[RunResult]) -> Result<()> {
    let rows = || {
        entries.iter().flat_map(|entry| {
            let programs = entry.run.figures.all_programs();
            programs.filter(|p| !has_only_base_and_huge(p)).map(move |p| (entry, p))
        })
    };
    if rows().next().is_none() {
        return Ok(());
    }
    let first = entries.first().map_or("", |entry| &entry.parameter);
    let varied = column_width(first.chars().count(), rows().map(|(e, _)| e.value.as_str()));
    // The varied parameter, if there is one, has a column of its own.
    let varied = varied + usize::from(varied > 0);
    let workload = column_width(LEAST - 1, rows().map(|(e, _)| e.run.workload.as_str()));
    let system = column_width(LEAST, rows().map(|(e, _)| e.run.system.as_str()));
    let program = column_width(LEAST, rows().map(|(_, p)| p.name.as_str()));
    print_line!("");
    print_line!(
        "{first:<varied$}{:<workload$} {:<system$} {:<program$} {:>8} {:>10} {:>10} {:>10} {:>10}",
        "workload",
        "system",
        "program",
        "pages",
        "faults",
        "fallbacks",
        "at end",
        "on average"
    );
    for (entry, figures) in rows() {
        for size in &figures.sizes {
            let order = PageOrder::from_bytes(size.page_bytes);
            print_line!(
                "{:<varied$}{:<workload$} {:<system$} {:<program$} {:>8} {:>10} {:>10} {:>10} {:>10}",
                entry.value,
                entry.run.workload,
                entry.run.system,
                figures.name,
                order.unwrap_or_default().to_string(),
                size.faults,
                size.fallbacks,
                format_bytes(size.mapped_end_bytes),
                format_bytes(size.mapped_mean_bytes),
            );
        }
    }
    Ok(())
}
