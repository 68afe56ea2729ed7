use super::*;

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn allocators_are_recognised_by_libraries_and_environment() {
    let of = |libraries: &[&str], environ: &str| {
        allocator(&words(libraries), &parse_environment(environ.as_bytes()))
    };
    let glibc = |hugetlb, tunables: Option<&str>| Allocator::Glibc {
        hugetlb,
        tunables: tunables.map(str::to_owned),
    };
    let jemalloc = |thp: Option<&str>, conf: Option<&str>| Allocator::Jemalloc {
        thp: thp.map(str::to_owned),
        conf: conf.map(str::to_owned),
    };
    let all = "glibc.malloc.check=3:glibc.malloc.hugetlb=1";
    let tuned = format!("GLIBC_TUNABLES={all}\0");
    let conf = "narenas:2,thp:always";
    let told = format!("MALLOC_CONF={conf}");
    let both = &["libc.so.6", "libjemalloc.so.2"][..];
    for (libraries, environ, allocator) in [
        (&["libc.so.6"][..], "A=b\0", glibc(None, None)),
        (&["libc.so.6"], &tuned, glibc(Some(1), Some(all))),
        (
            &["libc-2.31.so"],
            "GLIBC_TUNABLES=x\0=\0\0",
            glibc(None, Some("x")),
        ),
        (both, &told, jemalloc(Some("always"), Some(conf))),
        (both, "", jemalloc(None, None)),
        (&["libtcmalloc.so.4"], "", Allocator::Tcmalloc),
        // A statically linked program.
        (&["a.out"], &tuned, Allocator::Unknown),
    ] {
        assert_eq!(of(libraries, environ), allocator, "{libraries:?} {environ}");
    }
}

#[test]
fn java_is_recognised_by_its_library_and_its_last_option() {
    let flags = |command: &[&str]| java_flags(&words(&["libjvm.so"]), &words(command));
    let no_java = java_flags(&words(&["libc.so.6"]), &words(&["-XX:+UseLargePages"]));
    assert_eq!(no_java, None);
    assert_eq!(flags(&["java", "-Xmx4g"]), Some(JavaFlags::default()));
    let on = "-XX:+UseTransparentHugePages";
    assert!(flags(&["java", on]).is_some_and(|flags| flags.transparent));
    let off = "-XX:-UseTransparentHugePages";
    assert!(flags(&["java", on, off, "-XX:"]).is_some_and(|flags| !flags.transparent));
}

#[test]
fn similar_neighbours_are_merged_and_empty_mappings_skipped() {
    let place = |start, end, what: &str, resident_bytes| MappingGroup {
        start,
        end,
        what: what.into(),
        resident_bytes,
        ..MappingGroup::default()
    };
    let places = [
        place(0, 10, "heap", 4),
        place(10, 20, "heap", 5),
        place(20, 30, "anonymous", 6),
        place(40, 50, "anonymous", 7),
        place(60, 70, "anonymous", 0),
    ];
    let found = merge_neighbours(places.into_iter()).into_iter();
    let sizes: Vec<_> = found.map(|p| (p.start, p.end, p.resident_bytes)).collect();
    assert_eq!(sizes, [(0, 20, 9), (20, 30, 6), (40, 50, 7)]);
}

#[test]
fn our_own_are_readable() -> Result<()> {
    let own = HugePageContext::of(std::process::id())?;
    assert!(own.places.iter().any(|place| place.what == "heap"));
    let mut stacks = own.places.iter().filter(|place| place.what == "stack");
    assert!(stacks.any(|stack| stack.ineligible.is_some()));
    assert!(matches!(own.allocator, Allocator::Glibc { .. }));
    assert_eq!(own.java, None);
    Ok(())
}
