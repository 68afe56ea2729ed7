//! Warns of rules that leave processes alone while the kernel gives these huge pages all the same.

use crate::config::Config;
use hawkeye_linux::machine_lease::thp_settings::{enabled_file, read_setting};
use hawkeye_policy::{RuleAction, SettingsProfile, UnmatchedAction};

/// The warning, if there is cause for one.
#[derive(Default)]
pub struct UnguardedRules {
    warning: Option<String>,
}

impl UnguardedRules {
    /// Reads the kernel's setting again. Returns the warning, and logs it where it is new. The
    /// setting may change at any time: the daemon starts before an operator switches huge pages on.
    pub fn check(&mut self, config: &Config) -> Option<&str> {
        let rules = excluding_rules(config);
        let enabled = (!rules.is_empty()).then(|| read_setting(&enabled_file()).ok()).flatten();
        let warning = unguarded_rules_warning(&rules, enabled.as_deref());
        if warning != self.warning {
            if let Some(warning) = &warning {
                tracing::warn!("{warning}");
            }
            self.warning = warning;
        }
        self.warning.as_deref()
    }
}

/// The names of the rules under which processes are left alone, where the profile is `guard`. With
/// the key that leaves those alone that match none.
fn excluding_rules(config: &Config) -> Vec<&str> {
    if config.profile != SettingsProfile::Guard {
        return Vec::new();
    }
    let rules = (0..config.rules.count()).filter_map(|index| config.rules.get(index));
    let excluding = rules.filter(|rule| matches!(rule.action, RuleAction::Exclude));
    let unmatched = match config.rules.unmatched() {
        UnmatchedAction::Include => None,
        UnmatchedAction::Exclude => Some("selection.unmatched"),
    };
    excluding.map(|rule| rule.name.as_str()).chain(unmatched).collect()
}

fn unguarded_rules_warning(rules: &[&str], enabled: Option<&str>) -> Option<String> {
    if rules.is_empty() || enabled != Some("always") {
        return None;
    }
    let rules = rules.join(", ");
    Some(format!(
        "rules leave processes alone ({rules}), but enabled=always gives these huge pages, and nothing guards them; give them the profile \"guard\", or disable huge pages for them (PR_SET_THP_DISABLE; MemoryTHP= of a unit)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_exclude_are_named_under_guard_and_always() {
        let rules = "[[rule]]\nname = \"builds\"\naction = \"exclude\"\n\
                     [[rule]]\nname = \"caches\"\nprofile = \"never\"\n\
                     [[rule]]\nname = \"others\"\nprofile = \"guard\"\n";
        let config = |profile: &str| {
            let text = format!("profile = \"{profile}\"\n{rules}");
            Config::parse("test", &text).expect("the configuration is valid")
        };
        assert!(excluding_rules(&config("balanced")).is_empty());
        let guard = config("guard");
        let found = excluding_rules(&guard);
        assert_eq!(found, ["builds", "caches"]);
        let warning = unguarded_rules_warning(&found, Some("always")).expect("a warning");
        assert!(warning.contains("(builds, caches)"), "{warning}");
        for enabled in [Some("madvise"), Some("never"), None] {
            assert_eq!(unguarded_rules_warning(&found, enabled), None);
        }
        assert_eq!(unguarded_rules_warning(&[], Some("always")), None);
    }

    #[test]
    fn leaving_unmatched_processes_alone_counts_as_a_rule() {
        let found = |profile: &str, unmatched: &str| {
            let text =
                format!("profile = \"{profile}\"\nselection = {{ unmatched = \"{unmatched}\" }}\n");
            let config = Config::parse("test", &text).expect("the configuration is valid");
            excluding_rules(&config).join(", ")
        };
        assert_eq!(found("guard", "exclude"), "selection.unmatched");
        assert_eq!(found("guard", "include"), "");
        assert_eq!(found("balanced", "exclude"), "");
    }
}
