//! Workloads that several tests use.

/// A workload of these tables of TOML.
pub fn workload(tables: &[String]) -> String {
    format!("name = \"test\"\nsource = \"a test\"\n{}", tables.concat())
}

/// A `[[process]]` with these areas and phases, the tables of TOML arrays, and with further keys.
pub fn process(name: &str, keys: &str, areas: &str, phases: &str) -> String {
    format!("[[process]]\nname = {name:?}\n{keys}\narea = [{areas}]\nphase = [{phases}]\n")
}

/// A workload of one program, `reader`, with these areas and phases.
pub fn one(areas: &str, phases: &str) -> String {
    workload(&[process("reader", "", areas, phases)])
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
