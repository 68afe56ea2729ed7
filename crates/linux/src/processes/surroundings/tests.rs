use super::*;

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn allocators_are_told_by_libraries_and_environment() {
    let of = |libraries: &[&str], environ: &str| {
        allocator(&words(libraries), &variables(environ.as_bytes()))
    };
    let glibc = |hugetlb, tunables: Option<&str>| Allocator::Glibc {
        hugetlb,
        tunables: tunables.map(str::to_owned),
    };
    assert_eq!(of(&["libc.so.6"], "A=b\0"), glibc(None, None));
    let tuned = "GLIBC_TUNABLES=glibc.malloc.check=3:glibc.malloc.hugetlb=1\0";
    let all = "glibc.malloc.check=3:glibc.malloc.hugetlb=1";
    assert_eq!(of(&["libc.so.6"], tuned), glibc(Some(1), Some(all)));
    assert_eq!(
        of(&["libc-2.31.so"], "GLIBC_TUNABLES=x\0=\0\0"),
        glibc(None, Some("x"))
    );
    let jemalloc = |thp: Option<&str>, conf: Option<&str>| Allocator::Jemalloc {
        thp: thp.map(str::to_owned),
        conf: conf.map(str::to_owned),
    };
    let both = ["libc.so.6", "libjemalloc.so.2"];
    assert_eq!(
        of(&both, "MALLOC_CONF=narenas:2,thp:always"),
        jemalloc(Some("always"), Some("narenas:2,thp:always"))
    );
    assert_eq!(of(&both, ""), jemalloc(None, None));
    assert_eq!(of(&["libtcmalloc.so.4"], ""), Allocator::Tcmalloc);
    assert_eq!(
        of(&["a.out"], tuned),
        Allocator::Unknown,
        "a static program"
    );
}

#[test]
fn java_is_told_by_its_library_and_its_last_word() {
    let flags = |command: &[&str]| java(&words(&["libjvm.so"]), &words(command));
    assert_eq!(
        java(&words(&["libc.so.6"]), &words(&["-XX:+UseLargePages"])),
        None
    );
    assert_eq!(flags(&["java", "-Xmx4g"]), Some(JavaFlags::default()));
    let on = "-XX:+UseTransparentHugePages";
    assert!(flags(&["java", on]).is_some_and(|flags| flags.transparent));
    let off = "-XX:-UseTransparentHugePages";
    assert!(flags(&["java", on, off, "-XX:"]).is_some_and(|flags| !flags.transparent));
}

#[test]
fn neighbours_that_are_alike_are_one_place_and_empty_ones_none() {
    let place = |start, end, what: &str, resident_bytes| Place {
        start,
        end,
        what: what.into(),
        resident_bytes,
        ..Place::default()
    };
    let found = merged(
        [
            place(0, 10, "heap", 4),
            place(10, 20, "heap", 5),
            place(20, 30, "anonymous", 6),
            place(40, 50, "anonymous", 7),
            place(60, 70, "anonymous", 0),
        ]
        .into_iter(),
    );
    let sizes: Vec<_> = found
        .iter()
        .map(|p| (p.start, p.end, p.resident_bytes))
        .collect();
    assert_eq!(sizes, [(0, 20, 9), (20, 30, 6), (40, 50, 7)]);
}

#[test]
fn our_own_are_readable() -> Result<()> {
    let own = Surroundings::of(std::process::id())?;
    assert!(own.places.iter().any(|place| place.what == "heap"));
    assert!(
        own.places
            .iter()
            .any(|place| place.what == "stack" && place.ineligible.is_some())
    );
    assert!(matches!(own.allocator, Allocator::Glibc { .. }));
    assert_eq!(own.java, None);
    Ok(())
}
