//! Reads one table of the configuration key by key, and collects what is wrong with it.
//!
//! By hand and not by derived deserialization, so that a person sees every mistake at once, each with
//! its key and its place, and in our own words.

use super::error::{Problem, Problems, line_of, position};
use super::value::Value;
use hawkeye_policy::SettingError;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// What reading found out besides the values.
pub(super) struct Log<'t> {
    text: &'t str,
    problems: Vec<(usize, Problem)>,
    /// Every key that was asked for, with its table; for the test of the sample file.
    pub(super) keys: Vec<String>,
}

/// A table while it is read. It may not be there: then every key keeps its default.
pub(super) struct Section<'l, 't> {
    path: String,
    /// Where it starts.
    at: usize,
    table: Option<&'l DeTable<'t>>,
    asked: Vec<&'static str>,
    log: &'l mut Log<'t>,
}

/// Reads a whole text; `read` asks for the keys of its top level.
pub(super) fn read<R>(
    name: &str,
    text: &str,
    read: impl FnOnce(&mut Section<'_, '_>) -> R,
) -> (R, Vec<String>, Result<(), Problems>) {
    let mut log = Log {
        text,
        problems: Vec::new(),
        keys: Vec::new(),
    };
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let line = line_of(text, at);
        log.note(
            at,
            String::new(),
            format!("this is no TOML: {}, in {line}", error.message()),
        );
    });
    let table = table.ok();
    let top = table.as_ref().map(Spanned::get_ref);
    let mut section = Section {
        path: String::new(),
        at: 0,
        table: top,
        asked: Vec::new(),
        log: &mut log,
    };
    let result = read(&mut section);
    section.finish();
    let mut problems = log.problems;
    problems.sort_by_key(|(at, _)| *at);
    let problems: Vec<Problem> = problems.into_iter().map(|(_, problem)| problem).collect();
    let verdict = if problems.is_empty() {
        Ok(())
    } else {
        let file = name.to_owned();
        Err(Problems { file, problems })
    };
    (result, log.keys, verdict)
}

impl Log<'_> {
    fn note(&mut self, at: usize, key: String, message: String) {
        let (line, column) = position(self.text, at);
        let problem = Problem {
            line,
            column,
            key,
            message,
        };
        self.problems.push((at, problem));
    }

    /// What a person wrote there, if it is short.
    fn found(&self, span: Range<usize>) -> String {
        const LONGEST: usize = 40;
        let text = self.text.get(span).unwrap_or_default();
        let first: String = text
            .chars()
            .take_while(|c| *c != '\n')
            .take(LONGEST)
            .collect();
        let rest = if first.len() < text.len() { "..." } else { "" };
        format!("{first}{rest}")
    }
}

impl<'l, 't> Section<'l, 't> {
    fn key(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    fn ask(&mut self, key: &'static str) -> Option<&'l Spanned<DeValue<'t>>> {
        self.asked.push(key);
        let full = self.key(key);
        self.log.keys.push(full);
        self.table?.get(key)
    }

    /// Reads a value; `None` where it isn't set, or is wrong.
    pub(super) fn optional<T: Value>(&mut self, key: &'static str) -> Option<T> {
        let value = self.ask(key)?;
        T::read(value.get_ref())
            .map_err(|allowed| self.refuse(key, &allowed))
            .ok()
    }

    /// Reads a value, or takes its default.
    pub(super) fn or<T: Value>(&mut self, key: &'static str, default: T) -> T {
        self.optional(key).unwrap_or(default)
    }

    /// Notes that the value of `key` must be `allowed`.
    pub(super) fn refuse(&mut self, key: &'static str, allowed: &str) {
        let value = self.table.and_then(|table| table.get(key));
        let span = value.map_or(self.at..self.at, Spanned::span);
        let found = self.log.found(span.clone());
        let message = format!("must be {allowed}, not {found}");
        let key = self.key(key);
        self.log.note(span.start, key, message);
    }

    /// Notes something about this table, at `key` where that is set.
    pub(super) fn complain(&mut self, key: &'static str, message: String) {
        let value = self.table.and_then(|table| table.get(key));
        let at = value.map_or(self.at, |value| value.span().start);
        let key = self.key(key);
        self.log.note(at, key, message);
    }

    /// Unwraps a checked setting. `keys` are the keys it was made from, each with what the setting is
    /// called in errors.
    pub(super) fn checked<T>(
        &mut self,
        made: Result<T, SettingError>,
        keys: &[(&str, &'static str)],
    ) -> Option<T> {
        let error = match made {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        let set = |key: &str| self.table.is_some_and(|table| table.contains_key(key));
        let named = keys.iter().find(|(setting, _)| *setting == error.setting);
        match named.map(|(_, key)| *key) {
            Some(key) if set(key) => self.refuse(key, error.allowed),
            // A default that doesn't go with what else is set.
            _ => {
                let fallback = named.or(keys.first()).map_or("", |(_, key)| *key);
                let at = keys.iter().map(|(_, key)| *key).find(|key| set(key));
                self.complain(
                    at.unwrap_or(fallback),
                    format!("does not go with the rest: {error}"),
                );
            }
        }
        None
    }

    /// Whether a key is set, rightly or wrongly.
    pub(super) fn is_set(&self, key: &str) -> bool {
        self.table.is_some_and(|table| table.contains_key(key))
    }

    /// Reads a table in this one.
    pub(super) fn section<R>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&mut Section<'_, 't>) -> R,
    ) -> R {
        let value = self.ask(key);
        let table = value.and_then(|value| value.get_ref().as_table());
        if value.is_some() && table.is_none() {
            self.refuse(key, "a table");
        }
        let path = self.key(key);
        let at = value.map_or(self.at, |value| value.span().start);
        self.descend(path, at, table, read)
    }

    /// Reads each table of an array of tables (`[[key]]`).
    pub(super) fn sections<R>(
        &mut self,
        key: &'static str,
        mut read: impl FnMut(&mut Section<'_, 't>) -> R,
    ) -> Vec<R> {
        let Some(value) = self.ask(key) else {
            return Vec::new();
        };
        let Some(array) = value.get_ref().as_array() else {
            self.refuse(key, &format!("tables, each headed [[{key}]]"));
            return Vec::new();
        };
        let mut all = Vec::new();
        for (index, item) in array.iter().enumerate() {
            let path = format!("{}[{}]", self.key(key), index + 1);
            let at = item.span().start;
            let table = item.get_ref().as_table();
            if table.is_none() {
                let message = format!("must be a table, headed [[{key}]]");
                self.log.note(at, path.clone(), message);
            }
            all.push(self.descend(path, at, table, &mut read));
        }
        all
    }

    fn descend<R>(
        &mut self,
        path: String,
        at: usize,
        table: Option<&DeTable<'t>>,
        read: impl FnOnce(&mut Section<'_, 't>) -> R,
    ) -> R {
        let mut inner = Section {
            path,
            at,
            table,
            asked: Vec::new(),
            log: self.log,
        };
        let result = read(&mut inner);
        inner.finish();
        result
    }

    /// Notes every key that nobody asked for.
    fn finish(self) {
        for key in self.table.into_iter().flat_map(|table| table.keys()) {
            let name: &str = key.get_ref();
            if self.asked.contains(&name) {
                continue;
            }
            let full = self.key(name);
            self.log
                .note(key.span().start, full, unknown(name, &self.asked));
        }
    }
}

/// What to say of a key that does not exist.
fn unknown(name: &str, known: &[&'static str]) -> String {
    /// Of two thirds the same letters, one is probably a slip for the other.
    const ALIKE: f64 = 0.67;
    let likeness = |other: &&'static str| {
        // Left out was the unit, say.
        let begun = name.len() > 2 && other.starts_with(name);
        let alike = strsim::normalized_damerau_levenshtein(name, other);
        if begun { 1.0 } else { alike }
    };
    let nearest = known
        .iter()
        .max_by(|a, b| likeness(a).total_cmp(&likeness(b)))
        .filter(|nearest| likeness(nearest) >= ALIKE);
    match nearest {
        Some(nearest) => format!("is no known key; did you mean {nearest}?"),
        None => format!("is no known key; known here are {}", known.join(", ")),
    }
}
