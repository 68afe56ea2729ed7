//! Summaries of recordings. The rows become figures on fixed grids, however long the recording is.
//! These become text, a page and JSON.
//!
//! ```text
//!               1st reading           2nd reading
//!  rows of a --> recording_extent: --> report_builder --> RecordingReport
//!  recording     how far it reaches     |                  |--> report_text (terminal)
//!                                       |-- time_series    |--> JSON (--json)
//!                                       |     means        `--> html_page
//!                                       |-- heat_map
//!                                       |     coverage
//!                                       |-- memory_by_kind
//!                                       `-- decisions
//! ```
//! Only the two readings see rows. The rest is pure.

mod decisions;
mod heat_map;
mod html_page;
mod memory_by_kind;
mod recording_extent;
mod recording_report;
mod report_builder;
mod report_text;
mod time_series;

pub use html_page::html_page;
pub use recording_extent::RecordingExtent;
pub use recording_report::RecordingReport;
pub use report_builder::ReportBuilder;
pub use report_text::report_text;

#[cfg(test)]
mod tests;
