//! Every command's help fits a screen, and has an example that works. `A` is the parser of a
//! program's arguments.

use clap::error::ErrorKind;
use clap::{Command, Parser};

const LINES: usize = 40;
const COLUMNS: usize = 80;

fn all_subcommands<A: Parser>() -> Vec<(String, Command)> {
    let mut found = Vec::new();
    let mut root = A::command();
    root.build();
    let mut waiting = vec![(root.get_name().to_owned(), root)];
    while let Some((name, command)) = waiting.pop() {
        let parts = command.get_subcommands().filter(|part| !part.is_hide_set());
        for part in parts.filter(|part| part.get_name() != "help") {
            waiting.push((format!("{name} {}", part.get_name()), part.clone()));
        }
        found.push((name, command));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

fn help_text(command: &Command) -> String {
    command.clone().term_width(COLUMNS).render_help().to_string()
}

/// The words of each example in a help text, as a shell would pass them.
fn example_command_lines(help: &str) -> Vec<Vec<String>> {
    let mut lines = help.lines().skip_while(|line| !line.starts_with("Example"));
    let first = lines.next().unwrap_or_default();
    let first = first.split_once(": ").map(|(_, example)| example);
    let more = lines.map_while(|line| line.strip_prefix("  "));
    let all = first.into_iter().chain(more);
    let words = |line: &str| {
        let line = line.replace("$(pidof redis-server)", "4711");
        line.split_whitespace().map(str::to_owned).collect()
    };
    all.map(words).collect()
}

/// Every command's help fits a screen, is the same by `-h` and `--help`, and has examples that the
/// program accepts.
///
/// # Panics
/// A help text is too large or differs by flag, or an example is missing or not accepted.
pub fn assert_help_is_short_with_examples<A: Parser>() {
    for (name, command) in all_subcommands::<A>() {
        let help = help_text(&command);
        let lines = help.lines().count();
        println!("{name}: {lines} lines");
        assert!(
            lines <= LINES,
            "the help of {name} has {lines} lines, at most {LINES} are allowed:\n{help}"
        );
        for line in help.lines() {
            assert!(
                line.chars().count() <= COLUMNS,
                "a line of the help of {name} is too wide: {line}"
            );
        }
        let examples = example_command_lines(&help);
        assert!(!examples.is_empty(), "the help of {name} has no example:\n{help}");
        for words in examples {
            let example = words.join(" ");
            // Options and subcommands have their own examples.
            assert!(example.starts_with(&name), "{example:?} is not an example of {name}");
            let refused = A::try_parse_from(&words).err().map(|e| e.to_string());
            assert_eq!(refused, None, "{example}");
        }
        let shown = |flag: &str| {
            let words = name.split_whitespace().chain([flag]);
            let shown = A::try_parse_from(words).err();
            let shown = shown.expect("the flag shows the help");
            assert_eq!(shown.kind(), ErrorKind::DisplayHelp, "{name} {flag}");
            shown.to_string()
        };
        assert_eq!(shown("-h"), shown("--help"), "{name}");
    }
}
