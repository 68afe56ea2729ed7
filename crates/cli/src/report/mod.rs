//! Recordings, summed up for people: a recording's rows become figures on fixed grids, however long it is, and these become text, SVG, a
//! page and JSON.
//!
//! A recording is read twice: to find out how far it reaches (`extent.rs`), and to sum it up on grids over that (`summing.rs`). The rest is
//! pure: figures to words and pictures.

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
