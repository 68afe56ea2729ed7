//! `hawkeye report`: its output for good and bad recordings, and its page in a browser.

mod browser;
mod errors;
mod page;
mod recordings;
