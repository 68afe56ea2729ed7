//! Tests of fast translation: against a plain model of the same rules, the exact model, and by
//! hand.

mod agree;
mod exact;
mod golden;
mod groups;
mod mapping;
mod plain;
