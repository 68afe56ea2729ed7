//! Reads one table of the configuration key by key, and collects its mistakes.
//!
//! Not by derived deserialization: the user sees all mistakes at once, each with its key and its
//! position, in our own words.

use super::config_error::{ConfigProblems, line_and_column, line_text_at};
use super::config_value::ConfigValue;
use hawkeye_policy::SettingError;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// What reading yields besides the values.
pub(super) struct ProblemLog<'t> {
    name: &'t str,
    text: &'t str,
    /// The mistakes, each with its byte offset.
    problems: Vec<(usize, String)>,
    /// Every key that was read, with its table; for the test of the sample file.
    pub(super) keys: Vec<String>,
}

/// A table that is being read. Where it is missing, every key has its default.
pub(super) struct ConfigTable<'l, 't> {
    path: String,
    /// Byte offset of its start.
    at: usize,
    table: Option<&'l DeTable<'t>>,
    requested_keys: Vec<&'static str>,
    log: &'l mut ProblemLog<'t>,
}

/// Reads a whole text; `read` reads the keys of its top level.
pub(super) fn parse_config_text<'t, R>(
    name: &'t str,
    text: &'t str,
    read: impl FnOnce(&mut ConfigTable<'_, '_>) -> R,
) -> (R, Vec<String>, Result<(), ConfigProblems>) {
    let mut log = ProblemLog { name, text, problems: Vec::new(), keys: Vec::new() };
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let line = line_text_at(text, at);
        log.add_problem(at, "this", &format!("is not valid TOML: {}, in {line}", error.message()));
    });
    let table = table.ok();
    let top = table.as_ref().map(Spanned::get_ref);
    let result = ConfigTable::read_and_report_unknown_keys(&mut log, String::new(), 0, top, read);
    let mut problems = log.problems;
    problems.sort_by_key(|(at, _)| *at);
    let problems: Vec<_> = problems.into_iter().map(|(_, problem)| problem).collect();
    let verdict = if problems.is_empty() { Ok(()) } else { Err(ConfigProblems(problems)) };
    (result, log.keys, verdict)
}

impl ProblemLog<'_> {
    fn add_problem(&mut self, at: usize, key: &str, message: &str) {
        let (line, column) = line_and_column(self.text, at);
        self.problems.push((at, format!("{}:{line}:{column}: {key} {message}", self.name)));
    }

    fn shortened_value(&self, span: Range<usize>) -> String {
        const LONGEST: usize = 40;
        let text = self.text.get(span).unwrap_or_default();
        let first: String = text.lines().next().unwrap_or_default().chars().take(LONGEST).collect();
        let rest = if first.len() < text.len() { "..." } else { "" };
        format!("{first}{rest}")
    }
}

impl<'l, 't> ConfigTable<'l, 't> {
    /// Reads a table by `read`, and reports keys that it has not asked for.
    fn read_and_report_unknown_keys<R>(
        log: &'l mut ProblemLog<'t>,
        path: String,
        at: usize,
        table: Option<&'l DeTable<'t>>,
        read: impl FnOnce(&mut Self) -> R,
    ) -> R {
        let mut whole = Self { path, at, table, requested_keys: Vec::new(), log };
        let result = read(&mut whole);
        whole.report_unknown_keys();
        result
    }

    fn full_key(&self, key: &str) -> String {
        match &*self.path {
            "" => key.to_owned(),
            path => format!("{path}.{key}"),
        }
    }

    fn request_value(&mut self, key: &'static str) -> Option<&'l Spanned<DeValue<'t>>> {
        self.requested_keys.push(key);
        self.log.keys.push(self.full_key(key));
        self.table?.get(key)
    }

    /// Reads a value; `None` where it is missing or wrong.
    pub(super) fn read_optional<T: ConfigValue>(&mut self, key: &'static str) -> Option<T> {
        let value = T::from_toml(self.request_value(key)?.get_ref());
        value.map_err(|allowed| self.report_invalid_value(key, &allowed)).ok()
    }

    pub(super) fn read_or_default<T: ConfigValue>(&mut self, key: &'static str, default: T) -> T {
        self.read_optional(key).unwrap_or(default)
    }

    pub(super) fn report_invalid_value(&mut self, key: &'static str, allowed: &str) {
        let found = self.log.shortened_value(self.value_span(key));
        self.report_problem(key, format!("must be {allowed}, not {found}"));
    }

    /// Reports a mistake in this table: at `key` where that is set.
    pub(super) fn report_problem(&mut self, key: &'static str, message: String) {
        self.log.add_problem(self.value_span(key).start, &self.full_key(key), &message);
    }

    /// Position of a key's value; that of this table where the key is missing.
    fn value_span(&self, key: &str) -> Range<usize> {
        self.table.and_then(|table| table.get(key)).map_or(self.at..self.at, Spanned::span)
    }

    /// The value of a checked setting, or `None` after a report at the key that the error names.
    pub(super) fn value_or_report<T>(&mut self, made: Result<T, SettingError>) -> Option<T> {
        let error = match made {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        let key = error.setting.key();
        if self.is_key_set(key) {
            self.report_invalid_value(key, error.allowed);
        } else {
            // A default contradicts another setting, which was read just before.
            let mut read = self.requested_keys.iter().rev().copied();
            let at = read.find(|read| self.is_key_set(read)).unwrap_or(key);
            self.report_problem(at, format!("contradicts other settings: {error}"));
        }
        None
    }

    pub(super) fn is_key_set(&self, key: &str) -> bool {
        self.table.is_some_and(|table| table.contains_key(key))
    }

    pub(super) fn read_subtable<R>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&mut ConfigTable<'_, 't>) -> R,
    ) -> R {
        let value = self.request_value(key);
        let table = value.and_then(|value| value.get_ref().as_table());
        if value.is_some() && table.is_none() {
            self.report_invalid_value(key, "a table");
        }
        let path = self.full_key(key);
        let at = value.map_or(self.at, |value| value.span().start);
        ConfigTable::read_and_report_unknown_keys(self.log, path, at, table, read)
    }

    pub(super) fn read_subtable_array<R>(
        &mut self,
        key: &'static str,
        mut read: impl FnMut(&mut ConfigTable<'_, 't>) -> R,
    ) -> Vec<R> {
        let Some(value) = self.request_value(key) else { return Vec::new() };
        let Some(array) = value.get_ref().as_array() else {
            let allowed = format!("one or more tables, each with the header [[{key}]]");
            self.report_invalid_value(key, &allowed);
            return Vec::new();
        };
        let mut all = Vec::new();
        for (index, item) in array.iter().enumerate() {
            let path = format!("{}[{}]", self.full_key(key), index + 1);
            let at = item.span().start;
            let table = item.get_ref().as_table();
            if table.is_none() {
                let message = format!("must be a table with the header [[{key}]]");
                self.log.add_problem(at, &path, &message);
            }
            all.push(ConfigTable::read_and_report_unknown_keys(
                self.log, path, at, table, &mut read,
            ));
        }
        all
    }

    fn report_unknown_keys(self) {
        for key in self.table.into_iter().flat_map(|table| table.keys()) {
            let name: &str = key.get_ref();
            if !self.requested_keys.contains(&name) {
                let message = unknown_key_message(name, &self.requested_keys);
                self.log.add_problem(key.span().start, &self.full_key(name), &message);
            }
        }
    }
}

fn unknown_key_message(name: &str, known: &[&'static str]) -> String {
    /// If two thirds of the letters are the same, one is probably a misspelling of the other.
    const ALIKE: f64 = 0.67;
    let likeness = |other: &&'static str| {
        // The name may lack its unit.
        let begun = name.len() > 2 && other.starts_with(name);
        let alike = strsim::normalized_damerau_levenshtein(name, other);
        if begun { 1.0 } else { alike }
    };
    let nearest = known
        .iter()
        .max_by(|a, b| likeness(a).total_cmp(&likeness(b)))
        .filter(|nearest| likeness(nearest) >= ALIKE);
    match nearest {
        Some(nearest) => format!("is not a known key; did you mean {nearest}?"),
        None => format!("is not a known key; the keys here are {}", known.join(", ")),
    }
}
