//! Errors of wrong workloads report what is wrong, and where.

use hawkeye_sim::workloads::WorkloadSpec;

const RIGHT: &str = r#"
name = "w"
source = "a test"
[[process]]
name = "p"
area = [{ name = "a", size = "4MiB" }]
phase = [
    { kind = "fill", area = "a", page_ns = 1.0 },
    { kind = "access", ideal_s = 1.0, stream = [{ area = "a", pattern = "random", cycles = 10.0 }] },
]
"#;

/// Changes of a right workload, and what the error says (`/` ends a line).
const WRONG: &str = r#"
4MiB           | 4MB                     | line 6
4MiB           | 4MB                     | not a size
fill           | fil                     | unknown variant `fil`
page_ns        | page_us                 | page_us
ns = 1.0       | ns = -1.0               | process p, phase 1: page_ns must be
ideal_s = 1.0, |                         | process p, phase 2: ideal_s must be given
[{ area = "a"  | [{ area = "b"           | one of the process's areas, not b
cycles = 10.0  | cycles = 0.0            | cycles must be 1 to 1e6
"random"       | { stride = 0 }          | pattern.stride must be 1 or more
"random"       | { zipf = -1.0 }         | pattern.zipf must be 0 to 10
cycles         | weight = nan, cycles    | weight must be over 0
cycles         | part = [0.5, 0.5], cycles | part must be two shares
area           | threads = 0/area        | threads must be 1 to 1024
area           | threads = 2000/area     | threads must be 1 to 1024
area           | cpu_weight = 0/area     | cpu_weight must be 1 to 10000
area           | cpu_weight = 20000/area | cpu_weight must be 1 to 10000
area           | count = 0/area          | process p: count must be 1 to 1024
area           | count = 4000000000/area | process p: count must be 1 to 1024
"4MiB"         | 0                       | process p, area a: size must be over 0
"4MiB"         | 0, pieces = { size = "8KiB" } | process p, area a: size must be over 0
"#;

const RIGHT_FILES: &str = r#"
name = "w"
source = "a test"
[[process]]
name = "p"
area = [{ name = "a", size = "4MiB", file = "f" }, { name = "b", size = "4MiB" }]
phase = [{ kind = "free", area = "b", share = 0.5 }]
[[process]]
name = "q"
area = [{ name = "a", size = "4MiB", file = "f" }]
phase = [{ kind = "fill", area = "a", page_ns = 1.0 }]
"#;

const WRONG_FILES: &str = r#"
size = "4MiB", file | size = "6MiB", file | process q, area a: size must be the same in all areas
size = "4MiB" }     | size = "4MiB", file = "f" } | process p, area b: file must be another one
file = "f"          | pieces = { size = "8KiB" }, file = "f" | pieces must be left out
area = "b", share   | area = "a", share   | area must be private memory
"#;

const WRONG_GUESTS: &str = r#"
16MiB     | 1MiB                       | guest g: memory must be 2 MiB to 1 TiB
cores = 2 | cores = 2/count = 2000     | guest g: count must be 1 to 1024
cores = 2 | cores = 0                  | guest g: cores must be 1 or more
ns = 1.0  | ns = -1.0                  | guest g, process p, phase 1: page_ns must be
cores = 2 | cores = 2/system = "linux" | system
"#;

fn check(right: &str, wrong: &str) {
    for line in wrong.trim().lines() {
        let parts: Vec<&str> = line.split('|').map(str::trim).collect();
        let text = right.replacen(parts[0], &parts[1].replace('/', "\n"), 1);
        let error =
            WorkloadSpec::parse("w", &text).map_or_else(|e| e.to_string(), |_| String::new());
        assert!(error.contains(parts[2]), "{line}: {error:?}");
    }
}

/// The documentation's examples can be run.
#[test]
fn what_is_documented_is_right() {
    let text = include_str!("../../../../docs/research/workloads.md");
    let blocks = text.split("```toml\n").skip(1);
    let examples: Vec<_> = blocks.filter_map(|b| b.split("```").next()).collect();
    assert!(!examples.is_empty());
    for example in examples {
        let read = WorkloadSpec::parse("example", example);
        assert!(read.is_ok(), "{read:?}");
    }
}

#[test]
fn errors_name_their_place() {
    assert!(WorkloadSpec::parse("w", RIGHT).is_ok());
    check(RIGHT, WRONG);
    assert!(WorkloadSpec::parse("w", RIGHT_FILES).is_ok());
    check(RIGHT_FILES, WRONG_FILES);
}

#[test]
fn guests_are_checked_like_everything_else() {
    let guest = RIGHT.replace("[[process", "[[guest.process").replace(
        "source = \"a test\"",
        "source = \"a test\"\n[[guest]]\nname = \"g\"\nmemory = \"16MiB\"\ncores = 2",
    );
    let parsed = WorkloadSpec::parse("w", &guest).unwrap();
    assert_eq!((parsed.processes.len(), parsed.guests.len()), (0, 1));
    check(&guest, WRONG_GUESTS);
    let nobody = "name = \"w\"\nsource = \"a test\"";
    assert!(WorkloadSpec::parse("w", nobody).is_err());
}
