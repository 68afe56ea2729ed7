//! The rules in the configuration: `[[rule]]`.

use super::config_table::ConfigTable;
use super::config_value::MemorySize;
use hawkeye_policy::{
    ProcessSettings, Rule, RuleAction, RuleConditions, UnmatchedAction, WorkloadProfile,
};
use std::collections::HashSet;

/// Reads the rules. `usual` holds for a rule without a profile.
pub(super) fn read_rules(top: &mut ConfigTable<'_, '_>, usual: ProcessSettings) -> Vec<Rule> {
    let mut names = HashSet::new();
    top.read_subtable_array("rule", |s| {
        let name = read_rule_name(s);
        if !name.is_empty() && !names.insert(name.clone()) {
            s.report_invalid_value("name", "a name that no earlier rule has");
        }
        Rule {
            name,
            conditions: s.read_subtable("match", read_rule_conditions),
            action: read_rule_action_and_settings(s, usual),
        }
    })
}

fn read_rule_name(s: &mut ConfigTable<'_, '_>) -> String {
    let name = s.read_optional("name");
    if !s.is_key_set("name") {
        let why = "is missing: every rule needs a name (`hawkeye why` shows it)";
        s.report_problem("name", why.into());
    }
    name.unwrap_or_default()
}

fn read_rule_conditions(s: &mut ConfigTable<'_, '_>) -> RuleConditions {
    RuleConditions {
        command: s.read_optional("command"),
        user: s.read_optional("user"),
        cgroup: s.read_optional("cgroup"),
        unit: s.read_optional("unit"),
        pod: s.read_optional("pod"),
        qos: s.read_optional("qos"),
    }
}

fn read_rule_action_and_settings(
    s: &mut ConfigTable<'_, '_>,
    usual: ProcessSettings,
) -> RuleAction {
    // The words are those for processes without a matching rule.
    let effect = s.read_or_default("action", UnmatchedAction::Include);
    let terms = ProcessSettings {
        weight: s.read_or_default("weight", usual.weight),
        min_gain_percent: s.read_optional("min_gain_percent"),
        max_huge_bytes: s.read_optional("max_huge").map(|MemorySize(bytes)| bytes),
        warm_bytes: s.read_optional("warm").map(|MemorySize(bytes)| bytes),
        shared_memory: s.read_or_default("shared_memory", usual.shared_memory),
        ..usual
    };
    let profile = s.read_optional::<WorkloadProfile>("profile");
    let terms = match profile {
        Some(WorkloadProfile::Managed(profile)) => terms.with_profile(profile),
        Some(WorkloadProfile::Never) | None => {
            ProcessSettings { prefaults: terms.prefaults || terms.warm_bytes.is_some(), ..terms }
        }
    };
    let terms = s.value_or_report(terms.check()).unwrap_or_default();
    let (cause, others) = match (effect, profile) {
        (UnmatchedAction::Exclude, _) => ("action = \"exclude\"", &["profile"][..]),
        (UnmatchedAction::Include, Some(WorkloadProfile::Never)) => {
            ("profile = \"never\"", &["action"][..])
        }
        (UnmatchedAction::Include, _) => return RuleAction::Include(terms),
    };
    for key in ["weight", "min_gain_percent", "max_huge", "warm", "shared_memory"]
        .iter()
        .chain(others)
        .copied()
    {
        if s.is_key_set(key) {
            s.report_problem(key, format!("has no effect in a rule with {cause}; remove it"));
        }
    }
    RuleAction::Exclude
}
