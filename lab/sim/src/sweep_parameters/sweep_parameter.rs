//! Parameters by their keys.

use crate::mmu::translation::PageTableLevels;
use crate::mmu::{PROCESSORS, ProcessorSpec};
use crate::simulate::SimulationSetup;
use crate::workloads::{ByteSize, WorkloadSpec, WorkloadSpecError};
use hawkeye_policy::RatePerSecond;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;
use thiserror::Error;
use toml::{Table, Value};

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
    /// The parameter of this key. [`apply`](Self::apply) reports whether it exists.
    pub fn new(key: &str) -> Self {
        Self { key: key.to_owned() }
    }

    /// Its key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Machine and workload with this value of the parameter.
    ///
    /// # Errors
    /// An unknown parameter, or a value that it can't have.
    pub fn apply(&self, base: &SweepBase, value: &str) -> Result<(SimulationSetup, WorkloadSpec)> {
        let mut setup = base.setup;
        let mut path = self.key.split('.');
        let part = path.next().unwrap_or_default();
        let path: Vec<&str> = path.collect();
        match (part, path.as_slice()) {
            ("machine", [key]) => self.apply_to_machine(&mut setup, key, value)?,
            ("processor", []) => setup.processor = self.processor_by_name(value)?,
            ("processor", path) => {
                let changed: ProcessorSpec = self.data_with_value(&setup.processor, path, value)?;
                setup.processor = ProcessorSpec {
                    name: setup.processor.name,
                    source: setup.processor.source,
                    ..changed
                };
            }
            ("costs", path) => setup.costs = self.data_with_value(&setup.costs, path, value)?,
            ("system", ["rate_per_s"]) => {
                let rate: f64 = self.parse_value(value, "a number")?;
                let rate = RatePerSecond::new(rate);
                setup.rate = Some(rate.map_err(|e| self.refused_value_error(value, e))?);
            }
            ("system", path) => setup.tuning = self.data_with_value(&setup.tuning, path, value)?,
            ("workload", path) => return Ok((setup, self.workload_with_value(base, path, value)?)),
            _ => return Err(SweepError::Part(self.key.clone())),
        }
        Ok((setup, WorkloadSpec::parse(&base.name, &base.text)?))
    }

    fn apply_to_machine(&self, setup: &mut SimulationSetup, key: &str, value: &str) -> Result<()> {
        match key {
            "memory" => {
                let size: Result<ByteSize, String> = value.parse();
                setup.memory_bytes = size.map_err(|e| self.refused_value_error(value, e))?.0;
            }
            "cores" => setup.cores = self.parse_value(value, "a whole number")?,
            "page_table_levels" => {
                let levels: Result<PageTableLevels, String> = value.parse();
                setup.page_table_levels = levels.map_err(|e| self.refused_value_error(value, e))?;
            }
            "next_page_prefetch" => {
                setup.next_page_prefetch = self.parse_value(value, "true or false")?;
            }
            "seed" => setup.seed = self.parse_value(value, "a whole number")?,
            "sample" => setup.sample = self.parse_value(value, "a whole number")?,
            "fragment" => setup.fragmented = self.parse_value(value, "a number")?,
            "longest_s" => {
                let seconds = Duration::try_from_secs_f64(self.parse_value(value, "a number")?);
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

    fn processor_by_name(&self, value: &str) -> Result<ProcessorSpec> {
        let found = PROCESSORS.iter().find(|processor| processor.name == value);
        found.copied().ok_or_else(|| {
            let known = PROCESSORS.map(|processor| processor.name).join(", ");
            self.refused_value_error(value, format!("there are {known}"))
        })
    }

    fn workload_with_value(
        &self,
        base: &SweepBase,
        path: &[&str],
        value: &str,
    ) -> Result<WorkloadSpec> {
        // An error in the unchanged text is not the parameter's fault.
        WorkloadSpec::parse(&base.name, &base.text)?;
        let table: Result<Table, _> = base.text.parse();
        let mut whole = Value::Table(table.map_err(|e| self.refused_value_error(value, e))?);
        self.put_value_at_path(&mut whole, path, value)?;
        let text = toml::to_string(&whole).map_err(|e| self.refused_value_error(value, e))?;
        let workload = WorkloadSpec::parse(&base.name, &text);
        workload.map_err(|error| self.refused_value_error(value, last_line(&error.to_string())))
    }

    fn data_with_value<T: Serialize + DeserializeOwned>(
        &self,
        data: &T,
        path: &[&str],
        value: &str,
    ) -> Result<T> {
        let mut whole = Value::try_from(data).map_err(|e| self.refused_value_error(value, e))?;
        self.put_value_at_path(&mut whole, path, value)?;
        let changed = whole.try_into();
        changed
            .map_err(|e: toml::de::Error| self.refused_value_error(value, last_line(e.message())))
    }

    /// Puts the value at the end of the path. The last key may be one that is not set yet.
    fn put_value_at_path(&self, whole: &mut Value, path: &[&str], value: &str) -> Result<()> {
        let mut place = whole;
        for (depth, key) in path.iter().enumerate() {
            let known = known_keys(place);
            let last = depth + 1 == path.len();
            let found = match place {
                Value::Array(items) => item_by_key(items, key),
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
            return Err(self.unknown_key_error(&self.key_prefix(path.len()), known_keys(place)));
        }
        *place = toml_value(value);
        Ok(())
    }

    /// The key with `depth` dots after its first part.
    fn key_prefix(&self, depth: usize) -> String {
        self.key.split('.').take(depth + 1).collect::<Vec<_>>().join(".")
    }

    fn parse_value<T: std::str::FromStr>(&self, value: &str, allowed: &'static str) -> Result<T> {
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
            known: if known.is_empty() { "nothing below it".to_owned() } else { known.join(", ") },
        }
    }
}

fn known_keys(place: &Value) -> Vec<String> {
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

fn item_by_key<'a>(items: &'a mut [Value], key: &str) -> Option<&'a mut Value> {
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
