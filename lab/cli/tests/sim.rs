//! Runs `hawkeye-lab sim` as a command: what it prints and writes. Needs no privileges.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const WORKLOAD: &str = r#"
    name = "tiny"
    source = "a test"
    [[process]]
    name = "reader"
    [[process.area]]
    name = "heap"
    size = "64MiB"
    [[process.phase]]
    kind = "fill"
    area = "heap"
    page_ns = 100.0
    [[process.phase]]
    kind = "access"
    ideal_s = 60.0
    stream = [{ area = "heap", pattern = "random", cycles = 60.0 }]
"#;

fn stdout_of_success(output: Output) -> String {
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{told}");
    assert_eq!(told, "", "no progress where standard error is no terminal");
    String::from_utf8(output.stdout).expect("text")
}

fn stderr_of_failure(output: Output) -> String {
    assert!(!output.status.success());
    String::from_utf8(output.stderr).expect("text")
}

fn assert_has_all(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part} in {text}");
    }
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&path).expect("a folder");
        std::fs::write(path.join("tiny.toml"), WORKLOAD).expect("a file");
        Self(path)
    }

    fn command(&self, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hawkeye-lab"));
        command.args(words.split_whitespace()).current_dir(&self.0);
        command
    }

    fn lab(&self, words: &str) -> Output {
        self.command(words).output().expect("it runs")
    }

    fn sim(&self, words: &str) -> Output {
        self.lab(&format!("sim {words}"))
    }

    fn stdout_of_success(&self, words: &str) -> String {
        stdout_of_success(self.sim(words))
    }

    fn stderr_of_failure(&self, words: &str) -> String {
        stderr_of_failure(self.sim(words))
    }

    fn read(&self, file: &str) -> Vec<u8> {
        std::fs::read(self.0.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
    }

    fn read_text(&self, file: &str) -> String {
        String::from_utf8(self.read(file)).expect("text")
    }
}

const SMALL: &str = "--memory 256MiB --cores 2";

#[test]
fn a_run_is_printed_written_and_drawn() {
    let folder = Folder::new("run");
    let table = folder.stdout_of_success(&format!(
        "run --system hawkeye-g --workload tiny.toml {SMALL} --fragment 1 --json run.json --parquet run.parquet --svg run.svg"
    ));
    assert_has_all(&table, &["speed-up", "hawkeye-g"]);
    let json: serde_json::Value =
        serde_json::from_str(&folder.read_text("run.json")).expect("JSON");
    assert_eq!(json["workload"], "tiny");
    assert!(json["programs"][0]["course"].as_array().is_some_and(|points| points.len() > 100));
    let svg = folder.read_text("run.svg");
    let shown = ["share (%)", "overhead (%)", "RSS (GiB)", "time (s)", "reader"];
    assert_has_all(&svg, &shown);
    assert!(folder.read("run.parquet").ends_with(b"PAR1"));
    let printed = folder
        .stdout_of_success(&format!("run --system linux --workload tiny.toml {SMALL} --json"));
    assert!(serde_json::from_str::<serde_json::Value>(&printed).is_ok(), "{printed}");
}

#[test]
fn results_do_not_depend_on_threads() {
    let folder = Folder::new("threads");
    let compare = "--workloads tiny.toml --systems linux-4k,linux,hawkeye";
    let sweep = "--vary machine.fragment=0..1+0.5 --workload tiny.toml --systems linux,hawkeye";
    for (name, words) in [("compare", compare), ("sweep", sweep)] {
        let put = |n: u32| {
            format!(
                "--threads {n} --json {name}{n}.json --parquet {name}{n}.parquet --svg {name}{n}.svg"
            )
        };
        let tables =
            [1, 4].map(|n| folder.stdout_of_success(&format!("{name} {words} {SMALL} {}", put(n))));
        assert_eq!(tables[0], tables[1]);
        for kind in ["json", "parquet", "svg"] {
            let [one, four] = [1, 4].map(|n| folder.read(&format!("{name}{n}.{kind}")));
            assert!(one == four, "{name}.{kind} differs");
        }
    }
    let svg = folder.read_text("sweep1.svg");
    assert_has_all(&svg, &["machine.fragment", "time (s)"]);
}

#[test]
fn a_sweep_has_a_line_for_each_value_and_system() {
    let folder = Folder::new("sweep");
    let table = folder.stdout_of_success(&format!(
        "sweep --vary workload.process.reader.area.heap.size=32MiB,64MiB --workload tiny.toml --systems linux-4k,linux {SMALL}"
    ));
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 5, "{table}");
    assert!(lines[0].starts_with("workload.process.reader.area.heap.size"), "{table}");
    assert!(lines[1].starts_with("32MiB") && lines[3].starts_with("64MiB"), "{table}");
}

#[test]
fn a_sweep_runs_in_a_guest_as_a_run_does() {
    let folder = Folder::new("guest");
    let words = format!("--workload tiny.toml {SMALL} --guest 128MiB --json");
    let json = |words: String| -> serde_json::Value {
        serde_json::from_str(&folder.stdout_of_success(&words)).expect("JSON")
    };
    let run = json(format!("run --system linux-4k {words}"));
    let sweep = json(format!("sweep --vary machine.cores=2 --systems linux-4k {words}"));
    for key in ["programs", "guests"] {
        assert_eq!(sweep[0][key], run[key], "{key}");
    }
    assert_eq!(run["guests"].as_array().map(Vec::len), Some(1), "{run}");
}

#[test]
fn a_recording_is_made_and_replayed() {
    let folder = Folder::new("recording");
    std::fs::write(folder.0.join("seen.parquet"), "an older one").expect("a file");
    folder.stdout_of_success(&format!(
        "run --system hawkeye-g --workload tiny.toml {SMALL} --fragment 1 --record seen.parquet"
    ));
    let kept = std::fs::read_to_string(folder.0.join("seen.parquet.1")).expect("it is kept");
    assert_eq!(kept, "an older one");
    let table =
        folder.stdout_of_success(&format!("run --system linux --recording seen.parquet {SMALL}"));
    assert_has_all(&table, &["reader", "seen.parquet"]);
    let other = folder.stdout_of_success(&format!(
        "run --system hawkeye --recording seen.parquet {SMALL} --fragment 1"
    ));
    assert_has_all(&other, &["reader"]);
}

#[test]
fn mistakes_are_reported_in_a_sentence() {
    let folder = Folder::new("mistakes");
    std::fs::write(folder.0.join("bad.toml"), "[costs]\n").expect("a file");
    std::fs::write(folder.0.join("bad.parquet"), "no Parquet").expect("a file");
    let sweep = "sweep --workload tiny.toml --vary";
    let run = "run --system linux --workload tiny.toml";
    let replay = "run --system linux --recording";
    for (words, told) in [
        (format!("{sweep} machine.cores"), "has no values"),
        (format!("{sweep} machine.mood=1"), "memory, cores"),
        (format!("{sweep} machine.cores=1..2"), "is not a range"),
        (format!("{run} --costs bad.toml"), "bad.toml"),
        (format!("{run} --costs none.toml"), "reading none.toml"),
        (format!("{replay} bad.parquet"), "not a complete Parquet file"),
        (format!("{run} --svg /no/where.svg"), "writing /no/where.svg"),
        (format!("{run} --guest 128MiB --record guest.parquet"), "has virtual machines"),
    ] {
        let error = folder.stderr_of_failure(&words);
        assert!(error.contains(told), "{words}: {error}");
        assert!(!error.contains("panicked"), "{error}");
    }
    assert!(!folder.0.join("guest.parquet").exists());
}

#[test]
fn a_reader_that_has_gone_is_no_error() {
    let folder = Folder::new("gone");
    for words in ["list", &format!("compare --systems linux --workloads tiny.toml {SMALL}")] {
        let (reader, writer) = UnixStream::pair().expect("a socket pair");
        drop(reader);
        let mut command = folder.command(&format!("sim {words}"));
        let output = command.stdout(OwnedFd::from(writer)).output();
        stdout_of_success(output.expect("it runs"));
    }
}

#[test]
fn a_trace_is_a_workload() {
    let folder = Folder::new("trace");
    let put = |file: &str, text: &str| std::fs::write(folder.0.join(file), text).expect("a file");
    put("good.lackey", "I  401000,4\n S 555555600000,8\n L 7ffffffe0008,8\n");
    put("bad.lackey", " S 555555600000,8\n S here,8\n");
    let table = folder.stdout_of_success(&format!(
        "compare --workloads good.lackey,tiny.toml --systems linux-4k,linux {SMALL}"
    ));
    assert_has_all(&table, &["good.lackey linux-4k"]);
    let told =
        folder.stderr_of_failure(&format!("run --workload bad.lackey --system linux {SMALL}"));
    assert_has_all(&told, &["line 2"]);
    let lenient = format!("run --workload bad.lackey --system linux --trace-skip-bad {SMALL}");
    let output = folder.sim(&lenient);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("lines or records: 1"), "{told}");
}

#[test]
fn a_thesis_and_its_model_stand_side_by_side() {
    let folder = Folder::new("itanium");
    let text = stdout_of_success(folder.lab("itanium linear --svg itanium.svg"));
    assert_has_all(&text, &["thesis", "difference"]);
    assert_has_all(&text, &["65570", "65504"]);
    assert!(folder.read_text("itanium.svg").contains("linear"));
    let json: serde_json::Value =
        serde_json::from_str(&stdout_of_success(folder.lab("itanium linear --json")))
            .expect("JSON");
    assert_eq!(json[0]["rows"][0]["model"], 65_536.0);
    let told = stderr_of_failure(folder.lab("itanium vertical"));
    assert_has_all(&told, &["linear"]);
}
