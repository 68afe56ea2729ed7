//! Commands that would change what was found. Nothing here runs them.

use super::facts::AdviceFacts;
use super::finding::{AdviceVerdict, Finding, Remedy, RemedyEffectTime};
use crate::allocator_env_plan::HugePageEnvVariable;
use hawkeye_policy::ProcessAttributes;

fn remedy_at_once(does: &str, command: String) -> Remedy {
    Remedy { does: does.to_owned(), takes: RemedyEffectTime::AtOnce, command }
}

pub(super) fn remedy_at_next_start(does: impl Into<String>, command: impl Into<String>) -> Remedy {
    Remedy { does: does.into(), takes: RemedyEffectTime::AtNextStart, command: command.into() }
}

/// The remedies, the most direct one first.
pub fn remedies_for_findings(
    facts: &AdviceFacts,
    verdict: AdviceVerdict,
    findings: &[Finding],
) -> Vec<Remedy> {
    let recoverable = findings.iter().any(|finding| {
        matches!(finding, Finding::Wastes { recoverable_bytes, .. } if *recoverable_bytes >= 64 << 20)
    });
    let mut remedies = Vec::new();
    if verdict == AdviceVerdict::Gains {
        add_remedies_for_gain(facts, findings, &mut remedies);
    }
    // A machine has at most one manager.
    if recoverable && facts.manager.is_none() {
        let does = "recover its empty memory while it runs, from 85 % of memory in use down to 70 %, and promote nothing";
        let pid = facts.pid;
        let command = format!("hawkeye attach --policy none --watermarks 85,70 {pid}");
        remedies.push(remedy_at_once(does, command));
    }
    remedies
}

fn add_remedies_for_gain(facts: &AdviceFacts, findings: &[Finding], remedies: &mut Vec<Remedy>) {
    let (pid, around) = (facts.pid, &facts.surroundings);
    let manager = facts.manager.as_ref();
    if manager.is_some_and(|manager| manager.manages.is_some()) {
        let does = "show why the daemon gives it huge pages, or does not";
        remedies.push(remedy_at_once(does, format!("hawkeye why {pid}")));
    }
    let found = |kind: fn(&Finding) -> bool| findings.iter().any(kind);
    let short = found(|f| matches!(f, Finding::MemoryShort { .. }));
    let not_given = found(|f| matches!(f, Finding::KernelSaysNever))
        || found(|f| matches!(f, Finding::KernelSaysMadvise { .. }));
    // Neither a manager nor the kernel overrides the program's own setting.
    let refused = facts.are_walks_mostly_in_excluded_memory();
    if around.thp_disabled {
        remedies.push(remedy_for_disabled_thp(facts));
    } else if !short && !refused {
        if manager.is_none() {
            let does = "give it huge pages where they save most, until interrupted";
            remedies.push(remedy_at_once(does, format!("hawkeye attach {pid}")));
        }
        if manager.is_none_or(|manager| manager.manages != Some(true)) {
            let does = "let the daemon give it huge pages where they save most, at every start of this program; in /etc/hawkeye/hawkeye.toml";
            remedies.push(remedy_at_once(does, config_rule_text(facts)));
        }
    }
    remedies.extend(allocator_remedies(facts));
    if not_given && !around.thp_disabled && !refused {
        let does = "let the kernel give huge pages to EVERY program at first touches, used or not. This takes more memory, and page faults wait where memory is fragmented";
        let command = format!("echo always > {}", around.settings.enabled_file);
        remedies.push(remedy_at_next_start(does, command));
    }
}

fn remedy_for_disabled_thp(facts: &AdviceFacts) -> Remedy {
    let identity = &facts.surroundings.identity;
    if identity.command.starts_with("redis-server") {
        let does = "keep Redis from disabling huge pages for itself; in redis.conf";
        return remedy_at_next_start(does, "disable-thp no");
    }
    let find = "find what calls prctl(PR_SET_THP_DISABLE): the program itself, or the wrapper or container runtime that started it";
    let Some(service) = systemd_service_of(identity) else {
        return remedy_at_next_start(find, format!("ps -o pid,ppid,args -p {}", facts.pid));
    };
    let unit = "or MemoryTHP= of its unit, where systemd supports that";
    remedy_at_next_start(format!("{find}; {unit}"), service.systemctl_command("cat"))
}

/// A systemd unit that starts a program, unlike a session's unit (a scope).
struct SystemdService<'a> {
    unit: &'a str,
    of_user: bool,
}

impl SystemdService<'_> {
    fn systemctl_command(&self, verb: &str) -> String {
        let user = if self.of_user { "--user " } else { "" };
        format!("systemctl {user}{verb} {}", self.unit)
    }
}

fn systemd_service_of(identity: &ProcessAttributes) -> Option<SystemdService<'_>> {
    let unit = identity.unit.as_deref()?;
    let above = identity.cgroup.split_once(unit)?.0;
    let of_user = above.split('/').any(|part| part.starts_with("user@"));
    // Names that need a shell's escapes are not ones that people choose.
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.@:".contains(c);
    (unit.ends_with(".service") && unit.chars().all(plain))
        .then_some(SystemdService { unit, of_user })
}

fn config_rule_text(facts: &AdviceFacts) -> String {
    let identity = &facts.surroundings.identity;
    // `?` replaces characters that a pattern would interpret.
    let plain = |name: &str| -> String {
        let odd = |c: char| "*?[]{}\\\"".contains(c) || c.is_control();
        name.chars().map(|c| if odd(c) { '?' } else { c }).collect()
    };
    let name = plain(&identity.command);
    let condition = match &identity.unit {
        Some(unit) if unit.ends_with(".service") => format!("match.unit = \"{}\"", plain(unit)),
        _ => format!("match.command = \"{name}\""),
    };
    format!("[[rule]]\nname = \"{name}\"\n{condition}\naction = \"include\"")
}

/// The switch of the program's own allocator, for a shell, a systemd unit and a container.
fn allocator_remedies(facts: &AdviceFacts) -> Vec<Remedy> {
    if facts.surroundings.thp_disabled || facts.are_walks_mostly_in_excluded_memory() {
        return Vec::new();
    }
    remedies_with_variables(&facts.surroundings.identity, &facts.first_touch.set)
}

/// These variables for a shell, a systemd unit and a container, where they can be copied safely.
pub(super) fn remedies_with_variables(
    identity: &ProcessAttributes,
    variables: &[HugePageEnvVariable],
) -> Vec<Remedy> {
    let plain = variables.iter().filter(|variable| is_plain(&variable.value));
    plain.flat_map(|variable| remedies_with_variable(identity, variable)).collect()
}

fn remedies_with_variable(
    identity: &ProcessAttributes,
    variable: &HugePageEnvVariable,
) -> [Remedy; 3] {
    let (name, value, requests) = (&variable.name, &variable.value, variable.requests);
    let does = format!("let {requests} request huge pages for all that it allocates, used or not");
    let quote = if value.contains(' ') { "'" } else { "" };
    let command = format!("{name}={quote}{value}{quote} {} ...", program_word(identity));
    let edit = systemd_service_of(identity).map(|service| service.systemctl_command("edit"));
    let edit = edit.unwrap_or("systemctl edit UNIT".to_owned());
    let drop_in = format!("{edit}\n[Service]\nEnvironment=\"{name}={value}\"");
    let patch = format!(
        "kubectl patch deployment NAME --patch-file huge-pages.yaml\nspec:\n  template:\n    spec:\n      containers:\n        - name: CONTAINER\n          env:\n            - name: {name}\n              value: \"{value}\""
    );
    [
        (does, command),
        ("the same in a drop-in of its systemd unit".into(), drop_in),
        ("the same for its container in Kubernetes".into(), patch),
    ]
    .map(|(does, command)| remedy_at_next_start(does, command))
}

/// The program as the first word of a shell's command. A process can give itself any name.
fn program_word(identity: &ProcessAttributes) -> &str {
    let name = identity.command.as_str();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.+".contains(c);
    let is_word = name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(plain);
    if is_word { name } else { "PROGRAM" }
}

/// Whether a value can be copied safely into a shell, a unit and YAML.
fn is_plain(value: &str) -> bool {
    value.chars().all(|c| c.is_ascii_alphanumeric() || "_-.:,=+/ ".contains(c))
}

#[cfg(test)]
mod tests {
    use super::super::findings::tests::facts;
    use super::*;
    use crate::config::Config;

    #[test]
    fn the_proposed_rule_is_valid_and_includes_the_program() {
        let mut facts = facts();
        for (command, unit) in [
            ("redis-server", Some("redis.service")),
            ("a b[0]\"*", None),
            ("x", Some("dev-\\x2ddisk@{1}.service")),
            ("python3", Some("session-3.scope")),
        ] {
            facts.surroundings.identity.command = command.into();
            facts.surroundings.identity.unit = unit.map(str::to_owned);
            let rule = config_rule_text(&facts);
            let config = Config::parse("advice", &rule).expect("the rule can be parsed");
            let verdict = config.rules.evaluate_process(&facts.surroundings.identity);
            let verdict = format!("{verdict:?}");
            assert!(verdict.contains("Include"), "{rule}: {verdict}");
            assert!(!rule.contains("session"), "{rule}");
        }
    }

    #[test]
    fn only_services_count_as_units_and_user_services_use_their_own_manager() {
        let cat = |cgroup: &str, unit: &str| {
            let identity = ProcessAttributes {
                cgroup: cgroup.into(),
                unit: Some(unit.into()),
                ..ProcessAttributes::default()
            };
            systemd_service_of(&identity)
                .map_or_else(String::new, |service| service.systemctl_command("cat"))
        };
        let of_system = cat("/system.slice/redis.service", "redis.service");
        assert_eq!(of_system, "systemctl cat redis.service");
        let session = "/user.slice/user-1000.slice/session-3.scope";
        assert_eq!(cat(session, "session-3.scope"), "");
        let own = "/user.slice/user-1000.slice/user@1000.service/app.slice/redis.service";
        assert_eq!(cat(own, "redis.service"), "systemctl --user cat redis.service");
    }

    #[test]
    fn an_allocators_switch_is_proposed_for_a_shell_a_unit_and_a_container() {
        let mut facts = facts();
        facts.first_touch.set.clear();
        assert_eq!(allocator_remedies(&facts), []);
        let variable = |name: &str, value: &str| HugePageEnvVariable {
            name: name.into(),
            value: value.into(),
            requests: "jemalloc",
        };
        facts.first_touch.set = vec![variable("MALLOC_CONF", "narenas:2,thp:always")];
        let commands = |facts: &AdviceFacts| -> Vec<String> {
            let remedies = allocator_remedies(facts).into_iter();
            remedies.map(|remedy| remedy.command).collect()
        };
        let [shell, unit, container] = &commands(&facts)[..] else {
            panic!("three forms");
        };
        assert_eq!(shell, "MALLOC_CONF=narenas:2,thp:always reader ...");
        let drop_in = "[Service]\nEnvironment=\"MALLOC_CONF=narenas:2,thp:always\"";
        assert!(unit.ends_with(drop_in), "{unit}");
        let env = "- name: MALLOC_CONF\n              value: \"narenas:2,thp:always\"";
        assert!(container.ends_with(env), "{container}");
        // The environment is the program's: it may hold anything.
        facts.first_touch.set = vec![variable("MALLOC_CONF", "x$(reboot),thp:always")];
        assert_eq!(allocator_remedies(&facts), []);
        facts.first_touch.set = vec![variable("JDK_JAVA_OPTIONS", "-Xmx4g -XX:+Use")];
        let java = &commands(&facts)[0];
        assert_eq!(java, "JDK_JAVA_OPTIONS='-Xmx4g -XX:+Use' reader ...");
        facts.surroundings.thp_disabled = true;
        assert_eq!(allocator_remedies(&facts), []);
    }

    #[test]
    fn a_name_that_a_shell_would_interpret_is_not_proposed() {
        let mut facts = facts();
        for (command, word) in [
            ("g++-12.bin_x", "g++-12.bin_x"),
            ("$(reboot)", "PROGRAM"),
            ("sh -c reboot", "PROGRAM"),
            ("x\nreboot", "PROGRAM"),
            ("/tmp/x", "PROGRAM"),
            (".", "PROGRAM"),
            ("", "PROGRAM"),
        ] {
            facts.surroundings.identity.command = command.into();
            let [shell, ..] = &allocator_remedies(&facts)[..] else {
                panic!("three forms");
            };
            assert_eq!(shell.command, format!("GLIBC_TUNABLES=glibc.malloc.hugetlb=1 {word} ..."));
        }
    }
}
