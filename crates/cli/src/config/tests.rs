//! Tests of the sample file, of mistakes, and that no text makes the reader panic.

use super::*;
use hawkeye_policy::{ProcessSettings, RuleAction, policies};
use proptest::prelude::*;
use std::time::Duration;

const SAMPLE: &str = include_str!("../../../../packaging/hawkeye.toml");

fn parse(text: &str) -> Result<Config, String> {
    Config::parse("hawkeye.toml", text).map_err(|problems| problems.to_string())
}

fn sample_with_all() -> String {
    let line = |line: &str| {
        let set = line
            .strip_prefix('#')
            .filter(|rest| rest.starts_with(|c: char| c == '[' || c.is_ascii_lowercase()));
        format!("{}\n", set.unwrap_or(line))
    };
    SAMPLE.lines().map(line).collect()
}

#[test]
fn an_empty_file_and_the_sample_file_give_the_defaults() {
    let usual = Config::default();
    assert_eq!(usual.settings, Settings::default());
    assert_eq!(usual.settings.policy_settings(), PolicySettings::default());
    assert_eq!(parse(SAMPLE), Ok(usual));
}

#[test]
fn the_sample_file_and_the_book_name_every_policy() {
    let book = include_str!("../../../../docs/use/policies-and-options.md");
    let (_, sample) = SAMPLE.split_once("# Which memory gets huge pages first").expect("is there");
    let (_, book) = book.split_once("| policy | promotes first |").expect("is there");
    for name in policies::policy_names() {
        assert!(sample.contains(&format!("#   \"{name}\" ")), "{name} is not in the sample file");
        assert!(
            book.contains(&format!("| `{name}` |")),
            "{name} is not in policies-and-options.md"
        );
    }
}

#[test]
fn the_sample_file_has_every_key_and_valid_examples() {
    let text = sample_with_all();
    let (config, keys, verdict) = config_table::parse_config_text("sample", &text, read_config);
    assert_eq!(verdict, Ok(()));
    assert!(config.rules.get(0).is_some() && config.rules.get(1).is_none());
    assert!(config.metrics.is_some() && config.journal.is_some());
    assert_eq!(config.counters.cycles, Some(0x3c));
    let table = DeTable::parse(&text).expect("valid TOML: it was parsed above");
    let missing = keys.iter().find(|key| !has(table.get_ref(), key));
    assert_eq!(missing, None);
}

use toml::de::{DeTable, DeValue};

fn has(table: &DeTable<'_>, key: &str) -> bool {
    let (first, rest) = key.split_once('.').unwrap_or((key, ""));
    let (name, index) = first.split_once('[').unwrap_or((first, ""));
    let Some(value) = table.get(name).map(|value| value.get_ref()) else {
        return false;
    };
    let inner = match index {
        "" => Some(value),
        _ => value.get(0).map(|item| item.get_ref()),
    };
    let inner = inner.and_then(DeValue::as_table);
    rest.is_empty() || inner.is_some_and(|table| has(table, rest))
}

#[test]
fn values_in_the_file_override_the_defaults() {
    let text = r#"
        policy = "linux"
        khugepaged = "restrain"
        kernel_split = "on"
        align_shared_memory = "on"
        shared_memory = "on"
        sampling = { period = "1 min", window = "500 ms" }
        limits.cpu_percent = 1.5
        limits.promotions_per_s = 20
        limits.reserve = "64 MiB"
        memory = { high_percent = 90, cgroup = { high_percent = 80, low_percent = 75 } }
        selection = { min_resident = "1 GiB", unmatched = "exclude" }
        metrics.listen = "[::1]:9754"
        journal.file = "/tmp/journal"

        [fault_ahead]
        mode = "on"

        [prezeroing]
        mode = "off"
        pages_per_s = 2000

        [[rule]]
        name = "build machines"
        match = { cgroup = "/build/**" }
        action = "exclude"

        [[rule]]
        name = "java"
        match = { command = "java", qos = "guaranteed" }
        weight = 2
        max_huge = "4 GiB"
        warm = "2 GiB"
        min_gain_percent = 5
        shared_memory = "off"
    "#;
    let config = parse(text).expect("a valid configuration");
    assert_eq!(config.policy, "linux");
    assert_eq!(config.khugepaged, KhugepagedMode::Restrain);
    assert!(config.kernel_split && config.align_shared_memory && config.shared_memory);
    assert_eq!(config.settings.window, Duration::from_millis(500));
    assert_eq!(config.settings.cpu.limit_percent_of_core(), 1.5);
    assert_eq!(config.settings.reserve.bytes(), 64 << 20);
    assert_eq!(config.settings.watermarks.high_percent(), 90.0);
    assert_eq!(config.group_watermarks.low_percent(), 75.0);
    assert_eq!(config.settings.rate, RatePerSecond::new(20.0).ok());
    assert_eq!(config.selection.min_bytes_to_join(), 1 << 30);
    assert!(!config.prezeroing.paced);
    assert_eq!(config.prezeroing.bounds.half_busy_rate(), 2000);
    let journal = config.journal.expect("the journal is set");
    assert_eq!(journal.most_bytes, 64 << 20);
    let java = config.rules.get(1).map(|rule| rule.action);
    let terms = ProcessSettings {
        weight: 2.0,
        max_huge_bytes: Some(4 << 30),
        min_gain_percent: Some(5.0),
        warm_bytes: Some(2 << 30),
        ..ProcessSettings::default()
    };
    assert_eq!(java, Some(RuleAction::Include(terms)));
}

/// What a configuration makes of the processes of its only rule, and of all others.
#[test]
fn a_profile_decides_unless_a_key_overrides_it() {
    for (text, policy, mode, other, rule) in [
        ("", "hawkeye", PrefaultMode::Off, (true, false), (true, false)),
        ("profile = 'speed'", "hawkeye", PrefaultMode::Auto, (true, true), (true, true)),
        ("profile = 'guard'", "guard", PrefaultMode::Off, (false, false), (false, false)),
        // Individual keys.
        (
            "profile = 'guard'\npolicy = 'hawkeye-g'",
            "hawkeye-g",
            PrefaultMode::Off,
            (true, false),
            (true, false),
        ),
        (
            "profile = 'speed'\nfault_ahead.mode = 'off'",
            "hawkeye",
            PrefaultMode::Off,
            (true, true),
            (true, true),
        ),
        ("fault_ahead.mode = 'on'", "hawkeye", PrefaultMode::On, (true, true), (true, true)),
        // Profiles of rules.
        ("RULE = 'speed'", "hawkeye", PrefaultMode::Auto, (true, false), (true, true)),
        ("RULE = 'guard'", "hawkeye", PrefaultMode::Off, (true, false), (false, false)),
        (
            "profile = 'guard'\nRULE = 'balanced'",
            "hawkeye",
            PrefaultMode::Off,
            (false, false),
            (true, false),
        ),
        (
            "fault_ahead.mode = 'on'\nRULE = 'balanced'",
            "hawkeye",
            PrefaultMode::On,
            (true, true),
            (true, false),
        ),
    ] {
        let (top, profile) = text.split_once("RULE").unwrap_or((text, ""));
        let profile = match profile {
            "" => String::new(),
            set => format!("profile{set}\n"),
        };
        let file = format!("{top}\n[[rule]]\nname = 'a'\nmatch.command = 'a'\n{profile}");
        let config = parse(&file).expect("a valid configuration");
        assert_eq!((config.policy.as_str(), config.fill.mode), (policy, mode), "{text}");
        let all: Vec<(bool, bool)> =
            config.rules.all_process_settings().map(|r| (r.promotes, r.prefaults)).collect();
        assert_eq!(all, [rule, other], "{text}");
    }
    let warm = parse("[[rule]]\nname = 'a'\nprofile = 'balanced'\nwarm = '1 GiB'");
    let warm = warm.expect("a valid configuration");
    assert_eq!(warm.fill.mode, PrefaultMode::Auto);
}

#[test]
fn workloads_may_ask_for_as_much_as_the_configuration_allows() {
    for (text, policy, mode) in [
        ("", "guard", PrefaultMode::Off),
        ("highest = 'balanced'", "hawkeye", PrefaultMode::Off),
        ("highest = 'speed'", "hawkeye", PrefaultMode::Auto),
        ("highest = 'speed'\nunits = 'off'\ncgroups = 'off'", "guard", PrefaultMode::Off),
    ] {
        let file = format!("profile = 'guard'\n[workload_profiles]\n{text}");
        let config = parse(&file).expect("a valid configuration");
        assert_eq!((config.policy.as_str(), config.fill.mode), (policy, mode), "{text}");
    }
    let socket = "/run/crio/crio.sock";
    let config = parse(&format!("workload_profiles.cri_socket = '{socket}'"));
    let sources = config.expect("a valid configuration").profile_requests;
    let cri_socket = Some(PathBuf::from(socket));
    assert_eq!(sources, ProfileRequestSources { units: true, cgroups: true, cri_socket });
}

#[test]
fn a_rule_with_the_profile_never_excludes() {
    let config = parse("[[rule]]\nname = 'a'\nprofile = 'never'").expect("a valid configuration");
    assert_eq!(config.rules.get(0).map(|rule| rule.action), Some(RuleAction::Exclude));
}

/// Wrong configurations. A comment after `#!` is the column and the text of the error in its line.
const WRONG: &str = r#"
policy = "best" #!10: policy can't be used: there is no policy "best"; the policies are {policies}
polcy = "linux" #!1: polcy is not a known key; did you mean policy?
socket = "hawkeye.sock" #!10: socket must be an absolute path, such as "/run/hawkeye/hawkeye.sock", not "hawkeye.sock"
khugepaged = true #!14: khugepaged must be one of "off", "restrain", "leave", not true
kernel_split = 63 #!16: kernel_split must be one of "off", "on", not 63
small_pages = "on" #!15: small_pages must be one of "off", "advised", "all", not "on"
profile = "always" #!11: profile must be one of "guard", "balanced", "speed", not "always"
learn = true #!9: learn must be one of "off", "on", not true
[cache] #!2: cache is not a known key; the keys here are profile, policy, socket, khugepaged, kernel_split, shared_memory, align_shared_memory, small_pages, learn, sampling, limits, memory, selection, workload_profiles, fault_ahead, rule, metrics, journal, recording, counters, prezeroing
size = 1
[sampling]
peroid = "30 s" #!1: sampling.peroid is not a known key; did you mean period?
period = 30 #!10: sampling.period must be a time with its unit, such as "500 ms", "30 s" or "5 min", not 30
[limits]
cpu_percent = 200 #!15: limits.cpu_percent must be over 0 and at most 100, not 200
cpu = 3 #!1: limits.cpu is not a known key; did you mean cpu_percent?
max_promotions = -1 #!18: limits.max_promotions must be a whole number from 0 to 18446744073709551615, not -1
[fault_ahead]
threads = 0 #!11: fault_ahead.threads must be 1 to 64, not 0
[prezeroing]
pages_per_s = 0 #!15: prezeroing.pages_per_s must be 512 to 10000000, not 0
[memory]
high_percent = "85 %" #!16: memory.high_percent must be a number, such as 2 or 0.5, not "85 %"
bloat_pages = 1000 #!15: memory.bloat_pages must be at least 1 and at most 512, not 1000
[memory.cgroup]
high_percent = 80
low_percent = 90 #!15: memory.cgroup.low_percent must be over 0 and under the high watermark, not 90
[selection]
min_resident = "64" #!16: selection.min_resident must be a size with its unit, such as "64 MiB" or "4 GiB", not "64"
[workload_profiles]
highest = "never" #!11: workload_profiles.highest must be one of "guard", "balanced", "speed", not "never"
cri_socket = "containerd.sock" #!14: workload_profiles.cri_socket must be an absolute path, such as "/run/hawkeye/hawkeye.sock", not "containerd.sock"
[metrics]
listen = "0.0.0.0:9754" #!10: metrics.listen must be a loopback address with its port, such as "127.0.0.1:9754", not "0.0.0.0:9754"
[recording]
folder = "/tmp/r"
max_size = "1 KiB" #!12: recording.max_size must be at least "1 MiB", not "1 KiB"
[journal]
max_size = "1 GiB" #!12: journal.max_size has no effect without file; set file, or remove this key
[[rule]] #!1: rule[1].name is missing: every rule needs a name (`hawkeye why` shows it)
match.command = "[a" #!17: rule[1].match.command must be a pattern, such as "redis-*" (invalid range pattern, at byte 0 of `[a`), not "[a"
[[rule]]
name = "a"
weight = 0 #!10: rule[2].weight must be over 0 and at most 1000, not 0
[[rule]]
name = "a" #!8: rule[3].name must be a name that no earlier rule has, not "a"
match.qos = "best" #!13: rule[3].match.qos must be one of "guaranteed", "burstable", "besteffort", not "best"
[[rule]]
name = "b"
action = "exclude"
weight = 2 #!10: rule[4].weight has no effect in a rule with action = "exclude"; remove it
profile = "guard" #!11: rule[4].profile has no effect in a rule with action = "exclude"; remove it
[[rule]]
name = "c"
action = "include" #!10: rule[5].action has no effect in a rule with profile = "never"; remove it
profile = "never"
max_huge = "1 GiB" #!12: rule[5].max_huge has no effect in a rule with profile = "never"; remove it
---
rule = 3 #!8: rule must be one or more tables, each with the header [[rule]], not 3
memory = [85, 70] #!10: memory must be a table, not [85, 70]
---
[sampling]
period = "1 s"
window = "2 s" #!10: sampling.window must be at least 1 ms and at most the period, not "2 s"
[prezeroing]
most_pages_per_s = 5000 #!20: prezeroing.most_pages_per_s must be at least the usual rate and at most 10000000, not 5000
[memory]
high_percent = 60 #!16: memory.high_percent contradicts other settings: low watermark (%) must be over 0 and under the high watermark, not 70
[limits]
reserve = "2 GiB" #!11: limits.reserve must be at most 1 GiB, not "2 GiB"
[selection]
min_resident = "4 KiB" #!16: selection.min_resident must be at least one huge page (2 MiB), not "4 KiB"
look_every = "10 ms"
[recording]
max_size = "1 GiB" #!12: recording.max_size has no effect without folder; set folder, or remove this key
[fault_ahead]
mode = "off"
[[rule]] #!1: rule uses `warm`, for which mode under [fault_ahead] must not be "off"
name = "a"
warm = "1 GiB"
profile = "fast" #!11: rule[1].profile must be one of "never", "guard", "balanced", "speed", not "fast"
---
[sampling]
period = "100 ms" #!10: sampling.period contradicts other settings: window (s) must be at least 1 ms and at most the period, not 1
"#;

#[test]
fn every_mistake_is_reported_with_its_position_and_what_is_allowed() {
    let policies = policies::joined_policy_names();
    for text in WRONG.replace("{policies}", &policies).split("---\n") {
        let said = |(n, line): (usize, &str)| {
            let (_, said) = line.split_once("#!")?;
            Some(format!("hawkeye.toml:{}:{said}", n + 1))
        };
        let expected: Vec<String> = text.lines().enumerate().filter_map(said).collect();
        assert_eq!(parse(text), Err(expected.join("\n")), "{text}");
    }
}

#[test]
fn invalid_toml_is_reported_with_its_position() {
    for (text, place, why) in [
        (
            "policy = hawkeye",
            "1:10",
            "string values must be quoted, expected literal string, in policy = hawkeye",
        ),
        ("policy = \"linux\"\npolicy = \"none\"", "2:1", "duplicate key, in policy = \"none\""),
        ("[sampling\nperiod = \"1 s\"", "1:10", "unclosed table, expected `]`, in [sampling"),
    ] {
        let expected = format!("hawkeye.toml:{place}: this is not valid TOML: {why}");
        assert_eq!(parse(text), Err(expected), "{text}");
    }
}

#[test]
fn an_unreadable_file_is_named() {
    // As `run` prints errors.
    let error = |path: &str| {
        let loaded = Config::load(Path::new(path));
        loaded.map_err(|e| format!("{:#}", anyhow::Error::from(e)))
    };
    let missing = error("/nowhere/hawkeye.toml").expect_err("the file does not exist");
    let once = "can't read the configuration /nowhere/hawkeye.toml: No such file or directory (os error 2)";
    assert_eq!(missing, once);
    let endless = error("/dev/zero").expect_err("the file never ends");
    assert!(endless.contains("over 1 MiB"), "{endless}");
    assert!(error("/").is_err());
}

#[test]
fn a_link_to_nowhere_is_a_mistake_and_no_missing_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let usual = folder.path().join("hawkeye.toml");
    assert_eq!(unless_missing(&usual), None);
    assert_eq!(Config::load_or_default(None).expect("the defaults"), Config::default());
    std::os::unix::fs::symlink("nowhere", &usual).expect("a link can be made");
    assert_eq!(unless_missing(&usual), Some(&*usual));
    assert!(Config::load_or_default(Some(&usual)).is_err());
    let named = Some(Path::new("named.toml"));
    assert_eq!(find_config_file(named), named);
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "\\PC{0,200}") {
        let _ = parse(&text);
    }

    /// Text similar enough to a configuration to pass the parser.
    #[test]
    fn no_change_to_the_sample_makes_the_reader_panic(
        line in 0usize..400,
        value in r#"("[^"\n]{0,20}"|-?[0-9]{1,25}|[0-9]\.[0-9]e[0-9]{1,4}|true|\[\]|\{\}|[a-z\[\]{}.]{0,12})"#,
    ) {
        let text = sample_with_all();
        let changed: String = text.lines().enumerate().map(|(at, old)| {
            match old.split_once(" = ") {
                Some((key, _)) if at == line % text.lines().count() => format!("{key} = {value}\n"),
                _ => format!("{old}\n"),
            }
        }).collect();
        if let Err(said) = parse(&changed) {
            prop_assert!(said.starts_with("hawkeye.toml:"), "{}", said);
        }
    }
}
