//! Workloads that several tests use.

/// A workload of one program, `reader`, with these areas and phases: the tables of TOML arrays.
pub fn one(areas: &str, phases: &str) -> String {
    format!(
        "name = \"test\"\nsource = \"a test\"\n[[process]]\nname = \"reader\"\narea = [{areas}]\nphase = [{phases}]\n"
    )
}

/// The same for one that fills its `heap` of `heap_mib` MiB and then accesses it for `ideal_s`
/// seconds of its own work. `fill` and `access` are further keys of these phases.
pub fn reader(heap_mib: u32, fill: &str, ideal_s: f64, access: &str) -> String {
    one(
        &format!(r#"{{ name = "heap", size = "{heap_mib}MiB" }}"#),
        &format!(
            r#"{{ kind = "fill", area = "heap", page_ns = 100.0, {fill} }},
               {{ kind = "access", ideal_s = {ideal_s:?}, {access} }}"#
        ),
    )
}
