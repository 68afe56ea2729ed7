//! Runs `hawkeye-lab bench` as a command, without privileges.

use std::path::Path;
use std::process::{Command, Output};

fn bench(words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hawkeye-lab"));
    command.arg("bench").args(words.split_whitespace());
    command.output().expect("it runs")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn both_sides_of_each_experiment_are_listed() {
    let output = bench("--list");
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    let line = |name| {
        text.lines()
            .find(|line| line.starts_with(name))
            .map(str::to_owned)
    };
    let sides = |name| line(name).map(|line| line.matches(" x ").count());
    assert_eq!(sides("table-5 "), Some(2), "{text}");
    assert_eq!(sides("figure-11 "), Some(1), "{text}");
}

#[test]
fn a_side_that_an_experiment_lacks_is_a_clear_error() {
    for (words, expected) in [
        ("--sim sampling", "sampling is not simulated"),
        ("--live figure-11", "figure-11 is simulated only"),
        ("--sim table-55", "there is no experiment \"table-55\""),
    ] {
        let output = bench(words);
        assert!(
            !output.status.success() && said(&output).contains(expected),
            "{words}: {}",
            said(&output)
        );
    }
}

#[test]
fn results_are_written_with_where_they_are_from() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-results");
    let output = bench(&format!("--sim table-1 --out {}", folder.display()));
    assert!(output.status.success(), "{}", said(&output));
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect("written");
    let results = read("results.md");
    assert!(
        results.contains("| [table-1](results/table-1.md) |"),
        "{results}"
    );
    let text = read("results/table-1.md");
    assert!(
        text.starts_with("# table-1\n") && text.contains("Linux "),
        "{text}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&read("results/table-1.json")).expect("JSON");
    assert!(
        json["live"].is_null() && json["simulated"]["figures"].is_array(),
        "{json}"
    );
    assert!(read("results/table-1.svg").contains("<svg"));
}

#[test]
fn what_was_measured_stays_when_the_same_is_simulated() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-both-sides");
    std::fs::create_dir_all(folder.join("results")).expect("made");
    let live = "# table-8\n\nOn a day: here.\n\n```\ntable-8: measured here\n```\n";
    std::fs::write(folder.join("results/table-8.md"), live).expect("written");
    let output = bench(&format!("--sim table-8 --out {}", folder.display()));
    assert!(output.status.success(), "{}", said(&output));
    let results = std::fs::read_to_string(folder.join("results.md")).expect("written");
    let at = |part| {
        results
            .find(part)
            .unwrap_or_else(|| panic!("{part}: {results}"))
    };
    assert!(at("[table-8]") < at("[table-8-simulated]"));
    assert!(folder.join("results/table-8-simulated.svg").exists());
}

#[test]
fn the_index_of_results_is_of_those_that_are_there() {
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
            "{link}: `hawkeye-lab bench --out docs` writes the index"
        );
    }
    assert_eq!(index.matches("(results/").count(), links.len());
}
