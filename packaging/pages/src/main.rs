//! Writes the manual pages and shell completions of `hawkeye` and `hawkeye-lab` from the
//! definitions of their commands. `scripts/packages/deb.sh` packs them. This program is not
//! shipped, and the shipped programs have no code for it.

use anyhow::{Context, Result};
use clap::{Command, Parser};
use clap_complete::Shell;
use clap_mangen::Man;
use std::fs;
use std::path::{Path, PathBuf};

/// Write manual pages (FOLDER/PROGRAM/man1) and completions for bash, zsh and fish
/// (FOLDER/PROGRAM/completions).
#[derive(Parser)]
#[command(name = "hawkeye-pages", version)]
struct Arguments {
    /// Write to this folder, and create it if it is missing.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,

    /// Date of the pages.
    #[arg(long, value_name = "YYYY-MM-DD")]
    date: String,
}

fn main() -> Result<()> {
    let Arguments { folder, date } = Arguments::parse();
    write("hawkeye", &hawkeye::command(), &date, &folder)?;
    write("hawkeye-lab", &hawkeye_lab::clap_command(), &date, &folder)
}

/// Writes the pages and completions of one program.
fn write(name: &'static str, program: &Command, date: &str, folder: &Path) -> Result<()> {
    let folder = folder.join(name);
    let pages = made(folder.join("man1"))?;
    let completions = made(folder.join("completions"))?;
    let mut program = as_shown(name, program);
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut program, name, &completions)
            .with_context(|| format!("can't write completions for {shell}"))?;
    }
    program.build();
    write_pages(&program, date, &pages)
}

fn made(folder: PathBuf) -> Result<PathBuf> {
    fs::create_dir_all(&folder).with_context(|| format!("can't create {}", folder.display()))?;
    Ok(folder)
}

/// The program without its hidden commands, which completions would otherwise offer.
fn as_shown(name: &'static str, program: &Command) -> Command {
    let shown = program.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    Command::new(name)
        .version(env!("CARGO_PKG_VERSION"))
        .propagate_version(true)
        .disable_help_subcommand(true)
        .about(program.get_about().cloned().unwrap_or_default())
        .subcommands(shown)
}

/// Writes the page of a built command, and those of its own commands.
fn write_pages(command: &Command, date: &str, folder: &Path) -> Result<()> {
    let page = Man::new(command.clone())
        .date(date)
        .source(concat!("HawkEye ", env!("CARGO_PKG_VERSION")))
        .manual("HawkEye");
    let name = page.get_filename();
    page.generate_to(folder).with_context(|| format!("can't write the manual page {name}"))?;
    command
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .try_for_each(|command| write_pages(command, date, folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Collects the full names, such as "tool-sort-up", of a command and of the visible commands
    /// under it.
    fn names(command: &Command, name: &str, shown: &mut Vec<String>) {
        shown.push(name.to_owned());
        let commands = command.get_subcommands();
        for command in commands.filter(|command| !command.is_hide_set()) {
            names(command, &format!("{name}-{}", command.get_name()), shown);
        }
    }

    #[test]
    fn every_command_has_a_page_and_hidden_ones_are_nowhere() {
        let leaf = |name| Command::new(name).about("Do it");
        let program = Command::new("tool")
            .about("A program")
            .subcommand(leaf("sort").subcommand(leaf("up")))
            .subcommand(leaf("show"))
            .subcommand(leaf("secret").hide(true));
        let mut shown = Vec::new();
        names(&program, "tool", &mut shown);
        assert_eq!(shown.len(), 4);

        let folder = std::env::temp_dir().join(format!("hawkeye-pages-{}", std::process::id()));
        write("tool", &program, "2026-11-21", &folder).expect("writes");
        let written = folder.join("tool");
        let mut pages: Vec<_> = fs::read_dir(written.join("man1"))
            .expect("is there")
            .map(|page| {
                let name = page.expect("reads").file_name();
                name.to_string_lossy().into_owned()
            })
            .collect();
        let mut expected: Vec<_> = shown.iter().map(|name| format!("{name}.1")).collect();
        pages.sort();
        expected.sort();
        assert_eq!(pages, expected);

        for (file, offered) in
            [("tool.bash", "tool,"), ("_tool", "_tool__subcmd__"), ("tool.fish", "-a \"")]
        {
            let text = fs::read_to_string(written.join("completions").join(file)).expect("reads");
            assert!(text.contains(&format!("{offered}show")), "{file}");
            assert!(!text.contains(&format!("{offered}secret")), "{file}");
        }
        fs::remove_dir_all(folder).expect("removes");
    }
}
