use super::*;

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
    let found = merge_equal_neighbours(places.into_iter()).into_iter();
    let sizes: Vec<_> = found.map(|p| (p.start, p.end, p.resident_bytes)).collect();
    assert_eq!(sizes, [(0, 20, 9), (20, 30, 6), (40, 50, 7)]);
}

#[test]
fn our_own_are_readable() -> Result<()> {
    let own = HugePageContext::of_process(std::process::id())?;
    assert!(own.places.iter().any(|place| place.what == "heap"));
    let mut stacks = own.places.iter().filter(|place| place.what == "stack");
    assert!(stacks.any(|stack| stack.ineligible.is_some()));
    Ok(())
}
