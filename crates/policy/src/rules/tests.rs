use super::*;
use crate::process_attributes::Pod;
use crate::settings_profile::SettingsProfile;
use crate::workload_profile::{ProfileRequest, ProfileRequestSource};
use proptest::prelude::*;

impl RuleConditions {
    fn match_fully(&self, identity: &ProcessAttributes) -> bool {
        self.matches_attributes(identity) == Some(true)
    }
}

fn pattern(text: &str) -> Option<GlobPattern> {
    Some(text.parse().expect(text))
}

fn redis() -> ProcessAttributes {
    ProcessAttributes {
        command: "redis-server".into(),
        executable: Some("redis-check-rdb".into()),
        user: "redis".into(),
        user_pending: false,
        uid: 106,
        cgroup: "/system.slice/redis-server.service".into(),
        unit: Some("redis-server.service".into()),
        ..ProcessAttributes::default()
    }
}

fn in_pod() -> ProcessAttributes {
    ProcessAttributes {
        command: "java".into(),
        user: "1000".into(),
        uid: 1000,
        cgroup: "/kubepods.slice/kubepods-burstable.slice".into(),
        pod: Some(Pod {
            uid: "0f7c2c2f-1e6b-4a4e-9f57-2f5b0f3f7f10".into(),
            qos: QosClass::Burstable,
        }),
        ..ProcessAttributes::default()
    }
}

fn by(user: &str, command: &str) -> RuleConditions {
    RuleConditions {
        user: Some(user.into()),
        command: pattern(command),
        ..RuleConditions::default()
    }
}

fn include(name: &str, conditions: RuleConditions, weight: f64) -> Rule {
    let terms = ProcessSettings { weight, ..ProcessSettings::default() };
    Rule { name: name.into(), conditions, action: RuleAction::Include(terms) }
}

fn exclude(name: &str, conditions: RuleConditions) -> Rule {
    Rule { action: RuleAction::Exclude, ..include(name, conditions, 1.0) }
}

#[test]
fn patterns_match_whole_texts() {
    for (glob, text, expected) in [
        ("redis-*", "redis-server", true),
        ("redis", "redis-server", false),
        ("/system.slice/*", "/system.slice/redis.service", true),
        ("/system.slice/*", "/system.slice/a/b", false),
        ("/system.slice/**", "/system.slice/a/b", true),
        ("/**", "/", true),
        (r"dev\x2ddisk*", r"dev\x2ddisk.mount", true),
        ("[!a]*", ".hidden", true),
        ("[!a]*", "about", false),
        ("{mysqld,mariadbd}", "mysqld", true),
        ("{mysqld,mariadbd}", "mariadbd", true),
        ("{mysqld,mariadbd}", "mysql", false),
        ("{a,b}-x{1,2}", "a-x1", true),
        ("{a,b}-x{1,2}", "a-x2", true),
        ("{a,b}-x{1,2}", "b-x1", true),
        ("{a,b}-x{1,2}", "b-x2", true),
        ("{a,b}-x{1,2}", "a-x", false),
    ] {
        let pattern: GlobPattern = glob.parse().expect(glob);
        assert_eq!(pattern.matches(text), expected, "{glob} {text}");
    }
}

#[test]
fn malformed_patterns_are_refused_with_the_reason() {
    let long = "x".repeat(300);
    let nested = "{".repeat(120) + &"}".repeat(120);
    let many = "{a,b}".repeat(7);
    for (bad, reason) in [
        ("", "1 to 256 bytes, not 0"),
        (long.as_str(), "1 to 256 bytes, not 300"),
        ("[a", "invalid range"),
        ("**pod", "single path component"),
        ("{a,b", "{one,other}"),
        ("a}b", "{one,other}"),
        ("x}{a}", "{one,other}"),
        (nested.as_str(), "{one,other}"),
        (many.as_str(), "more than 64"),
    ] {
        let error = bad.parse::<GlobPattern>().expect_err(bad).to_string();
        assert!(error.contains(reason), "{bad}: {error}");
    }
}

/// Each wildcard could be tried at each position: without an early end that would be 2^100.
#[test]
fn many_wildcards_end_soon() -> Result<(), PatternError> {
    let pattern: GlobPattern = ("*a".repeat(100) + "b").parse()?;
    assert!(!pattern.matches(&"a".repeat(250)));
    Ok(())
}

#[test]
fn every_condition_must_hold() {
    let mut conditions = RuleConditions {
        command: pattern("redis-server"),
        user: Some("redis".into()),
        cgroup: pattern("/system.slice/**"),
        unit: pattern("redis*.service"),
        ..RuleConditions::default()
    };
    assert!(conditions.match_fully(&redis()));
    assert!(!conditions.match_fully(&in_pod()));
    conditions.user = Some("106".into());
    assert!(conditions.match_fully(&redis()), "a user number matches");
    conditions.command = pattern("redis-check-rdb");
    let by_executable = conditions.match_fully(&redis());
    assert!(by_executable);
    conditions.unit = pattern("postgres*");
    assert!(!conditions.match_fully(&redis()));
}

#[test]
fn rules_match_pods_by_uid_and_class() {
    let class = |qos| RuleConditions { qos: Some(qos), ..RuleConditions::default() };
    assert!(class(QosClass::Burstable).match_fully(&in_pod()));
    assert!(!class(QosClass::Guaranteed).match_fully(&in_pod()));
    assert!(!class(QosClass::Burstable).match_fully(&redis()));
    let pod = pattern("*");
    let any_pod = RuleConditions { pod, ..RuleConditions::default() };
    assert!(any_pod.match_fully(&in_pod()));
    assert!(!any_pod.match_fully(&redis()), "the process is in no pod");
}

#[test]
fn the_first_rule_decides() {
    let rules = vec![
        include("db", by("redis", "*"), 4.0),
        include("db again", by("redis", "*"), 9.0),
        exclude("no pods", RuleConditions::default()),
    ];
    let rules = Rules::new(rules, UnmatchedAction::Include);
    let terms = ProcessSettings { weight: 4.0, rule: Some(0), ..ProcessSettings::default() };
    assert_eq!(rules.evaluate_process(&redis()), RuleVerdict::Include(terms));
    assert_eq!(rules.evaluate_process(&in_pod()), RuleVerdict::Exclude { rule: Some(2) });
}

#[test]
fn a_rule_on_an_unknown_user_name_stops_the_decision() {
    let unnamed = ProcessAttributes { user: "106".into(), user_pending: true, ..redis() };
    let judge = |conditions| {
        let rules = vec![exclude("first", conditions)];
        Rules::new(rules, UnmatchedAction::Include).evaluate_process(&unnamed)
    };
    let undecided = RuleVerdict::Undecided { rule: Some(0) };
    let included = RuleVerdict::Include(ProcessSettings::default());
    assert_eq!(judge(by("redis", "*")), undecided);
    // A rule on another command does not hold up the next, and a user number decides at once.
    assert_eq!(judge(by("redis", "java")), included);
    assert_eq!(judge(by("107", "*")), included);
    let excluded = RuleVerdict::Exclude { rule: Some(0) };
    assert_eq!(judge(by("106", "*")), excluded);
}

#[test]
fn possible_warm_starts_are_recognised_by_command() {
    let named = |name: &str, warm_bytes| {
        let command = pattern(name);
        let conditions = RuleConditions { command, ..RuleConditions::default() };
        let terms = ProcessSettings { warm_bytes, ..ProcessSettings::default() };
        let action = RuleAction::Include(terms);
        Rule { action, ..include(name, conditions, 1.0) }
    };
    let rules = |rules| Rules::new(rules, UnmatchedAction::Include);
    let none = rules(vec![named("java", None)]);
    assert!(!none.any_rule_wants_warm_start() && !none.may_want_warm_start("java"));
    let some = rules(vec![named("redis*", None), named("qemu-*", Some(1 << 30))]);
    assert!(some.any_rule_wants_warm_start());
    assert!(some.may_want_warm_start("qemu-kvm"));
    assert!(!some.may_want_warm_start("redis-server"));
    let cut_off = some.may_want_warm_start("a-name-that-is-");
    assert!(cut_off);
}

#[test]
fn processes_without_a_rule_get_the_default_rules() {
    let guarded = ProcessSettings::default().with_profile(SettingsProfile::Guard);
    let redis_only = include("redis", by("redis", "redis-server"), 2.0);
    let rules = Rules::new(vec![redis_only], UnmatchedAction::Include);
    let rules = rules.with_default_settings(guarded);
    let other = ProcessAttributes { command: "java".into(), executable: None, ..redis() };
    assert_eq!(rules.evaluate_process(&other), RuleVerdict::Include(guarded));
    let promotes: Vec<bool> = rules.all_process_settings().map(|rules| rules.promotes).collect();
    assert_eq!(promotes, [true, false]);
}

#[test]
fn without_a_rule_the_setting_decides() {
    let judge = |unmatched| Rules::new(Vec::new(), unmatched).evaluate_process(&redis());
    let default = RuleVerdict::Include(ProcessSettings::default());
    assert_eq!(judge(UnmatchedAction::Include), default);
    assert_eq!(judge(UnmatchedAction::Exclude), RuleVerdict::Exclude { rule: None });
}

fn redis_that_asks_for(profile: &str) -> ProcessAttributes {
    let request = ProfileRequest { name: profile.into(), source: ProfileRequestSource::Unit };
    ProcessAttributes { profile_request: Some(request), ..redis() }
}

#[test]
fn a_workload_gets_the_profile_that_it_asks_for_up_to_the_highest() {
    use SettingsProfile::{Balanced, Guard, Speed};
    let rules = Rules::new(Vec::new(), UnmatchedAction::Include);
    let with = |profile| RuleVerdict::Include(ProcessSettings::default().with_profile(profile));
    let usual = RuleVerdict::Include(ProcessSettings::default());
    let never = RuleVerdict::ExcludedByRequest;
    for (asked, expected, said) in [
        ("never", never, "its systemd unit asks for the profile \"never\""),
        ("guard", with(Guard), "its systemd unit asks for the profile \"guard\""),
        ("speed", with(Balanced), "allows no more than balanced"),
        ("Guard", usual, "which does not exist"),
    ] {
        let process = redis_that_asks_for(asked);
        assert_eq!(rules.evaluate_process(&process), expected, "{asked}");
        let text = rules.describe_request(&process).unwrap_or_default();
        assert!(text.ends_with(said), "{text}");
    }
    let rules = rules.with_highest_request(Speed);
    assert_eq!(rules.evaluate_process(&redis_that_asks_for("speed")), with(Speed));
    assert_eq!(rules.describe_request(&redis()), None);
}

#[test]
fn a_workload_may_ask_to_be_managed_where_unmatched_processes_are_not() {
    let rules = Rules::new(Vec::new(), UnmatchedAction::Exclude);
    let verdict = |process| rules.evaluate_process(&process);
    let guard = ProcessSettings::default().with_profile(SettingsProfile::Guard);
    assert_eq!(verdict(redis_that_asks_for("guard")), RuleVerdict::Include(guard));
    assert_eq!(verdict(redis_that_asks_for("none")), RuleVerdict::Exclude { rule: None });
}

#[test]
fn a_rule_that_excludes_or_names_a_profile_decides_against_the_workload() {
    let weighted = include("weight", by("redis", "*"), 2.0);
    let guard = ProcessSettings::default().with_profile(SettingsProfile::Guard);
    let guarded = Rule { action: RuleAction::Include(guard), ..weighted.clone() };
    let judge = |rule: &Rule, asked| {
        let rules = Rules::new(vec![rule.clone()], UnmatchedAction::Include);
        let process = redis_that_asks_for(asked);
        (rules.evaluate_process(&process), rules.describe_request(&process).unwrap_or_default())
    };
    let (verdict, said) = judge(&guarded, "never");
    let guard = ProcessSettings { rule: Some(0), ..guard };
    assert_eq!(verdict, RuleVerdict::Include(guard));
    assert!(said.ends_with("but rule \"weight\" decides"), "{said}");
    let (verdict, _) = judge(&exclude("none", by("redis", "*")), "guard");
    assert_eq!(verdict, RuleVerdict::Exclude { rule: Some(0) });
    // A rule without a profile keeps its other terms.
    let (verdict, _) = judge(&weighted, "guard");
    let weighted_guard = ProcessSettings { weight: 2.0, ..guard };
    assert_eq!(verdict, RuleVerdict::Include(weighted_guard));
    assert_eq!(judge(&weighted, "never").0, RuleVerdict::ExcludedByRequest);
}

#[test]
fn a_process_is_left_alone_until_the_request_of_its_pod_is_known() {
    let pending = ProcessAttributes { request_pending: true, ..in_pod() };
    let judge = |rule| Rules::new(vec![rule], UnmatchedAction::Include).evaluate_process(&pending);
    let undecided = RuleVerdict::Undecided { rule: None };
    assert_eq!(judge(include("java", by("1000", "java"), 2.0)), undecided);
    // The answer cannot change these.
    assert_eq!(judge(exclude("java", by("1000", "java"))), RuleVerdict::Exclude { rule: Some(0) });
    let guard = ProcessSettings::default().with_profile(SettingsProfile::Guard);
    let rule = Rule { action: RuleAction::Include(guard), ..include("a", by("1000", "*"), 1.0) };
    let guard = ProcessSettings { rule: Some(0), ..guard };
    assert_eq!(judge(rule), RuleVerdict::Include(guard));
}

proptest! {
    #[test]
    fn patterns_and_names_cause_no_panic(glob in "\\PC{0,40}", text in "\\PC{0,20}") {
        if let Ok(pattern) = glob.parse::<GlobPattern>() {
            pattern.matches(&text);
        }
    }
}

#[test]
fn a_process_that_a_rule_or_its_workload_excludes_stays_excluded_by_name() {
    let why = |rules: &Rules, identity: &ProcessAttributes| rules.why_excluded_by_name(identity);
    let excluding =
        Rules::new(vec![exclude("caches", by("redis", "redis-*"))], UnmatchedAction::Include);
    assert_eq!(why(&excluding, &redis()).as_deref(), Some("rule \"caches\" excludes it"));
    assert_eq!(why(&excluding, &in_pod()), None);
    // No rule names it.
    let only_named = Rules::new(Vec::new(), UnmatchedAction::Exclude);
    assert_eq!(why(&only_named, &redis()), None);
    let never = ProfileRequest { name: "never".into(), source: ProfileRequestSource::Unit };
    let asking = ProcessAttributes { profile_request: Some(never), ..redis() };
    let any = Rules::new(Vec::new(), UnmatchedAction::Include);
    for rules in [&any, &only_named] {
        assert!(why(rules, &asking).is_some_and(|why| why.contains("\"never\"")));
    }
    let unknown = ProcessAttributes { request_pending: true, ..in_pod() };
    assert!(why(&any, &unknown).is_some_and(|why| why.contains("container runtime")));
}
