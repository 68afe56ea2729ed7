//! Which processes are managed, and with which settings.

use crate::process_attributes::{ProcessAttributes, QosClass};
use crate::process_settings::ProcessSettings;
use crate::settings_profile::SettingsProfile;
use crate::workload_profile::WorkloadProfile;
use serde::Serialize;
use std::str::FromStr;
use thiserror::Error;

/// A shell-like pattern: `*` and `?` stop at a `/`; `**`, alone between slashes, does not. `[a-z]`,
/// `[!a-z]` and `{one,other}` work too. A backslash stands for itself, because systemd's names
/// contain backslashes.
#[derive(Clone, Debug, PartialEq)]
pub struct GlobPattern {
    /// One for each combination of the alternatives in braces.
    alternatives: Vec<glob::Pattern>,
}

/// Longer patterns are refused: no user needs them, and their cost would have no bound.
const MAX_PATTERN_BYTES: usize = 256;

/// More combinations of alternatives are refused.
const MAX_ALTERNATIVES: usize = 64;

/// A pattern that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum PatternError {
    #[error("a pattern has 1 to {MAX_PATTERN_BYTES} bytes, not {0}")]
    Length(usize),
    #[error("alternatives in braces combine to more than {MAX_ALTERNATIVES} patterns")]
    TooManyAlternatives,
    /// A brace without its partner, or braces inside braces.
    #[error("expected alternatives as {{one,other}}, without braces inside braces")]
    Braces,
    /// A malformed wildcard or range.
    #[error("{message}, at byte {at} of `{pattern}`")]
    Wildcard {
        message: &'static str,
        /// Where, in bytes from the start of `pattern`.
        at: usize,
        /// The pattern, with one alternative of each pair of braces.
        pattern: String,
    },
}

impl FromStr for GlobPattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        if text.is_empty() || text.len() > MAX_PATTERN_BYTES {
            return Err(PatternError::Length(text.len()));
        }
        let parse = |pattern: String| {
            glob::Pattern::new(&pattern).map_err(|error| PatternError::Wildcard {
                message: error.msg,
                at: error.pos,
                pattern,
            })
        };
        let alternatives = expand_braces(text)?.into_iter().map(parse);
        Ok(Self { alternatives: alternatives.collect::<Result<_, _>>()? })
    }
}

fn expand_braces(text: &str) -> Result<Vec<String>, PatternError> {
    let mut expanded = vec![String::new()];
    let mut rest = text;
    while let Some((literal, after)) = rest.split_once('{') {
        let (choices, after) = after.split_once('}').ok_or(PatternError::Braces)?;
        if literal.contains('}') || choices.contains('{') {
            return Err(PatternError::Braces);
        }
        let choices: Vec<&str> = choices.split(',').collect();
        if expanded.len() * choices.len() > MAX_ALTERNATIVES {
            return Err(PatternError::TooManyAlternatives);
        }
        expanded = expanded
            .iter()
            .flat_map(|start| choices.iter().map(move |it| format!("{start}{literal}{it}")))
            .collect();
        rest = after;
    }
    if rest.contains('}') {
        return Err(PatternError::Braces);
    }
    expanded.iter_mut().for_each(|pattern| pattern.push_str(rest));
    Ok(expanded)
}

impl GlobPattern {
    /// Whether the pattern matches all of `text`.
    pub fn matches(&self, text: &str) -> bool {
        let options = glob::MatchOptions {
            case_sensitive: true,
            require_literal_separator: true,
            require_literal_leading_dot: false,
        };
        self.alternatives.iter().any(|pattern| pattern.matches_with(text, options))
    }
}

/// Conditions on a process for a rule to apply. All given conditions must hold; without any, every
/// process meets them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleConditions {
    /// Its command name, or the name of its executable.
    pub command: Option<GlobPattern>,
    /// Its user, by name or number.
    pub user: Option<String>,
    /// Its cgroup's path.
    pub cgroup: Option<GlobPattern>,
    /// Its systemd unit, of the system's manager.
    pub unit: Option<GlobPattern>,
    /// The uid of its Kubernetes pod.
    pub pod: Option<GlobPattern>,
    /// The class of its Kubernetes pod.
    pub qos: Option<QosClass>,
}

impl RuleConditions {
    /// `None` where that depends on its user's name, which is not known yet.
    fn matches_attributes(&self, identity: &ProcessAttributes) -> Option<bool> {
        let pattern = |wanted: &Option<GlobPattern>, found: &[Option<&str>]| {
            wanted.as_ref().is_none_or(|wanted| {
                let mut found = found.iter().flatten();
                found.any(|text| wanted.matches(text))
            })
        };
        let command = [Some(&*identity.command), identity.executable.as_deref()];
        let pod = identity.pod.as_ref();
        let all_but_user = pattern(&self.command, &command)
            && pattern(&self.cgroup, &[Some(&identity.cgroup)])
            && pattern(&self.unit, &[identity.unit.as_deref()])
            && pattern(&self.pod, &[pod.map(|pod| pod.uid.as_str())])
            && self.qos.is_none_or(|class| pod.is_some_and(|pod| pod.qos == class));
        if !all_but_user {
            return Some(false);
        }
        let Some(wanted) = &self.user else { return Some(true) };
        let matches = *wanted == identity.user || *wanted == identity.uid.to_string();
        let is_number = wanted.bytes().all(|byte| byte.is_ascii_digit());
        (matches || is_number || !identity.user_pending).then_some(matches)
    }
}

/// What happens to the processes of a rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RuleAction {
    /// They are managed under these rules; [`Rules`] fills in their `rule`.
    Include(ProcessSettings),
    /// They are left alone.
    Exclude,
}

/// One rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Its name for users.
    pub name: String,
    /// The processes to which it applies.
    pub conditions: RuleConditions,
    /// What happens to them.
    pub action: RuleAction,
}

impl Rule {
    fn wants_warm_start(&self) -> bool {
        matches!(self.action, RuleAction::Include(terms) if terms.warm_bytes.is_some())
    }
}

/// Length to which the kernel cuts a command's name (TASK_COMM_LEN - 1).
const LONGEST_COMMAND_BYTES: usize = 15;

/// Whether processes that match no rule are managed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum UnmatchedAction {
    /// They are managed under the default rules.
    #[default]
    Include,
    /// They are left alone.
    Exclude,
}

/// The decision of the rules on one process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RuleVerdict {
    /// Manage it under these rules.
    Include(ProcessSettings),
    /// Leave it alone.
    Exclude {
        /// The deciding rule, by its index; `None`: no rule matched.
        rule: Option<usize>,
    },
    /// Leave it alone: its workload asks for that.
    ExcludedByRequest,
    /// Leave it alone for now.
    Undecided {
        /// The rule, by its index, that depends on the name of its user, which is not known yet.
        /// `None`: the profile that its pod asks for is not known yet.
        rule: Option<usize>,
    },
}

/// All rules of a machine, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    rules: Vec<Rule>,
    unmatched: UnmatchedAction,
    /// Rules for processes that no rule matches, if these are managed.
    default_rules: ProcessSettings,
    highest_request: SettingsProfile,
}

impl Rules {
    /// The first rule that applies decides; `unmatched` where none does.
    pub fn new(rules: Vec<Rule>, unmatched: UnmatchedAction) -> Self {
        Self { rules, unmatched, ..Self::default() }
    }

    /// The same, with these rules for processes that no rule matches.
    pub fn with_default_settings(self, default_rules: ProcessSettings) -> Self {
        Self { default_rules, ..self }
    }

    /// The same, where a workload gets this profile if it asks for one that does more. Unless set,
    /// it is the default profile.
    pub fn with_highest_request(self, highest_request: SettingsProfile) -> Self {
        Self { highest_request, ..self }
    }

    /// Whether processes that match no rule are managed.
    pub fn unmatched(&self) -> UnmatchedAction {
        self.unmatched
    }

    /// Whether a process is managed, and under which rules. What its workload asks for counts
    /// unless a rule excludes it or names a profile.
    pub fn evaluate_process(&self, identity: &ProcessAttributes) -> RuleVerdict {
        let rules = self.rules.iter();
        let decisions = rules.map(|rule| rule.conditions.matches_attributes(identity));
        let decisive = decisions.enumerate().find(|(_, holds)| *holds != Some(false));
        if let Some((rule, None)) = decisive {
            return RuleVerdict::Undecided { rule: Some(rule) };
        }
        let first = decisive.map(|(rule, _)| rule);
        let (settings, unasked) = match (first.map(|at| self.rules[at].action), self.unmatched) {
            (Some(RuleAction::Include(terms)), _) => {
                let terms = ProcessSettings { rule: first, ..terms };
                (terms, RuleVerdict::Include(terms))
            }
            (Some(RuleAction::Exclude), _) => return RuleVerdict::Exclude { rule: first },
            (None, UnmatchedAction::Include) => {
                (self.default_rules, RuleVerdict::Include(self.default_rules))
            }
            (None, UnmatchedAction::Exclude) => {
                (self.default_rules, RuleVerdict::Exclude { rule: None })
            }
        };
        if first.is_some() && settings.profile.is_some() {
            return unasked;
        }
        if identity.request_pending {
            return RuleVerdict::Undecided { rule: None };
        }
        let request = identity.profile_request.as_ref();
        match request.and_then(|request| WorkloadProfile::from_name(&request.name)) {
            None => unasked,
            Some(WorkloadProfile::Never) => RuleVerdict::ExcludedByRequest,
            Some(WorkloadProfile::Managed(profile)) => {
                RuleVerdict::Include(settings.with_profile(profile.min(self.highest_request)))
            }
        }
    }

    /// Why a process is left alone even where an operator names it, as a clause. `None`: no rule
    /// excludes it. A process that matches no rule is not excluded by name.
    pub fn why_excluded_by_name(&self, identity: &ProcessAttributes) -> Option<String> {
        match self.evaluate_process(identity) {
            RuleVerdict::Exclude { rule: Some(rule) } => {
                let name = self.get(rule).map_or("", |rule| rule.name.as_str());
                Some(format!("rule {name:?} excludes it"))
            }
            RuleVerdict::ExcludedByRequest => self.describe_request(identity),
            RuleVerdict::Undecided { rule: Some(_) } => Some(format!(
                "a rule depends on the name of user {}, which is not known",
                identity.uid
            )),
            RuleVerdict::Undecided { rule: None } => {
                Some("the container runtime has not said what its pod asks for".to_owned())
            }
            RuleVerdict::Exclude { rule: None } | RuleVerdict::Include(_) => None,
        }
    }

    /// What the request of a process's workload leads to, as a clause. `None`: it has none.
    pub fn describe_request(&self, identity: &ProcessAttributes) -> Option<String> {
        let request = identity.profile_request.as_ref()?;
        let asks = format!("{} asks for the profile {:?}", request.source, request.name);
        let Some(wanted) = WorkloadProfile::from_name(&request.name) else {
            return Some(format!("{asks}, which does not exist"));
        };
        let verdict = self.evaluate_process(identity);
        let RuleVerdict::Include(ProcessSettings { profile, rule, .. }) = verdict else {
            return Some(asks);
        };
        let rule = rule.and_then(|rule| self.get(rule));
        let decided_by = rule.filter(
            |rule| matches!(rule.action, RuleAction::Include(terms) if terms.profile.is_some()),
        );
        Some(match (decided_by, profile) {
            (Some(rule), _) => format!("{asks}, but rule {:?} decides", rule.name),
            (None, Some(profile)) if WorkloadProfile::Managed(profile) < wanted => {
                format!("{asks}, but workload_profiles.highest allows no more than {profile}")
            }
            (None, _) => asks,
        })
    }

    /// Number of rules.
    pub fn count(&self) -> usize {
        self.rules.len()
    }

    /// What each rule that includes processes sets for them, and the default rules.
    pub fn all_process_settings(&self) -> impl Iterator<Item = ProcessSettings> {
        let included = self.rules.iter().filter_map(|rule| match rule.action {
            RuleAction::Include(rules) => Some(rules),
            RuleAction::Exclude => None,
        });
        included.chain([self.default_rules])
    }

    /// Whether some rule asks for warm starts.
    pub fn any_rule_wants_warm_start(&self) -> bool {
        self.rules.iter().any(Rule::wants_warm_start)
    }

    /// Whether a program with this command name, just started, could fall under a rule with a warm
    /// start. A rule with further conditions counts too; `evaluate_process` decides in full.
    pub fn may_want_warm_start(&self, command: &str) -> bool {
        // The rule may match the executable, which can have a longer name.
        let cut_off = command.len() >= LONGEST_COMMAND_BYTES;
        self.rules.iter().any(|rule| {
            let pattern = rule.conditions.command.as_ref();
            rule.wants_warm_start() && pattern.is_none_or(|p| cut_off || p.matches(command))
        })
    }

    /// The rule at this index, as in [`ProcessSettings::rule`] and [`RuleVerdict::Exclude`].
    pub fn get(&self, place: usize) -> Option<&Rule> {
        self.rules.get(place)
    }
}

#[cfg(test)]
mod tests;
