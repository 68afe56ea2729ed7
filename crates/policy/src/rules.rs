//! Which processes are managed, and with which settings.

use crate::identity::{Identity, QosClass};
use crate::terms::Terms;
use serde::Serialize;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// A shell-like pattern: `*` and `?` stop at a `/`; `**`, alone between slashes, does not. `[a-z]`,
/// `[!a-z]` and `{one,other}` work too. A backslash stands for itself, because systemd's names
/// contain backslashes.
#[derive(Clone)]
pub struct Pattern {
    text: String,
    /// One for each combination of the alternatives in braces.
    alternatives: Vec<glob::Pattern>,
}

/// Longer patterns are refused: no user needs them, and their cost would have no bound.
const MAX_PATTERN_BYTES: usize = 256;

/// More combinations of alternatives are refused.
const MAX_ALTERNATIVES: usize = 64;

/// A pattern that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadPattern {
    /// It is empty or too long.
    #[error("a pattern has 1 to {MAX_PATTERN_BYTES} bytes, not {0}")]
    Length(usize),
    /// Its braces combine to too many patterns.
    #[error("alternatives in braces combine to more than {MAX_ALTERNATIVES} patterns")]
    TooManyAlternatives,
    /// A brace without its partner, or braces inside braces.
    #[error("expected alternatives as {{one,other}}, without braces inside braces")]
    Braces,
    /// A malformed wildcard or range.
    #[error("{message}, at byte {at} of `{pattern}`")]
    Wildcard {
        /// What is wrong.
        message: &'static str,
        /// Where, in bytes from the start of `pattern`.
        at: usize,
        /// The pattern, with one alternative of each pair of braces.
        pattern: String,
    },
}

impl FromStr for Pattern {
    type Err = BadPattern;

    fn from_str(text: &str) -> Result<Self, BadPattern> {
        if text.is_empty() || text.len() > MAX_PATTERN_BYTES {
            return Err(BadPattern::Length(text.len()));
        }
        let parse = |pattern: String| {
            glob::Pattern::new(&pattern).map_err(|error| BadPattern::Wildcard {
                message: error.msg,
                at: error.pos,
                pattern,
            })
        };
        let alternatives = expand_braces(text)?;
        Ok(Self {
            alternatives: alternatives
                .into_iter()
                .map(parse)
                .collect::<Result<_, _>>()?,
            text: text.to_owned(),
        })
    }
}

/// The patterns that `text` stands for, one for each combination of its alternatives.
fn expand_braces(text: &str) -> Result<Vec<String>, BadPattern> {
    let mut expanded = vec![String::new()];
    let mut rest = text;
    while let Some((literal, after)) = rest.split_once('{') {
        let (choices, after) = after.split_once('}').ok_or(BadPattern::Braces)?;
        if literal.contains('}') || choices.contains('{') {
            return Err(BadPattern::Braces);
        }
        let choices: Vec<&str> = choices.split(',').collect();
        if expanded.len() * choices.len() > MAX_ALTERNATIVES {
            return Err(BadPattern::TooManyAlternatives);
        }
        expanded = expanded
            .iter()
            .flat_map(|start| {
                choices
                    .iter()
                    .map(move |it| format!("{start}{literal}{it}"))
            })
            .collect();
        rest = after;
    }
    if rest.contains('}') {
        return Err(BadPattern::Braces);
    }
    expanded
        .iter_mut()
        .for_each(|pattern| pattern.push_str(rest));
    Ok(expanded)
}

impl Pattern {
    /// Whether the pattern matches all of `text`.
    pub fn matches(&self, text: &str) -> bool {
        let options = glob::MatchOptions {
            case_sensitive: true,
            require_literal_separator: true,
            require_literal_leading_dot: false,
        };
        let mut alternatives = self.alternatives.iter();
        alternatives.any(|pattern| pattern.matches_with(text, options))
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.text)
    }
}

/// Conditions on a process for a rule to apply. All given conditions must hold; without any, every
/// process meets them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conditions {
    /// Its command name, or the name of its executable.
    pub command: Option<Pattern>,
    /// Its user, by name or number.
    pub user: Option<String>,
    /// Its cgroup's path.
    pub cgroup: Option<Pattern>,
    /// Its systemd unit.
    pub unit: Option<Pattern>,
    /// The uid of its Kubernetes pod.
    pub pod: Option<Pattern>,
    /// The class of its Kubernetes pod.
    pub qos: Option<QosClass>,
}

impl Conditions {
    /// Whether the process meets all of them. `None` where that depends on its user's name, which
    /// is not known yet.
    fn decide(&self, identity: &Identity) -> Option<bool> {
        if !self.hold_but_for_user(identity) {
            return Some(false);
        }
        let Some(wanted) = &self.user else {
            return Some(true);
        };
        let matches = *wanted == identity.user || *wanted == identity.uid.to_string();
        let is_number = wanted.bytes().all(|byte| byte.is_ascii_digit());
        (matches || is_number || !identity.user_pending).then_some(matches)
    }

    fn hold_but_for_user(&self, identity: &Identity) -> bool {
        let pattern = |wanted: &Option<Pattern>, found: &[Option<&str>]| {
            wanted.as_ref().is_none_or(|wanted| {
                let mut found = found.iter().flatten();
                found.any(|text| wanted.matches(text))
            })
        };
        let pod = identity.pod.as_ref();
        pattern(
            &self.command,
            &[Some(&identity.command), identity.executable.as_deref()],
        ) && pattern(&self.cgroup, &[Some(&identity.cgroup)])
            && pattern(&self.unit, &[identity.unit.as_deref()])
            && pattern(&self.pod, &[pod.map(|pod| pod.uid.as_str())])
            && self
                .qos
                .is_none_or(|class| pod.is_some_and(|pod| pod.qos == class))
    }
}

/// What happens to the processes of a rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// They are managed under these rules; [`Rules`] fills in their `rule`.
    Include(Terms),
    /// They are left alone.
    Exclude,
}

/// One rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Its name for users.
    pub name: String,
    /// The processes to which it applies.
    pub conditions: Conditions,
    /// What happens to them.
    pub action: Action,
}

impl Rule {
    fn wants_warm_start(&self) -> bool {
        matches!(self.action, Action::Include(terms) if terms.warm_bytes.is_some())
    }
}

/// Length to which the kernel cuts a command's name (TASK_COMM_LEN - 1).
const LONGEST_COMMAND_BYTES: usize = 15;

/// Whether processes that match no rule are managed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unmatched {
    /// They are managed under the default rules.
    #[default]
    Include,
    /// They are left alone.
    Exclude,
}

/// The decision of the rules on one process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// Manage it under these rules.
    Include(Terms),
    /// Leave it alone.
    Exclude {
        /// The deciding rule, by its index; `None`: no rule matched.
        rule: Option<usize>,
    },
    /// Leave it alone for now: its user's name is not known yet, and a rule depends on it.
    Undecided {
        /// The rule, by its index.
        rule: usize,
    },
}

/// All rules of a machine, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    rules: Vec<Rule>,
    unmatched: Unmatched,
}

impl Rules {
    /// The first rule that applies decides; `unmatched` where none does.
    pub fn new(rules: Vec<Rule>, unmatched: Unmatched) -> Self {
        Self { rules, unmatched }
    }

    /// Whether a process is managed, and under which rules.
    pub fn judge(&self, identity: &Identity) -> Verdict {
        let decisions = self
            .rules
            .iter()
            .map(|rule| rule.conditions.decide(identity));
        let mut decisive = decisions
            .enumerate()
            .filter(|(_, holds)| *holds != Some(false));
        let first = match decisive.next() {
            Some((rule, None)) => return Verdict::Undecided { rule },
            Some((rule, Some(_))) => Some(rule),
            None => None,
        };
        match (first.map(|at| self.rules[at].action), self.unmatched) {
            (Some(Action::Include(terms)), _) => Verdict::Include(Terms {
                rule: first,
                ..terms
            }),
            (Some(Action::Exclude), _) => Verdict::Exclude { rule: first },
            (None, Unmatched::Include) => Verdict::Include(Terms::default()),
            (None, Unmatched::Exclude) => Verdict::Exclude { rule: None },
        }
    }

    /// Number of rules.
    pub fn count(&self) -> usize {
        self.rules.len()
    }

    /// Whether some rule asks for warm starts.
    pub fn want_warm_starts(&self) -> bool {
        self.rules.iter().any(Rule::wants_warm_start)
    }

    /// Whether a program with this command name, just started, could fall under a rule with a warm
    /// start. A rule with further conditions counts too; `evaluate` decides in full.
    pub fn may_want_warm_start(&self, command: &str) -> bool {
        // The rule may match the executable, which can have a longer name.
        let cut_off = command.len() >= LONGEST_COMMAND_BYTES;
        self.rules.iter().any(|rule| {
            let pattern = rule.conditions.command.as_ref();
            rule.wants_warm_start() && pattern.is_none_or(|p| cut_off || p.matches(command))
        })
    }

    /// The rule at this index, as in [`Terms::rule`] and [`Verdict::Exclude`].
    pub fn get(&self, place: usize) -> Option<&Rule> {
        self.rules.get(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Pod;
    use proptest::prelude::*;

    impl Conditions {
        fn hold(&self, identity: &Identity) -> bool {
            self.decide(identity) == Some(true)
        }
    }

    fn pattern(text: &str) -> Option<Pattern> {
        Some(text.parse().expect(text))
    }

    fn redis() -> Identity {
        Identity {
            command: "redis-server".into(),
            executable: Some("redis-check-rdb".into()),
            user: "redis".into(),
            user_pending: false,
            uid: 106,
            cgroup: "/system.slice/redis-server.service".into(),
            unit: Some("redis-server.service".into()),
            pod: None,
            container: None,
        }
    }

    fn in_pod() -> Identity {
        Identity {
            command: "java".into(),
            user: "1000".into(),
            uid: 1000,
            cgroup: "/kubepods.slice/kubepods-burstable.slice".into(),
            pod: Some(Pod {
                uid: "0f7c2c2f-1e6b-4a4e-9f57-2f5b0f3f7f10".into(),
                qos: QosClass::Burstable,
            }),
            ..Identity::default()
        }
    }

    fn any() -> Conditions {
        Conditions::default()
    }

    fn by(user: &str, command: &str) -> Conditions {
        Conditions {
            user: Some(user.into()),
            command: pattern(command),
            ..any()
        }
    }

    fn include(name: &str, conditions: Conditions, weight: f64) -> Rule {
        let terms = Terms {
            weight,
            ..Terms::default()
        };
        Rule {
            name: name.into(),
            conditions,
            action: Action::Include(terms),
        }
    }

    fn exclude(name: &str, conditions: Conditions) -> Rule {
        Rule {
            action: Action::Exclude,
            ..include(name, conditions, 1.0)
        }
    }

    #[test]
    fn patterns_match_whole_texts() {
        let matches =
            |glob: &str, text: &str| glob.parse::<Pattern>().is_ok_and(|p| p.matches(text));
        assert!(matches("redis-*", "redis-server"));
        assert!(!matches("redis", "redis-server"));
        assert!(matches("/system.slice/*", "/system.slice/redis.service"));
        assert!(!matches("/system.slice/*", "/system.slice/a/b"));
        assert!(matches("/system.slice/**", "/system.slice/a/b"));
        assert!(matches("/**", "/"));
        assert!(matches(r"dev\x2ddisk*", r"dev\x2ddisk.mount"));
        assert!(matches("[!a]*", ".hidden"));
        assert!(!matches("[!a]*", "about"));
        for (text, expected) in [("mysqld", true), ("mariadbd", true), ("mysql", false)] {
            assert_eq!(matches("{mysqld,mariadbd}", text), expected, "{text}");
        }
        for text in ["a-x1", "a-x2", "b-x1", "b-x2"] {
            assert!(matches("{a,b}-x{1,2}", text), "{text}");
        }
        assert!(!matches("{a,b}-x{1,2}", "a-x"));
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
            let error = bad.parse::<Pattern>().expect_err(bad).to_string();
            assert!(error.contains(reason), "{bad}: {error}");
        }
    }

    /// Each wildcard could be tried at each position: without an early end that would be 2^100.
    #[test]
    fn many_wildcards_end_soon() -> Result<(), BadPattern> {
        let pattern: Pattern = ("*a".repeat(100) + "b").parse()?;
        assert!(!pattern.matches(&"a".repeat(250)));
        Ok(())
    }

    #[test]
    fn every_condition_must_hold() {
        let mut conditions = Conditions {
            command: pattern("redis-server"),
            user: Some("redis".into()),
            cgroup: pattern("/system.slice/**"),
            unit: pattern("redis*.service"),
            ..Conditions::default()
        };
        assert!(conditions.hold(&redis()));
        assert!(!conditions.hold(&in_pod()));
        conditions.user = Some("106".into());
        assert!(conditions.hold(&redis()), "a user number matches");
        conditions.command = pattern("redis-check-rdb");
        let by_executable = conditions.hold(&redis());
        assert!(by_executable);
        conditions.unit = pattern("postgres*");
        assert!(!conditions.hold(&redis()));
    }

    #[test]
    fn rules_match_pods_by_uid_and_class() {
        let class = |qos| Conditions {
            qos: Some(qos),
            ..any()
        };
        assert!(class(QosClass::Burstable).hold(&in_pod()));
        assert!(!class(QosClass::Guaranteed).hold(&in_pod()));
        assert!(!class(QosClass::Burstable).hold(&redis()));
        let pod = pattern("*");
        let any_pod = Conditions { pod, ..any() };
        assert!(any_pod.hold(&in_pod()));
        assert!(!any_pod.hold(&redis()), "the process is in no pod");
    }

    #[test]
    fn the_first_rule_decides() {
        let rules = vec![
            include("db", by("redis", "*"), 4.0),
            include("db again", by("redis", "*"), 9.0),
            exclude("no pods", any()),
        ];
        let rules = Rules::new(rules, Unmatched::Include);
        let terms = Terms {
            weight: 4.0,
            rule: Some(0),
            ..Terms::default()
        };
        assert_eq!(rules.judge(&redis()), Verdict::Include(terms));
        assert_eq!(rules.judge(&in_pod()), Verdict::Exclude { rule: Some(2) });
    }

    #[test]
    fn a_rule_on_an_unknown_user_name_stops_the_decision() {
        let unnamed = Identity {
            user: "106".into(),
            user_pending: true,
            ..redis()
        };
        let judge = |conditions| {
            let rules = vec![exclude("first", conditions)];
            Rules::new(rules, Unmatched::Include).judge(&unnamed)
        };
        let undecided = Verdict::Undecided { rule: 0 };
        let included = Verdict::Include(Terms::default());
        assert_eq!(judge(by("redis", "*")), undecided);
        // A rule on another command does not hold up the next, and a user number decides at once.
        assert_eq!(judge(by("redis", "java")), included);
        assert_eq!(judge(by("107", "*")), included);
        let excluded = Verdict::Exclude { rule: Some(0) };
        assert_eq!(judge(by("106", "*")), excluded);
    }

    #[test]
    fn possible_warm_starts_are_recognised_by_command() {
        let named = |name: &str, warm_bytes| {
            let command = pattern(name);
            let conditions = Conditions { command, ..any() };
            let terms = Terms {
                warm_bytes,
                ..Terms::default()
            };
            let action = Action::Include(terms);
            Rule {
                action,
                ..include(name, conditions, 1.0)
            }
        };
        let rules = |rules| Rules::new(rules, Unmatched::Include);
        let none = rules(vec![named("java", None)]);
        assert!(!none.want_warm_starts() && !none.may_want_warm_start("java"));
        let some = rules(vec![named("redis*", None), named("qemu-*", Some(1 << 30))]);
        assert!(some.want_warm_starts());
        assert!(some.may_want_warm_start("qemu-kvm"));
        assert!(!some.may_want_warm_start("redis-server"));
        let cut_off = some.may_want_warm_start("a-name-that-is-");
        assert!(cut_off);
    }

    #[test]
    fn without_a_rule_the_setting_decides() {
        let judge = |unmatched| Rules::new(Vec::new(), unmatched).judge(&redis());
        let default = Verdict::Include(Terms::default());
        assert_eq!(judge(Unmatched::Include), default);
        assert_eq!(judge(Unmatched::Exclude), Verdict::Exclude { rule: None });
    }

    proptest! {
        #[test]
        fn patterns_and_names_cause_no_panic(glob in "\\PC{0,40}", text in "\\PC{0,20}") {
            if let Ok(pattern) = glob.parse::<Pattern>() {
                pattern.matches(&text);
            }
        }
    }
}
