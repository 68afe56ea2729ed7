//! Itanium Linux: the machine against a plain model of it, and against the thesis' exact results.

mod agree;
mod kernel;
mod plain;
mod policies;
mod thesis;
