//! Itanium Linux: the machine against a plain model of it, and against what the thesis says must come out exactly.

mod agree;
mod kernel;
mod plain;
mod policies;
mod thesis;
