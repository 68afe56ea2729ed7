//! The sample file, what is wrong with wrong ones, and that nothing makes the reader panic.

use super::*;
use hawkeye_policy::{Action, Terms};
use proptest::prelude::*;
use std::collections::BTreeSet;

const SAMPLE: &str = include_str!("../../../../packaging/hawkeye.toml");

fn parse(text: &str) -> Result<Config, String> {
    Config::parse("hawkeye.toml", text).map_err(|problems| problems.to_string())
}

/// The sample with everything in it that is commented out.
fn sample_with_all() -> String {
    let line = |line: &str| {
        let set = line
            .strip_prefix('#')
            .filter(|rest| rest.starts_with(|c: char| c == '[' || c.is_ascii_lowercase()));
        format!("{}\n", set.unwrap_or(line))
    };
    let all: String = SAMPLE.lines().map(line).collect();
    // Its rule has a warm start, which takes that.
    all.replace("mode = \"off\"", "mode = \"on\"")
}

#[test]
fn nothing_set_and_the_sample_file_are_the_defaults() {
    assert_eq!(parse(""), Ok(Config::default()));
    assert_eq!(parse(SAMPLE), Ok(Config::default()));
}

#[test]
fn the_sample_file_has_every_key_and_what_it_shows_is_right() {
    let text = sample_with_all();
    let (config, keys, verdict) = section::read("sample", &text, read);
    assert_eq!(verdict, Ok(()));
    assert_eq!(config.rules.len(), 1);
    assert!(config.metrics.is_some() && config.journal.is_some());
    assert_eq!(config.counters.cycles, Some(0x3c));
    let table = DeTable::parse(&text).expect("it was read already");
    let missing: BTreeSet<_> = keys
        .into_iter()
        .filter(|key| !has(table.get_ref(), key))
        .collect();
    assert_eq!(missing, BTreeSet::new());
}

use toml::de::{DeTable, DeValue};

fn has(table: &DeTable<'_>, key: &str) -> bool {
    let (first, rest) = key
        .split_once('.')
        .map_or((key, None), |(a, b)| (a, Some(b)));
    let (name, index) = first
        .split_once('[')
        .map_or((first, None), |(name, _)| (name, Some(0)));
    let Some(value) = table.get(name).map(|value| value.get_ref()) else {
        return false;
    };
    let inner = match index {
        Some(index) => value.get(index).map(|item| item.get_ref()),
        None => Some(value),
    };
    rest.is_none_or(|rest| {
        inner
            .and_then(DeValue::as_table)
            .is_some_and(|t| has(t, rest))
    })
}

#[test]
fn what_is_set_arrives() {
    let text = r#"
        policy = "linux"
        khugepaged = "restrain"
        kernel_split = "on"
        sampling = { period = "1 min", window = "500 ms" }
        limits.cpu_percent = 1.5
        limits.promotions_per_s = 20
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
    "#;
    let config = parse(text).expect("it is right");
    assert_eq!(config.policy, "linux");
    assert_eq!(config.khugepaged, Khugepaged::Restrain);
    assert_eq!(config.kernel_split, Switch::On);
    assert_eq!(config.settings.window, Duration::from_millis(500));
    assert_eq!(config.settings.cpu.percent(), 1.5);
    assert_eq!(config.settings.watermarks.high_percent(), 90.0);
    assert_eq!(config.group_watermarks.low_percent(), 75.0);
    let rate = Rate::per_second(20.0).expect("it is right");
    assert_eq!(config.policy_settings.linux.pace, Pace::PerSecond(rate));
    assert_eq!(config.selection.joins_at_bytes(), 1 << 30);
    assert_eq!(config.prezeroing.paced, Switch::Off);
    assert_eq!(config.prezeroing.bounds.usual(), 2000);
    assert_eq!(
        config.journal.map(|journal| journal.max_bytes),
        Some(64 << 20)
    );
    let java = config.rules.get(1).map(|rule| rule.action);
    let terms = Terms {
        weight: 2.0,
        max_huge_bytes: Some(4 << 30),
        min_gain_percent: Some(5.0),
        warm_bytes: Some(2 << 30),
        rule: None,
    };
    assert_eq!(java, Some(Action::Include(terms)));
}

/// Each text, and all that is said of it.
const WRONG: [(&str, &str); 35] = [
    (
        "policy = hawkeye",
        "hawkeye.toml:1:10: this is no TOML: string values must be quoted, expected literal string, in policy = hawkeye",
    ),
    (
        "policy = \"linux\"\npolicy = \"none\"",
        "hawkeye.toml:2:1: this is no TOML: duplicate key, in policy = \"none\"",
    ),
    (
        "[sampling\nperiod = \"1 s\"",
        "hawkeye.toml:1:10: this is no TOML: unclosed table, expected `]`, in [sampling",
    ),
    (
        "polcy = \"linux\"",
        "hawkeye.toml:1:1: polcy is no known key; did you mean policy?",
    ),
    (
        "[sampling]\nperoid = \"30 s\"",
        "hawkeye.toml:2:1: sampling.peroid is no known key; did you mean period?",
    ),
    (
        "[cache]\nsize = 1",
        "hawkeye.toml:1:2: cache is no known key; known here are policy, socket, khugepaged, kernel_split, small_pages, learn, sampling, limits, memory, linux, ingens, selection, rule, fault_ahead, metrics, journal, recording, counters, prezeroing",
    ),
    (
        "policy = \"best\"",
        "hawkeye.toml:1:10: policy can't be used: there is no policy \"best\"; the policies are hawkeye, hawkeye-g, hawkeye-pmu, ingens, linux, none",
    ),
    (
        "small_pages = \"on\"",
        "hawkeye.toml:1:15: small_pages must be one of \"off\", \"advised\", \"all\", not \"on\"",
    ),
    (
        "learn = true",
        "hawkeye.toml:1:9: learn must be one of \"off\", \"on\", not true",
    ),
    (
        "[sampling]\nperiod = 30",
        "hawkeye.toml:2:10: sampling.period must be a time with its unit, such as \"500 ms\", \"30 s\" or \"5 min\", not 30",
    ),
    (
        "[sampling]\nperiod = \"1 s\"\nwindow = \"2 s\"",
        "hawkeye.toml:3:10: sampling.window must be at least 1 ms and at most the period, not \"2 s\"",
    ),
    (
        "[sampling]\nperiod = \"100 ms\"",
        "hawkeye.toml:2:10: sampling.period does not go with the rest: window (s) must be at least 1 ms and at most the period, not 1",
    ),
    (
        "[limits]\ncpu_percent = 200",
        "hawkeye.toml:2:15: limits.cpu_percent must be over 0 and at most 100, not 200",
    ),
    (
        "[fault_ahead]\nthreads = 0",
        "hawkeye.toml:2:11: fault_ahead.threads must be 1 to 64, not 0",
    ),
    (
        "[prezeroing]\npages_per_s = 0",
        "hawkeye.toml:2:15: prezeroing.pages_per_s must be 512 to 10000000, not 0",
    ),
    (
        "[prezeroing]\nmost_pages_per_s = 5000",
        "hawkeye.toml:2:20: prezeroing.most_pages_per_s must be at least the usual rate and at most 10000000, not 5000",
    ),
    (
        "[memory]\nhigh_percent = \"85 %\"",
        "hawkeye.toml:2:16: memory.high_percent must be a number, such as 2 or 0.5, not \"85 %\"",
    ),
    (
        "[memory]\nhigh_percent = 60",
        "hawkeye.toml:2:16: memory.high_percent does not go with the rest: low watermark (%) must be over 0 and under the high watermark, not 70",
    ),
    (
        "[memory.cgroup]\nhigh_percent = 80\nlow_percent = 90",
        "hawkeye.toml:3:15: memory.cgroup.low_percent must be over 0 and under the high watermark, not 90",
    ),
    (
        "[memory]\nbloat_pages = 1000",
        "hawkeye.toml:2:15: memory.bloat_pages must be at least 1 and at most 512, not 1000",
    ),
    (
        "[selection]\nmin_resident = \"64\"",
        "hawkeye.toml:2:16: selection.min_resident must be a size with its unit, such as \"64 MiB\" or \"4 GiB\", not \"64\"",
    ),
    (
        "[selection]\nmin_resident = \"4 KiB\"\nlook_every = \"10 ms\"",
        "hawkeye.toml:2:16: selection.min_resident must be at least one huge page (2 MiB), not \"4 KiB\"",
    ),
    (
        "kernel_split = 63",
        "hawkeye.toml:1:16: kernel_split must be one of \"off\", \"on\", not 63",
    ),
    (
        "khugepaged = true",
        "hawkeye.toml:1:14: khugepaged must be one of \"off\", \"restrain\", \"leave\", not true",
    ),
    (
        "[metrics]\nlisten = \"0.0.0.0:9754\"",
        "hawkeye.toml:2:10: metrics.listen must be a loopback address with its port, such as \"127.0.0.1:9754\", not \"0.0.0.0:9754\"",
    ),
    (
        "[recording]\nfolder = \"/tmp/r\"\nmax_size = \"1 KiB\"",
        "hawkeye.toml:3:12: recording.max_size must be at least \"1 MiB\", not \"1 KiB\"",
    ),
    (
        "[recording]\nmax_size = \"1 GiB\"",
        "hawkeye.toml:2:12: recording.max_size has no meaning without folder",
    ),
    (
        "[journal]\nmax_size = \"1 GiB\"",
        "hawkeye.toml:2:12: journal.max_size has no meaning without file",
    ),
    (
        "socket = \"hawkeye.sock\"",
        "hawkeye.toml:1:10: socket must be an absolute path, such as \"/run/hawkeye/hawkeye.sock\", not \"hawkeye.sock\"",
    ),
    (
        "rule = 3\nmemory = [85, 70]",
        "hawkeye.toml:1:8: rule must be tables, each headed [[rule]], not 3\nhawkeye.toml:2:10: memory must be a table, not [85, 70]",
    ),
    (
        "[[rule]]\nmatch.command = \"[a\"",
        "hawkeye.toml:1:1: rule[1].name is missing: each rule has one, for `hawkeye status` to show\nhawkeye.toml:2:17: rule[1].match.command must be a pattern, such as \"redis-*\" (unclosed character class; missing ']'), not \"[a\"",
    ),
    (
        "[[rule]]\nname = \"a\"\n[[rule]]\nname = \"a\"\nmatch.qos = \"best\"",
        "hawkeye.toml:4:8: rule[2].name must be a name that no rule above has, not \"a\"\nhawkeye.toml:5:13: rule[2].match.qos must be one of \"guaranteed\", \"burstable\", \"besteffort\", not \"best\"",
    ),
    (
        "[[rule]]\nname = \"a\"\naction = \"exclude\"\nweight = 2",
        "hawkeye.toml:4:10: rule[1].weight has no meaning in a rule that excludes",
    ),
    (
        "[[rule]]\nname = \"a\"\nweight = 0\n\n[limits]\ncpu = 3\nmax_promotions = -1",
        "hawkeye.toml:3:10: rule[1].weight must be over 0 and at most 1000, not 0\nhawkeye.toml:6:1: limits.cpu is no known key; did you mean cpu_percent?\nhawkeye.toml:7:18: limits.max_promotions must be a whole number from 0 to 18446744073709551615, not -1",
    ),
    (
        "[[rule]]\nname = \"a\"\nwarm = \"1 GiB\"",
        "hawkeye.toml:1:1: rule has rules with `warm`, which takes mode = \"on\" under [fault_ahead]",
    ),
];

#[test]
fn every_mistake_is_shown_with_its_place_and_what_would_be_right() {
    for (text, expected) in WRONG {
        let said = parse(text).map(|_| ());
        assert_eq!(said, Err(expected.to_owned()), "{text}");
    }
}

#[test]
fn a_file_that_is_none_is_named() {
    let error = |path: &str| Config::load(Path::new(path)).map_err(|e| e.to_string());
    let missing = error("/nowhere/hawkeye.toml").expect_err("it is not there");
    assert!(
        missing.starts_with("reading /nowhere/hawkeye.toml: "),
        "{missing}"
    );
    let endless = error("/dev/zero").expect_err("it never ends");
    assert!(endless.contains("over 1 MiB"), "{endless}");
    assert!(error("/").is_err());
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,200}") {
        let _ = parse(&text);
    }

    /// Near enough to a configuration to come past the parser.
    #[test]
    fn no_change_to_the_sample_makes_it_panic(
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
