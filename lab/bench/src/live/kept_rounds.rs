//! Rounds of all sessions, kept in a file beside the results: one JSON object a line. So an
//! experiment of hours can be measured in several sessions.

use super::prelude::*;
use crate::run_origin::RunOrigin;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::Permissions;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;

/// A program under each arm, one after the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct KeptRound<Arms> {
    /// Its name in results.
    pub program: String,
    /// Whether it is of the short form.
    pub quick: bool,
    #[serde(flatten)]
    pub origin: RunOrigin,
    /// What was measured under each arm.
    pub arms: Arms,
}

/// Rounds of this session and of those before.
#[derive(Debug)]
pub(super) struct KeptRounds<Arms> {
    /// `None`: they are not kept after this session.
    file: Option<PathBuf>,
    rounds: Vec<KeptRound<Arms>>,
}

impl<Arms: Serialize + DeserializeOwned> KeptRounds<Arms> {
    /// Reads the rounds of earlier sessions.
    pub(super) fn load(file: Option<PathBuf>) -> BenchResult<Self> {
        let Some(path) = &file else {
            return Ok(Self { file, rounds: Vec::new() });
        };
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => bail!("reading {}: {error}", path.display()),
        };
        let parse = |(number, line): (usize, &str)| {
            serde_json::from_str(line).map_err(|error| {
                let line = number + 1;
                impossible!("line {line} of {} is not a round: {error}", path.display())
            })
        };
        let rounds: Vec<KeptRound<Arms>> =
            text.lines().enumerate().map(parse).collect::<BenchResult<_>>()?;
        Ok(Self { file, rounds })
    }

    pub(super) fn rounds(&self) -> &[KeptRound<Arms>] {
        &self.rounds
    }

    pub(super) fn rounds_of(
        &self,
        program: &str,
        quick: bool,
    ) -> impl Iterator<Item = &KeptRound<Arms>> {
        self.rounds.iter().filter(move |round| round.program == program && round.quick == quick)
    }

    /// Those of the machine and build of `origin`.
    pub(super) fn rounds_of_build(
        &self,
        program: &str,
        quick: bool,
        origin: &RunOrigin,
    ) -> impl Iterator<Item = &KeptRound<Arms>> {
        self.rounds_of(program, quick)
            .filter(move |round| round.origin.is_same_machine_and_build(origin))
    }

    pub(super) fn count_rounds_of(&self, program: &str, quick: bool) -> usize {
        self.rounds_of(program, quick).count()
    }

    /// Adds a round, and writes the file before it returns.
    pub(super) fn add_round(&mut self, round: KeptRound<Arms>) -> BenchResult<()> {
        merge_round(&mut self.rounds, round);
        let Some(path) = &self.file else {
            return Ok(());
        };
        write_lines(path, &self.rounds)
            .map_err(|error| impossible!("writing {}: {error}", path.display()))
    }
}

/// Adds a round to those of the same program, form, machine and build. It replaces those of another
/// machine or build.
fn merge_round<Arms>(rounds: &mut Vec<KeptRound<Arms>>, round: KeptRound<Arms>) {
    rounds.retain(|kept| {
        kept.program != round.program
            || kept.quick != round.quick
            || kept.origin.is_same_machine_and_build(&round.origin)
    });
    rounds.push(round);
}

/// Replaces the file as a whole, so that a machine that stops meanwhile leaves the old or the new
/// one.
fn write_lines<Arms: Serialize>(path: &Path, rounds: &[KeptRound<Arms>]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let readable = Permissions::from_mode(0o644);
    let mut file = tempfile::Builder::new().permissions(readable).tempfile_in(folder)?;
    for round in rounds {
        writeln!(file, "{}", serde_json::to_string(round)?)?;
    }
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Here the arms are one figure.
    fn round(program: &str, quick: bool, commit: &str, per_s: f64) -> KeptRound<f64> {
        KeptRound {
            program: program.to_owned(),
            quick,
            origin: RunOrigin { commit: Some(commit.to_owned()), ..RunOrigin::default() },
            arms: per_s,
        }
    }

    #[test]
    fn a_round_adds_to_its_build_and_replaces_other_builds() {
        let before = [
            round("Redis", false, "one", 1.0),
            round("Redis", false, "one", 2.0),
            round("Redis", true, "one", 3.0),
            round("mg", false, "one", 4.0),
        ];
        let mut rounds = before.to_vec();
        let same_build = round("Redis", false, "one-dirty", 5.0);
        merge_round(&mut rounds, same_build.clone());
        assert_eq!(rounds, [&before[..], &[same_build]].concat());

        let other_build = round("Redis", false, "two", 6.0);
        merge_round(&mut rounds, other_build.clone());
        assert_eq!(rounds, [&before[2..], &[other_build]].concat());
    }

    #[test]
    fn a_later_session_continues_where_one_was_stopped() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("headline-rounds.jsonl");
        let load = || KeptRounds::load(Some(file.clone()));
        let mut stopped = load().expect("no file yet");
        for program in ["Redis", "mg"] {
            stopped.add_round(round(program, false, "one", 1.5)).expect("written");
        }
        let mut later = load().expect("written before");
        assert_eq!(later.rounds(), stopped.rounds());
        later.add_round(round("mg", false, "one", 2.5)).expect("written");
        let all = load().expect("written before");
        assert_eq!([all.count_rounds_of("mg", false), all.count_rounds_of("mg", true)], [2, 0]);
        assert_eq!(std::fs::read_dir(folder.path()).expect("there").count(), 1);
    }

    #[test]
    fn a_file_that_is_not_of_rounds_is_an_error_with_its_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("rounds.jsonl");
        let line = serde_json::to_string(&round("mg", true, "one", 1.0)).expect("JSON");
        std::fs::write(&file, format!("{line}\n{{}}\n")).expect("written");
        let error = KeptRounds::<f64>::load(Some(file)).expect_err("damaged").to_string();
        assert!(error.starts_with("line 2 of "), "{error}");
    }

    #[test]
    fn without_a_file_rounds_last_for_the_session() {
        let mut kept = KeptRounds::load(None).expect("nothing to read");
        kept.add_round(round("mg", true, "one", 1.0)).expect("nothing to write");
        assert_eq!(kept.rounds().len(), 1);
    }
}
