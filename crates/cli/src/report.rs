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
mod heat;
mod page;
mod pictures;
mod series;
mod summing;
mod svg;
mod text;

pub use extent::Extent;
pub use figures::Report;
pub use page::page;
pub use pictures::figures;
pub use summing::Summing;
pub use text::Text;

#[cfg(test)]
mod tests;
