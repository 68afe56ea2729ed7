//! Switches with which a program's own allocator requests huge pages at first touch.
//!
//! They concern this program and its children alone: allocators request huge pages by `madvise`,
//! so no setting of the machine changes. docs/use/first-touch.md has each switch with its version.

use hawkeye_linux::processes::program_allocator::{self, ProgramAllocator};
use serde::Serialize;
use std::fmt;
use std::fs::File;
use std::io::Read;

/// Variables to set for a program, and remarks on what is left as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AllocatorEnvPlan {
    pub set: Vec<HugePageEnvVariable>,
    /// Why nothing is set, or not more, a clause each.
    pub left: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HugePageEnvVariable {
    pub name: String,
    /// The whole value, with what the user has set.
    pub value: String,
    /// The part of the program that then requests huge pages.
    pub requests: &'static str,
}

impl fmt::Display for HugePageEnvVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, value, requests) = (&self.name, &self.value, self.requests);
        write!(f, "{name}={value}: {requests} requests huge pages")
    }
}

/// Where huge pages for a program would come from.
#[derive(Clone, Copy, Debug)]
pub struct HugePageSources<'a> {
    /// The setting of transparent huge pages: `always`, `madvise`, `never`.
    pub thp_enabled: Option<&'a str>,
    /// Whether the hugetlb pool has pages of any size, or may grow.
    pub hugetlb_pool: bool,
}

impl<'a> HugePageSources<'a> {
    pub fn of_machine(thp_enabled: Option<&'a str>) -> Self {
        let names = ["nr_hugepages", "nr_overcommit_hugepages"];
        let sizes = std::fs::read_dir("/sys/kernel/mm/hugepages").into_iter().flatten().flatten();
        let mut files = sizes.flat_map(|size| names.map(|name| size.path().join(name)));
        let has_pages = |text: String| text.trim() != "0";
        Self {
            thp_enabled,
            hugetlb_pool: files.any(|file| std::fs::read_to_string(file).is_ok_and(has_pages)),
        }
    }
}

struct AllocatorSwitch {
    variable: String,
    /// What is added to the variable.
    option: &'static str,
    /// Between the options of the variable; `None`: the variable has one value only.
    separator: Option<char>,
    /// The user has decided already if an option of the variable starts with one of these.
    decided_by: &'static [&'static str],
    requests: &'static str,
}

fn switch_of_allocator(allocator: &ProgramAllocator) -> Result<AllocatorSwitch, String> {
    let single = |variable: &str, requests| AllocatorSwitch {
        variable: variable.to_owned(),
        option: "1",
        separator: None,
        decided_by: &[],
        requests,
    };
    match allocator {
        ProgramAllocator::Glibc { has_hugetlb: true } => Ok(AllocatorSwitch {
            variable: "GLIBC_TUNABLES".to_owned(),
            option: "glibc.malloc.hugetlb=1",
            separator: Some(':'),
            decided_by: &["glibc.malloc.hugetlb="],
            requests: "the C library's malloc",
        }),
        ProgramAllocator::Glibc { has_hugetlb: false } => {
            Err("its C library has no switch for huge pages (glibc 2.35 and later have one)".into())
        }
        ProgramAllocator::Jemalloc { variable } => Ok(AllocatorSwitch {
            variable: variable.clone(),
            option: "thp:always",
            separator: Some(','),
            decided_by: &["thp:"],
            requests: "jemalloc",
        }),
        ProgramAllocator::Java { version: Some(..9) } => {
            Err("its JDK is older than 9; start it with -XX:+UseTransparentHugePages".into())
        }
        ProgramAllocator::Java { .. } => Ok(AllocatorSwitch {
            variable: "JDK_JAVA_OPTIONS".to_owned(),
            option: "-XX:+UseTransparentHugePages",
            separator: Some(' '),
            decided_by: &JAVA_DECISIONS,
            requests: "the Java virtual machine's heap",
        }),
        ProgramAllocator::Mimalloc { variable } => Ok(single(variable, "mimalloc")),
        ProgramAllocator::Php => Ok(single("USE_ZEND_ALLOC_HUGE_PAGES", "PHP's memory manager")),
        ProgramAllocator::Tcmalloc => Err("tcmalloc has no switch for huge pages".into()),
        ProgramAllocator::Go => Err("the Go runtime has no switch for huge pages".into()),
        ProgramAllocator::Unknown => Err("its allocator is not known".into()),
    }
}

const JAVA_DECISIONS: [&str; 4] = [
    "-XX:+UseTransparentHugePages",
    "-XX:-UseTransparentHugePages",
    "-XX:+UseLargePages",
    "-XX:-UseLargePages",
];
const JAVA_VARIABLES: [&str; 2] = ["JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS"];

/// `variable` returns a variable of the program's environment, `arguments` are its own.
pub fn env_plan_for_allocator(
    allocator: &ProgramAllocator,
    variable: impl Fn(&str) -> Option<String>,
    arguments: &[String],
    machine: HugePageSources<'_>,
) -> AllocatorEnvPlan {
    match choose_env_variable(allocator, variable, arguments, machine) {
        Ok(variable) => AllocatorEnvPlan { set: vec![variable], left: Vec::new() },
        Err(why) => AllocatorEnvPlan { set: Vec::new(), left: vec![why] },
    }
}

fn choose_env_variable(
    allocator: &ProgramAllocator,
    variable: impl Fn(&str) -> Option<String>,
    arguments: &[String],
    machine: HugePageSources<'_>,
) -> Result<HugePageEnvVariable, String> {
    // These map pages of the hugetlb pool first, which others may have reserved for themselves.
    use ProgramAllocator::{Mimalloc, Php};
    let takes_pool = matches!(allocator, Mimalloc { .. } | Php);
    let never = "the kernel ignores what allocators request (transparent huge pages: never)";
    match machine.thp_enabled {
        _ if takes_pool && machine.hugetlb_pool => {
            return Err("it would take huge pages from the hugetlb pool first".into());
        }
        Some("always") => {
            return Err("the kernel gives huge pages to every program already (always)".into());
        }
        None | Some("never") => return Err(never.into()),
        Some(_) => {}
    }
    let switch = switch_of_allocator(allocator)?;
    let name = &switch.variable;
    let set = variable(name).filter(|set| !set.is_empty());
    let decides = |text: &str| {
        // Java splits its variables at any white space and takes quotes away.
        let text = text.replace(['"', '\''], "");
        let separator = switch.separator.unwrap_or(' ');
        let mut options = text.split(|c: char| c == separator || c.is_whitespace());
        let starts = switch.decided_by;
        options.any(|option| starts.iter().any(|start| option.starts_with(start)))
    };
    let decided = match (&set, switch.separator) {
        (Some(_), None) => true,
        // It is not text, so nothing can be added to it.
        (Some(set), _) if set.contains(char::REPLACEMENT_CHARACTER) => true,
        (Some(set), Some(_)) => decides(set),
        (None, _) => false,
    };
    if decided {
        return Err(format!("{name} is set already"));
    }
    if matches!(allocator, ProgramAllocator::Java { .. }) {
        let mut elsewhere = JAVA_VARIABLES.iter().filter_map(|name| variable(name));
        if arguments.iter().any(|text| decides(text)) || elsewhere.any(|text| decides(&text)) {
            return Err("its options decide on huge pages already".into());
        }
    }
    let value = match (set, switch.separator) {
        (Some(set), Some(separator)) => format!("{set}{separator}{}", switch.option),
        _ => switch.option.to_owned(),
    };
    Ok(HugePageEnvVariable { value, requests: switch.requests, name: switch.variable })
}

/// Bytes of a process's environment, and of its arguments, that are read at most. `PR_SET_MM_MAP`
/// lets it place them anywhere, so that they could seem to be terabytes.
const MOST_TEXT_BYTES: u64 = 8 << 20;

/// What to set from the next start of a process's program on; nothing if it has just ended.
pub fn env_plan_for_process(pid: u32, machine: HugePageSources<'_>) -> AllocatorEnvPlan {
    let read = |name: &str| {
        let mut bytes = Vec::new();
        if let Ok(file) = File::open(format!("/proc/{pid}/{name}")) {
            // An error leaves what was read before it.
            let _ = file.take(MOST_TEXT_BYTES).read_to_end(&mut bytes);
        }
        bytes
    };
    let texts = |bytes: Vec<u8>| -> Vec<String> {
        String::from_utf8_lossy(&bytes).split('\0').map(str::to_owned).collect()
    };
    let (environment, arguments) = (texts(read("environ")), texts(read("cmdline")));
    let variable = |name: &str| {
        let mut set = environment.iter().filter_map(|text| text.split_once('='));
        set.find_map(|(known, value)| (known == name).then(|| value.to_owned()))
    };
    let allocator =
        program_allocator::allocator_of_process(pid).unwrap_or(ProgramAllocator::Unknown);
    env_plan_for_allocator(&allocator, variable, &arguments, machine)
}

/// A plan with the switch of glibc, for tests of what shows it.
#[cfg(test)]
pub fn glibc_plan() -> AllocatorEnvPlan {
    let set = vec![HugePageEnvVariable {
        name: "GLIBC_TUNABLES".into(),
        value: "glibc.malloc.hugetlb=1".into(),
        requests: "the C library's malloc",
    }];
    AllocatorEnvPlan { set, left: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ProgramAllocator::{Glibc, Go, Java, Jemalloc, Mimalloc, Php, Tcmalloc, Unknown};

    const EMPTY_POOL: HugePageSources<'_> =
        HugePageSources { thp_enabled: Some("madvise"), hugetlb_pool: false };
    const GLIBC: ProgramAllocator = Glibc { has_hugetlb: true };

    /// The variable to set as `NAME=VALUE`, or why there is none. `set` is one variable that the
    /// user has set.
    fn planned(allocator: &ProgramAllocator, set: &str, arguments: &[&str]) -> String {
        let variable = |name: &str| {
            let (user_set, value) = set.split_once('=')?;
            (user_set == name).then(|| value.to_owned())
        };
        let arguments: Vec<String> = arguments.iter().map(|it| (*it).to_owned()).collect();
        text(&env_plan_for_allocator(allocator, variable, &arguments, EMPTY_POOL))
    }

    fn text(plan: &AllocatorEnvPlan) -> String {
        match (&plan.set[..], &plan.left[..]) {
            ([one], []) => format!("{}={}", one.name, one.value),
            ([], [why]) => why.clone(),
            _ => panic!("one or the other: {plan:?}"),
        }
    }

    #[test]
    fn each_allocator_has_its_switch_or_a_reason() {
        let jemalloc = Jemalloc { variable: "_RJEM_MALLOC_CONF".into() };
        let mimalloc = Mimalloc { variable: "MIMALLOC_ALLOW_LARGE_OS_PAGES" };
        let java = Java { version: Some(17) };
        for (allocator, expected) in [
            (&GLIBC, "GLIBC_TUNABLES=glibc.malloc.hugetlb=1"),
            (&jemalloc, "_RJEM_MALLOC_CONF=thp:always"),
            (&mimalloc, "MIMALLOC_ALLOW_LARGE_OS_PAGES=1"),
            (&java, "JDK_JAVA_OPTIONS=-XX:+UseTransparentHugePages"),
            (&Php, "USE_ZEND_ALLOC_HUGE_PAGES=1"),
        ] {
            assert_eq!(planned(allocator, "", &[]), expected);
        }
        for (allocator, why) in [
            (&Glibc { has_hugetlb: false }, "2.35"),
            (&Java { version: Some(8) }, "older than 9"),
            (&Tcmalloc, "tcmalloc"),
            (&Go, "Go"),
            (&Unknown, "not known"),
        ] {
            let left = planned(allocator, "", &[]);
            assert!(left.contains(why), "{left}");
        }
    }

    #[test]
    fn what_the_user_has_set_stays() {
        let other = "GLIBC_TUNABLES=glibc.malloc.arena_max=2";
        let both = "GLIBC_TUNABLES=glibc.malloc.arena_max=2:glibc.malloc.hugetlb=1";
        assert_eq!(planned(&GLIBC, other, &[]), both);
        let own = "GLIBC_TUNABLES=glibc.malloc.hugetlb=0";
        assert_eq!(planned(&GLIBC, own, &[]), "GLIBC_TUNABLES is set already");
        let php = planned(&Php, "USE_ZEND_ALLOC_HUGE_PAGES=0", &[]);
        assert_eq!(php, "USE_ZEND_ALLOC_HUGE_PAGES is set already");
        let jemalloc = Jemalloc { variable: "MALLOC_CONF".into() };
        let own = planned(&jemalloc, "MALLOC_CONF=narenas:2,thp:never", &[]);
        assert_eq!(own, "MALLOC_CONF is set already");
        // That is about jemalloc's own data.
        let metadata = planned(&jemalloc, "MALLOC_CONF=metadata_thp:auto", &[]);
        assert_eq!(metadata, "MALLOC_CONF=metadata_thp:auto,thp:always");
        let java = Java { version: Some(17) };
        let heap = planned(&java, "JDK_JAVA_OPTIONS=-Xmx4g", &[]);
        let both = "JDK_JAVA_OPTIONS=-Xmx4g -XX:+UseTransparentHugePages";
        assert_eq!(heap, both);
        let decided = "its options decide on huge pages already";
        assert_eq!(planned(&java, "", &["-XX:-UseTransparentHugePages"]), decided);
        let elsewhere = "JAVA_TOOL_OPTIONS=-XX:+UseLargePages";
        assert_eq!(planned(&java, elsewhere, &[]), decided);
        for options in [
            "-Xmx4g\n-XX:-UseTransparentHugePages",
            "-Xmx4g\t-XX:-UseTransparentHugePages",
            "-Xmx4g '-XX:-UseTransparentHugePages'",
            "-Xmx4g -XX:\"-UseTransparentHugePages\"",
        ] {
            let own = planned(&java, &format!("JDK_JAVA_OPTIONS={options}"), &[]);
            assert_eq!(own, "JDK_JAVA_OPTIONS is set already", "{options:?}");
            let elsewhere = planned(&java, &format!("JAVA_TOOL_OPTIONS={options}"), &[]);
            assert_eq!(elsewhere, decided, "{options:?}");
        }
    }

    #[test]
    fn the_hugetlb_pool_is_left_to_those_who_reserved_it() {
        let machine = HugePageSources { hugetlb_pool: true, ..EMPTY_POOL };
        let planned = |allocator: &ProgramAllocator| {
            text(&env_plan_for_allocator(allocator, |_| None, &[], machine))
        };
        assert!(planned(&Php).contains("hugetlb pool"));
        assert!(planned(&GLIBC).starts_with("GLIBC_TUNABLES="));
    }

    #[test]
    fn a_value_that_is_not_text_is_left() {
        let set = "GLIBC_TUNABLES=\u{fffd}";
        assert_eq!(planned(&GLIBC, set, &[]), "GLIBC_TUNABLES is set already");
    }

    #[test]
    fn where_the_kernel_decides_nothing_is_set() {
        for (setting, why) in
            [(Some("always"), "every program"), (Some("never"), "never"), (None, "never")]
        {
            let machine = HugePageSources { thp_enabled: setting, ..EMPTY_POOL };
            let left = text(&env_plan_for_allocator(&GLIBC, |_| None, &[], machine));
            assert!(left.contains(why), "{left}");
        }
    }
}
