//! `hawkeye report`: what it says of recordings, good and bad, and its page in a browser.

mod browser;
mod errors;
mod page;
mod recordings;
