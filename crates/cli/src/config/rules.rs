//! The rules in the configuration: `[[rule]]`.

use super::section::Section;
use super::value::{Bytes, Word};
use hawkeye_policy::{Action, Conditions, QosClass, Rule, Terms, Unmatched};
use std::collections::HashSet;

impl Word for QosClass {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("guaranteed", Self::Guaranteed),
        ("burstable", Self::Burstable),
        ("besteffort", Self::BestEffort),
    ];
}

/// Reads all rules, in order.
pub(super) fn read(top: &mut Section<'_, '_>) -> Vec<Rule> {
    let mut names = HashSet::new();
    top.sections("rule", |s| {
        let name = name(s);
        if !name.is_empty() && !names.insert(name.clone()) {
            s.refuse("name", "a name that no earlier rule has");
        }
        Rule {
            name,
            conditions: s.section("match", conditions),
            action: action(s),
        }
    })
}

fn name(s: &mut Section<'_, '_>) -> String {
    let name = s.optional("name");
    if !s.is_set("name") {
        let why = "is missing: every rule needs a name (`hawkeye status` shows it)";
        s.complain("name", why.into());
    }
    name.unwrap_or_default()
}

fn conditions(s: &mut Section<'_, '_>) -> Conditions {
    Conditions {
        command: s.optional("command"),
        user: s.optional("user"),
        cgroup: s.optional("cgroup"),
        unit: s.optional("unit"),
        pod: s.optional("pod"),
        qos: s.optional("qos"),
    }
}

/// Terms of a managed process, which a rule may set.
const TERMS: [(&str, &str); 4] = [
    (Terms::WEIGHT, "weight"),
    (Terms::MIN_GAIN, "min_gain_percent"),
    (Terms::MAX_HUGE, "max_huge"),
    (Terms::WARM, "warm"),
];

fn action(s: &mut Section<'_, '_>) -> Action {
    // The words are those for processes without a matching rule.
    let effect = s.or("action", Unmatched::Include);
    let terms = Terms {
        weight: s.or("weight", Terms::default().weight),
        min_gain_percent: s.optional("min_gain_percent"),
        max_huge_bytes: s.optional("max_huge").map(|Bytes(bytes)| bytes),
        warm_bytes: s.optional("warm").map(|Bytes(bytes)| bytes),
        rule: None,
    };
    let terms = s.checked(terms.check(), &TERMS).unwrap_or_default();
    if effect == Unmatched::Include {
        return Action::Include(terms);
    }
    for (_, key) in TERMS {
        if s.is_set(key) {
            s.complain(
                key,
                "has no effect in a rule with action = \"exclude\"; remove it".into(),
            );
        }
    }
    Action::Exclude
}
