//! Summaries of recordings. The rows become figures on fixed grids, however long the recording is.
//! These become text, SVG, a page and JSON.
//!
//! ```text
//!               1st reading        2nd reading
//!  rows of a --> extent: how far --> report_builder --> RecordingReport --> text  (terminal)
//!  recording     it reaches           |                                |--> JSON  (--json)
//!                                     |-- series    means              |--> plots --> svg
//!                                     |-- heat_map  coverage           `--> page  (HTML, with SVG)
//!                                     `-- decisions
//! ```
//! Only the two readings see rows. The rest is pure.

mod decisions;
mod extent;
mod figures;
mod heat_map;
mod page;
mod plots;
mod report_builder;
mod series;
mod svg;
mod text;

pub use extent::RecordingExtent;
pub use figures::RecordingReport;
pub use page::page;
pub use plots::figures;
pub use report_builder::ReportBuilder;
pub use text::ReportText;

#[cfg(test)]
mod tests;
