//! The program `hawkeye`.
fn main() {}
