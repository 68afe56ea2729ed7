//! Commands that would change what was found. Nothing here runs them.

use super::facts::AdviceFacts;
use super::finding::{AdviceVerdict, Finding, Remedy, RemedyTakesEffect};
use hawkeye_linux::processes::huge_page_context::Allocator;
use hawkeye_policy::ProcessIdentity;

fn remedy(takes: RemedyTakesEffect, does: impl Into<String>, command: impl Into<String>) -> Remedy {
    Remedy {
        does: does.into(),
        takes,
        command: command.into(),
    }
}

/// The remedies, the most direct one first.
pub fn remedies(facts: &AdviceFacts, verdict: AdviceVerdict, findings: &[Finding]) -> Vec<Remedy> {
    let recoverable = findings.iter().any(|finding| {
        matches!(finding, Finding::Wastes { recoverable_bytes, .. } if *recoverable_bytes >= 64 << 20)
    });
    let mut remedies = Vec::new();
    if verdict == AdviceVerdict::Gains {
        remedies_for_gain(facts, findings, &mut remedies);
    }
    // A machine has at most one manager.
    if recoverable && facts.manager.is_none() {
        remedies.push(remedy(
            RemedyTakesEffect::AtOnce,
            "recover its empty memory while it runs, from 85 % of memory in use down to 70 %, and promote nothing",
            format!("hawkeye attach --policy none --watermarks 85,70 {}", facts.pid),
        ));
    }
    remedies
}

fn remedies_for_gain(facts: &AdviceFacts, findings: &[Finding], remedies: &mut Vec<Remedy>) {
    let around = &facts.surroundings;
    let pid = facts.pid;
    let manager = facts.manager.as_ref();
    if manager.is_some_and(|manager| manager.manages.is_some()) {
        let does = "show why the daemon gives it huge pages, or does not";
        remedies.push(remedy(
            RemedyTakesEffect::AtOnce,
            does,
            format!("hawkeye why {pid}"),
        ));
    }
    let found = |kind: fn(&Finding) -> bool| findings.iter().any(kind);
    let short = found(|f| matches!(f, Finding::MemoryShort { .. }));
    let not_given = found(|f| {
        matches!(
            f,
            Finding::KernelSaysNever | Finding::KernelSaysMadvise { .. }
        )
    });
    // Neither a manager nor the kernel overrides the program's own setting.
    let refused = facts.walks_mostly_excluded();
    if around.thp_disabled {
        remedies.push(allow_thp(facts));
    } else if !short && !refused {
        if manager.is_none() {
            let does = "give it huge pages where they save most, until interrupted";
            remedies.push(remedy(
                RemedyTakesEffect::AtOnce,
                does,
                format!("hawkeye attach {pid}"),
            ));
        }
        if manager.is_none_or(|manager| manager.manages != Some(true)) {
            remedies.push(remedy(
                RemedyTakesEffect::AtOnce,
                "let the daemon give it huge pages where they save most, at every start of this program; in /etc/hawkeye/hawkeye.toml",
                rule_text(facts),
            ));
        }
    }
    remedies.extend(allocator_remedy(facts));
    if not_given && !around.thp_disabled && !refused {
        remedies.push(remedy(
            RemedyTakesEffect::AtNextStart,
            "let the kernel give huge pages to EVERY program at first touches, used or not. This takes more memory, and page faults wait where memory is fragmented",
            format!("echo always > {}", around.settings.enabled_file),
        ));
    }
}

fn allow_thp(facts: &AdviceFacts) -> Remedy {
    let identity = &facts.surroundings.identity;
    if identity.command.starts_with("redis-server") {
        let does = "keep Redis from disabling huge pages for itself; in redis.conf";
        return remedy(RemedyTakesEffect::AtNextStart, does, "disable-thp no");
    }
    let what = "find what calls prctl(PR_SET_THP_DISABLE): the program itself, or the wrapper or container runtime that started it";
    let (unit, command) = match systemd_service(identity) {
        Some(service) => (
            "; or MemoryTHP= of its unit, where systemd supports that",
            service.command("cat"),
        ),
        None => ("", format!("ps -o pid,ppid,args -p {}", facts.pid)),
    };
    remedy(
        RemedyTakesEffect::AtNextStart,
        format!("{what}{unit}"),
        command,
    )
}

/// A systemd unit that starts a program. A session's unit (a scope) says nothing about the programs
/// in it.
struct SystemdService<'a> {
    unit: &'a str,
    /// Whether it belongs to a user's own manager.
    of_user: bool,
}

impl SystemdService<'_> {
    fn command(&self, verb: &str) -> String {
        let user = if self.of_user { "--user " } else { "" };
        format!("systemctl {user}{verb} {}", self.unit)
    }
}

fn systemd_service(identity: &ProcessIdentity) -> Option<SystemdService<'_>> {
    let unit = identity.unit.as_deref()?;
    let above = identity.cgroup.split_once(unit)?.0;
    let of_user = above.split('/').any(|part| part.starts_with("user@"));
    // Names that need a shell's escapes are not ones that people choose.
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.@:".contains(c);
    (unit.ends_with(".service") && unit.chars().all(plain))
        .then_some(SystemdService { unit, of_user })
}

fn rule_text(facts: &AdviceFacts) -> String {
    let identity = &facts.surroundings.identity;
    // `?` replaces characters that a pattern would interpret.
    let plain = |name: &str| -> String {
        let odd = |c: char| "*?[]{}\\\"".contains(c) || c.is_control();
        name.chars().map(|c| if odd(c) { '?' } else { c }).collect()
    };
    let name = plain(&identity.command);
    let unit = identity
        .unit
        .as_ref()
        .filter(|unit| unit.ends_with(".service"));
    let condition = match unit {
        Some(unit) => format!("match.unit = \"{}\"", plain(unit)),
        None => format!("match.command = \"{name}\""),
    };
    format!("[[rule]]\nname = \"{name}\"\n{condition}\naction = \"include\"")
}

/// The setting of the program's own allocator.
fn allocator_remedy(facts: &AdviceFacts) -> Option<Remedy> {
    let around = &facts.surroundings;
    let jemalloc = matches!(around.allocator, Allocator::Jemalloc { .. });
    // jemalloc calls MADV_NOHUGEPAGE only when it is configured to.
    if around.thp_disabled || (facts.walks_mostly_excluded() && !jemalloc) {
        return None;
    }
    // Allocators ask by madvise, which the kernel ignores under `never`.
    if matches!(around.settings.enabled.as_deref(), None | Some("never")) {
        return None;
    }
    let asks = "request huge pages for all that it allocates (madvise), used or not";
    if let Some(java) = around.java {
        let requested = java.transparent || java.large_pages;
        let command = "java -XX:+UseTransparentHugePages ...";
        let does = "request huge pages for the Java heap (madvise), used or not";
        return (!requested).then(|| remedy(RemedyTakesEffect::AtNextStart, does, command));
    }
    let (variable, condition) = match &around.allocator {
        Allocator::Glibc {
            hugetlb: None | Some(0),
            tunables,
        } => {
            let set = with_option(tunables.as_deref(), ':', "glibc.malloc.hugetlb=", "1")?;
            let condition = ", if it uses glibc's malloc (glibc 2.35 and later)";
            (format!("GLIBC_TUNABLES={set}"), condition)
        }
        Allocator::Jemalloc { thp, conf } if thp.as_deref() != Some("always") => {
            let set = with_option(conf.as_deref(), ',', "thp:", "always")?;
            (format!("MALLOC_CONF={set}"), "")
        }
        _ => return None,
    };
    let command = match systemd_service(&around.identity) {
        Some(service) => {
            let edit = service.command("edit");
            format!("{edit}   # [Service] Environment={variable}")
        }
        None => format!("{variable} {} ...", around.identity.command),
    };
    let does = format!("{asks}{condition}");
    Some(remedy(RemedyTakesEffect::AtNextStart, does, command))
}

/// The present value with this option added. `None` where the value can't be copied safely into a
/// shell.
fn with_option(set: Option<&str>, between: char, option: &str, value: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.:,=+/".contains(c);
    let set = set.unwrap_or_default();
    let others = set.split(between);
    let others = others.filter(|it| !it.is_empty() && !it.starts_with(option));
    let mut all: Vec<String> = others.map(str::to_owned).collect();
    all.push(format!("{option}{value}"));
    set.chars()
        .all(plain)
        .then(|| all.join(&between.to_string()))
}

#[cfg(test)]
mod tests {
    use super::super::findings::tests::facts;
    use super::*;
    use crate::config::Config;
    use hawkeye_linux::processes::huge_page_context::JavaFlags;

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
            let rule = rule_text(&facts);
            let config = Config::parse("advice", &rule).expect("the rule can be parsed");
            let verdict = config.rules.evaluate(&facts.surroundings.identity);
            let verdict = format!("{verdict:?}");
            assert!(verdict.contains("Include"), "{rule}: {verdict}");
            assert!(!rule.contains("session"), "{rule}");
        }
    }

    #[test]
    fn only_services_count_as_units_and_user_services_use_their_own_manager() {
        let cat = |cgroup: &str, unit: &str| {
            let identity = ProcessIdentity {
                cgroup: cgroup.into(),
                unit: Some(unit.into()),
                ..ProcessIdentity::default()
            };
            systemd_service(&identity).map_or_else(String::new, |service| service.command("cat"))
        };
        let of_system = cat("/system.slice/redis.service", "redis.service");
        assert_eq!(of_system, "systemctl cat redis.service");
        let session = "/user.slice/user-1000.slice/session-3.scope";
        assert_eq!(cat(session, "session-3.scope"), "");
        let own = "/user.slice/user-1000.slice/user@1000.service/app.slice/redis.service";
        assert_eq!(
            cat(own, "redis.service"),
            "systemctl --user cat redis.service"
        );
    }

    #[test]
    fn only_missing_allocator_settings_are_proposed() {
        let command = |allocator, java| {
            let mut facts = facts();
            facts.surroundings.allocator = allocator;
            facts.surroundings.java = java;
            allocator_remedy(&facts).map(|remedy| remedy.command)
        };
        let glibc = |hugetlb, tunables: Option<&str>| Allocator::Glibc {
            hugetlb,
            tunables: tunables.map(str::to_owned),
        };
        let untuned = || glibc(None, None);
        let has = |command: Option<String>, text| command.is_some_and(|c| c.contains(text));
        assert!(has(command(untuned(), None), "glibc.malloc.hugetlb=1"));
        assert_eq!(command(glibc(Some(1), None), None), None);
        let jemalloc = |thp: &str| Allocator::Jemalloc {
            thp: Some(thp.into()),
            conf: Some(format!("narenas:2,thp:{thp},abort:true")),
        };
        // Other options stay.
        let set = "MALLOC_CONF=narenas:2,abort:true,thp:always reader ...";
        assert_eq!(command(jemalloc("default"), None).as_deref(), Some(set));
        let tuned = |tunables| glibc(Some(0), Some(tunables));
        let arenas = command(
            tuned("glibc.malloc.hugetlb=0:glibc.malloc.arena_max=2"),
            None,
        );
        let set = "GLIBC_TUNABLES=glibc.malloc.arena_max=2:glibc.malloc.hugetlb=1 ";
        assert!(has(arenas, set));
        assert_eq!(command(tuned("x=$(reboot)"), None), None);
        assert_eq!(command(jemalloc("always"), None), None);
        let java = Some(JavaFlags::default());
        assert!(has(command(untuned(), java), "UseTransparentHugePages"));
        let mut never = facts();
        never.surroundings.settings.enabled = Some("never".into());
        assert_eq!(allocator_remedy(&never), None);
    }
}
