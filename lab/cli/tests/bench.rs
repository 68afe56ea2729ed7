//! Runs `hawkeye-lab bench` as a command, without privileges.

use std::path::Path;
use std::process::{Command, Output};

fn bench(words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hawkeye-lab"));
    command.arg("bench").args(words.split_whitespace());
    command.output().expect("it runs")
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn names_aliases_and_sides_of_experiments_are_listed() {
    let output = bench("--list");
    let text = printed(&output);
    assert!(output.status.success(), "{text}");
    let words = |name| {
        let line = text.lines().find(|line| line.starts_with(name));
        let words = line.unwrap_or_default().split_whitespace().skip(1);
        words.take(3).collect::<Vec<_>>()
    };
    assert_eq!(words("fairness "), ["table-5", "x", "x"], "{text}");
    let alone = words("overcommitted-guests ");
    assert_eq!(alone[..2], ["figure-11", "x"], "{text}");
    assert_ne!(alone[2], "x", "{text}");
}

#[test]
fn a_side_that_an_experiment_lacks_is_a_clear_error() {
    for (words, expected) in [
        ("--sim collapse", "collapse has no simulated side"),
        ("--live figure-11", "figure-11 has no live side"),
        ("--sim table-55", "no experiment \"table-55\""),
    ] {
        let output = bench(words);
        assert!(
            !output.status.success() && printed(&output).contains(expected),
            "{words}: {}",
            printed(&output)
        );
    }
}

#[test]
fn results_are_written_with_their_origin() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-results");
    let output = bench(&format!("--sim table-1 --out {}", folder.display()));
    assert!(output.status.success(), "{}", printed(&output));
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect("written");
    let results = read("results.md");
    let link = "| [first-touch-costs](results/first-touch-costs.md) |";
    assert!(results.contains(link), "{results}");
    let text = read("results/first-touch-costs.md");
    let titled = text.starts_with("# first-touch-costs\n");
    assert!(titled && text.contains("Linux "), "{text}");
    let json = read("results/first-touch-costs.json");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let simulated = json["simulated"]["figures"].is_array();
    assert!(json["live"].is_null() && simulated, "{json}");
    assert!(read("results/first-touch-costs.svg").contains("<svg"));
}

#[test]
fn what_was_measured_stays_when_the_same_is_simulated() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-both-sides");
    std::fs::create_dir_all(folder.join("results")).expect("made");
    let live = "# zeroing-neighbour\n\nOn a day: here.\n";
    std::fs::write(folder.join("results/zeroing-neighbour.md"), live).expect("written");
    let output = bench(&format!("--sim figure-10 --out {}", folder.display()));
    assert!(output.status.success(), "{}", printed(&output));
    let results = std::fs::read_to_string(folder.join("results.md")).expect("written");
    let at = |part| results.find(part).unwrap_or_else(|| panic!("{part}: {results}"));
    assert!(at("[zeroing-neighbour]") < at("[zeroing-neighbour-simulated]"));
    let figure = folder.join("results/zeroing-neighbour-simulated.svg");
    assert!(figure.exists());
}

#[test]
fn the_index_links_every_result_of_the_repository() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let index = std::fs::read_to_string(docs.join("results.md")).expect("is there");
    let files = std::fs::read_dir(docs.join("results")).expect("is there");
    let names = files.filter_map(|file| {
        let name = file.expect("can be listed").file_name();
        Some(name.to_str()?.strip_suffix(".md")?.to_owned())
    });
    let links: Vec<String> = names.map(|name| format!("(results/{name}.md)")).collect();
    assert!(links.len() > 20);
    for link in &links {
        assert!(
            index.contains(link),
            "{link} is missing: `hawkeye-lab bench --out docs` writes the index"
        );
    }
    assert_eq!(index.matches("(results/").count(), links.len());
}
