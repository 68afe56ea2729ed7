//! Sweeps vary one parameter. This module defines the parameters and how their values are written.
//!
//! A parameter is a dotted key into one of five parts of a run:
//!
//! | key | is |
//! |---|---|
//! | `machine.KEY` | `memory`, `cores`, `fragment`, `seed`, `sample`, `longest_s` |
//! | `processor.KEY` | any of the [processor](crate::mmu::ProcessorSpec)'s data: `processor.l2_tlb.shape.entries`; or `processor` alone: its name |
//! | `costs.KEY` | any of the [kernel's costs](crate::kernel::KernelCosts): `costs.zero_huge_ns` |
//! | `system.KEY` | `rate_per_s`, or any of [`SystemOverrides`](crate::SystemOverrides): `system.period_s` |
//! | `workload.KEY` | anything that a workload's file says; processes and areas by name or number from 0, phases and streams by number: `workload.process.0.area.heap.size` |

use super::mmu::translation::PageTableLevels;
use super::mmu::{PROCESSORS, ProcessorSpec};
use super::simulate::SimulationSetup;
use super::workloads::{ByteSize, WorkloadSpec, WorkloadSpecError};
use hawkeye_policy::Rate;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;
use thiserror::Error;
use toml::{Table, Value};

/// Why a list of values was rejected.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ValuesError {
    /// Neither a value nor a range.
    #[error(
        "{0:?} is not a range: write FROM..TO+STEP or FROM..TO*FACTOR, such as 0..1+0.25 or 4GiB..64GiB*2"
    )]
    Range(String),
    /// A range with too many values, or without an end.
    #[error("{0:?} has over {MOST} values: take larger steps")]
    Endless(String),
    /// An empty value.
    #[error("a value is missing between two commas of {0:?}")]
    Empty(String),
}

/// Most values of one sweep.
const MOST: usize = 10_000;

/// Reads `A,B,C`, in which each may be a range `FROM..TO+STEP` or `FROM..TO*FACTOR`, both ends
/// included. A unit may follow the numbers: `4GiB..64GiB*2`.
///
/// # Errors
/// Text that is neither; more than 10,000 values.
pub fn parse_values(text: &str) -> Result<Vec<String>, ValuesError> {
    let mut values = Vec::new();
    for item in text.split(',').map(str::trim) {
        if item.is_empty() {
            return Err(ValuesError::Empty(text.to_owned()));
        }
        if item.contains("..") {
            push_range_values(item, &mut values)?;
        } else {
            values.push(item.to_owned());
        }
    }
    Ok(values)
}

fn push_range_values(item: &str, values: &mut Vec<String>) -> Result<(), ValuesError> {
    let wrong = || ValuesError::Range(item.to_owned());
    let (from, rest) = item.split_once("..").ok_or_else(wrong)?;
    let sign = rest.rfind(['+', '*']).ok_or_else(wrong)?;
    let (to, step) = rest.split_at(sign);
    let (from, unit) = number(from).ok_or_else(wrong)?;
    let (to, to_unit) = number(to).ok_or_else(wrong)?;
    let by = step.get(1..).unwrap_or_default();
    let multiplied = step.starts_with('*');
    let (by, by_unit) = number(by).ok_or_else(wrong)?;
    let units = to_unit == unit && by_unit == if multiplied { "" } else { unit };
    let grows = if multiplied {
        by > 1.0 && from > 0.0
    } else {
        by > 0.0
    };
    if !units || !grows || from > to {
        return Err(wrong());
    }
    // Rounding may put the last value slightly beyond the end; it still counts.
    let end = to + to.abs() * 1e-9;
    let at = |n: usize| match multiplied {
        true => from * by.powi(n as i32),
        false => from + by * n as f64,
    };
    let count = (0..=MOST).take_while(|n| at(*n) <= end).count();
    if count > MOST {
        return Err(ValuesError::Endless(item.to_owned()));
    }
    values.extend((0..count).map(|n| format!("{}{unit}", rounded(at(n)))));
    Ok(())
}

/// Removes rounding errors: 0.1 + 0.2 becomes 0.3.
fn rounded(value: f64) -> f64 {
    format!("{value:.12e}").parse().unwrap_or(value)
}

/// A finite number and the unit after it.
fn number(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-'));
    let (number, unit) = text.split_at(text.len() - unit.len());
    let number: f64 = number.parse().ok()?;
    let unit = unit.trim();
    let letters = unit.chars().all(|c| c.is_ascii_alphabetic());
    (number.is_finite() && letters).then_some((number, unit))
}

type Result<T, E = SweepError> = std::result::Result<T, E>;

/// The run that a sweep varies.
#[derive(Clone, Debug)]
pub struct SweepBase {
    /// The machine.
    pub setup: SimulationSetup,
    /// Name of the workload in errors.
    pub name: String,
    /// The workload's text.
    pub text: String,
}

const MACHINE: &str =
    "memory, cores, fragment, page_table_levels, next_page_prefetch, seed, sample, longest_s";

/// A key, split at its dots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SweepParameter {
    key: String,
}

/// Why a parameter cannot be set.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum SweepError {
    /// The key's first part is unknown.
    #[error(
        "there is no parameter {0:?}: it starts with machine., processor., costs., system. or workload."
    )]
    Part(String),
    /// The part has no such key.
    #[error("there is no parameter {key:?}: {part:?} has {known}")]
    Key {
        /// The key as given.
        key: String,
        /// The prefix that was understood.
        part: String,
        /// The keys that exist there.
        known: String,
    },
    /// The parameter can't have this value.
    #[error("{key} can't be {value:?}: {message}")]
    Value {
        /// The parameter.
        key: String,
        /// The value as given.
        value: String,
        /// The reason.
        message: String,
    },
    /// The workload is invalid even without the change.
    #[error(transparent)]
    Workload(#[from] WorkloadSpecError),
}

impl SweepParameter {
    /// The parameter of this key. [`set`](Self::set) reports whether it exists.
    pub fn new(key: &str) -> Self {
        Self {
            key: key.to_owned(),
        }
    }

    /// Its key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Machine and workload with this value of the parameter.
    ///
    /// # Errors
    /// An unknown parameter, or a value that it can't have.
    pub fn set(&self, base: &SweepBase, value: &str) -> Result<(SimulationSetup, WorkloadSpec)> {
        let mut setup = base.setup;
        let mut path = self.key.split('.');
        let part = path.next().unwrap_or_default();
        let path: Vec<&str> = path.collect();
        match (part, path.as_slice()) {
            ("machine", [key]) => self.set_machine(&mut setup, key, value)?,
            ("processor", []) => setup.processor = self.processor(value)?,
            ("processor", path) => {
                let changed: ProcessorSpec = self.with_value_put(&setup.processor, path, value)?;
                setup.processor = ProcessorSpec {
                    name: setup.processor.name,
                    source: setup.processor.source,
                    ..changed
                };
            }
            ("costs", path) => setup.costs = self.with_value_put(&setup.costs, path, value)?,
            ("system", ["rate_per_s"]) => {
                let rate: f64 = self.parsed(value, "a number")?;
                let rate = Rate::per_second(rate);
                setup.rate = Some(rate.map_err(|e| self.refused_value_error(value, e))?);
            }
            ("system", path) => setup.tuning = self.with_value_put(&setup.tuning, path, value)?,
            ("workload", path) => return Ok((setup, self.workload(base, path, value)?)),
            _ => return Err(SweepError::Part(self.key.clone())),
        }
        Ok((setup, WorkloadSpec::parse(&base.name, &base.text)?))
    }

    fn set_machine(&self, setup: &mut SimulationSetup, key: &str, value: &str) -> Result<()> {
        match key {
            "memory" => {
                let size: Result<ByteSize, String> = value.parse();
                setup.memory_bytes = size.map_err(|e| self.refused_value_error(value, e))?.0;
            }
            "cores" => setup.cores = self.parsed(value, "a whole number")?,
            "page_table_levels" => {
                let levels: Result<PageTableLevels, String> = value.parse();
                setup.page_table_levels = levels.map_err(|e| self.refused_value_error(value, e))?;
            }
            "next_page_prefetch" => {
                setup.next_page_prefetch = self.parsed(value, "true or false")?;
            }
            "seed" => setup.seed = self.parsed(value, "a whole number")?,
            "sample" => setup.sample = self.parsed(value, "a whole number")?,
            "fragment" => setup.fragmented = self.parsed(value, "a number")?,
            "longest_s" => {
                let seconds = Duration::try_from_secs_f64(self.parsed(value, "a number")?);
                setup.longest = seconds.map_err(|e| self.refused_value_error(value, e))?;
            }
            _ => {
                return Err(
                    self.unknown_key_error("machine", MACHINE.split(", ").map(str::to_owned))
                );
            }
        }
        Ok(())
    }

    fn processor(&self, value: &str) -> Result<ProcessorSpec> {
        let found = PROCESSORS.iter().find(|processor| processor.name == value);
        found.copied().ok_or_else(|| {
            let known = PROCESSORS.map(|processor| processor.name).join(", ");
            self.refused_value_error(value, format!("there are {known}"))
        })
    }

    fn workload(&self, base: &SweepBase, path: &[&str], value: &str) -> Result<WorkloadSpec> {
        // An error in the unchanged text is not the parameter's fault.
        WorkloadSpec::parse(&base.name, &base.text)?;
        let table: Result<Table, _> = base.text.parse();
        let mut whole = Value::Table(table.map_err(|e| self.refused_value_error(value, e))?);
        self.put_at_path(&mut whole, path, value)?;
        let text = toml::to_string(&whole).map_err(|e| self.refused_value_error(value, e))?;
        let workload = WorkloadSpec::parse(&base.name, &text);
        workload.map_err(|error| self.refused_value_error(value, last_line(&error.to_string())))
    }

    fn with_value_put<T: Serialize + DeserializeOwned>(
        &self,
        data: &T,
        path: &[&str],
        value: &str,
    ) -> Result<T> {
        let mut whole = Value::try_from(data).map_err(|e| self.refused_value_error(value, e))?;
        self.put_at_path(&mut whole, path, value)?;
        let changed = whole.try_into();
        changed
            .map_err(|e: toml::de::Error| self.refused_value_error(value, last_line(e.message())))
    }

    /// Puts the value at the end of the path. The last key may be one that is not set yet.
    fn put_at_path(&self, whole: &mut Value, path: &[&str], value: &str) -> Result<()> {
        let mut place = whole;
        for (depth, key) in path.iter().enumerate() {
            let known = keys(place);
            let last = depth + 1 == path.len();
            let found = match place {
                Value::Array(items) => item(items, key),
                Value::Table(table) => {
                    if last && !table.contains_key(*key) {
                        table.insert((*key).to_owned(), Value::Boolean(false));
                    }
                    table.get_mut(*key)
                }
                _ => None,
            };
            place = found.ok_or_else(|| self.unknown_key_error(&self.key_prefix(depth), known))?;
        }
        if path.is_empty() || matches!(place, Value::Table(_) | Value::Array(_)) {
            return Err(self.unknown_key_error(&self.key_prefix(path.len()), keys(place)));
        }
        *place = toml_value(value);
        Ok(())
    }

    /// The key with `depth` dots after its first part.
    fn key_prefix(&self, depth: usize) -> String {
        self.key
            .split('.')
            .take(depth + 1)
            .collect::<Vec<_>>()
            .join(".")
    }

    fn parsed<T: std::str::FromStr>(&self, value: &str, allowed: &'static str) -> Result<T> {
        let parsed = value.parse();
        parsed.map_err(|_| self.refused_value_error(value, format!("it is {allowed}")))
    }

    fn refused_value_error(&self, value: &str, message: impl ToString) -> SweepError {
        SweepError::Value {
            key: self.key.clone(),
            value: value.to_owned(),
            message: message.to_string(),
        }
    }

    fn unknown_key_error(&self, part: &str, known: impl IntoIterator<Item = String>) -> SweepError {
        let known: Vec<String> = known.into_iter().collect();
        SweepError::Key {
            key: self.key.clone(),
            part: part.to_owned(),
            known: if known.is_empty() {
                "nothing below it".to_owned()
            } else {
                known.join(", ")
            },
        }
    }
}

fn keys(place: &Value) -> Vec<String> {
    match place {
        Value::Table(table) => table.keys().cloned().collect(),
        Value::Array(items) => {
            let named = items.iter().enumerate().map(|(number, item)| {
                let name = item.get("name").and_then(Value::as_str);
                name.map_or_else(|| number.to_string(), str::to_owned)
            });
            named.collect()
        }
        _ => Vec::new(),
    }
}

fn item<'a>(items: &'a mut [Value], key: &str) -> Option<&'a mut Value> {
    let named = |item: &Value| item.get("name").and_then(Value::as_str) == Some(key);
    let place = items.iter().position(named);
    let place = place.or_else(|| key.parse().ok())?;
    items.get_mut(place)
}

/// A number or truth value as such, anything else as text.
fn toml_value(value: &str) -> Value {
    let number = || value.parse().ok().filter(|float: &f64| float.is_finite());
    match value {
        "true" => Value::Boolean(true),
        "false" => Value::Boolean(false),
        _ => (value.parse().ok().map(Value::Integer))
            .or_else(|| number().map(Value::Float))
            .unwrap_or_else(|| Value::String(value.to_owned())),
    }
}

/// The last line of an error. Parsers put an excerpt of the text before their message.
fn last_line(message: &str) -> &str {
    message.lines().last().unwrap_or(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges_are_read_as_written() {
        let values = |text| parse_values(text).map(|values| values.join(" "));
        let is = |text: &str| Ok(text.to_owned());
        assert_eq!(values("4"), is("4"));
        assert_eq!(values("haswell, zen-4"), is("haswell zen-4"));
        assert_eq!(values("0..1+0.25"), is("0 0.25 0.5 0.75 1"));
        assert_eq!(values("0.1..0.5+0.1"), is("0.1 0.2 0.3 0.4 0.5"));
        assert_eq!(
            values("4GiB..64GiB*2,1TiB"),
            is("4GiB 8GiB 16GiB 32GiB 64GiB 1TiB")
        );
        assert_eq!(values("1..10*3"), is("1 3 9"));
        assert_eq!(values("-2..2+2"), is("-2 0 2"));
        assert_eq!(values("8MiB..9MiB+1MiB"), is("8MiB 9MiB"));
    }

    #[test]
    fn what_has_no_end_or_no_sense_is_refused() {
        for wrong in [
            "1..2",
            "1..2+0",
            "1..2*1",
            "0..2*2",
            "2..1+1",
            "..+",
            "a..b+c",
            "1GiB..2MiB+1MiB",
            "1..nan+1",
            "1..2-1",
            "1GiB..4GiB+1",
        ] {
            assert!(
                matches!(parse_values(wrong), Err(ValuesError::Range(_))),
                "{wrong}"
            );
        }
        assert!(matches!(parse_values("1,,2"), Err(ValuesError::Empty(_))));
        assert!(matches!(
            parse_values("1..1000000+1"),
            Err(ValuesError::Endless(_))
        ));
    }
}
