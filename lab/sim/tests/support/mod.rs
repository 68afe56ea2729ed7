//! Workloads that several tests use.

/// A workload of one program, `reader`, that fills its `heap` of `heap_mib` MiB and then accesses
/// it for `ideal_s` seconds of its own work. `fill` and `access` are further keys of these phases,
/// as TOML.
pub fn reader(heap_mib: u32, fill: &str, ideal_s: f64, access: &str) -> String {
    format!(
        r#"
        name = "test"
        source = "a test"
        [[process]]
        name = "reader"
        [[process.area]]
        name = "heap"
        size = "{heap_mib}MiB"
        [[process.phase]]
        kind = "fill"
        area = "heap"
        page_ns = 100.0
        {fill}
        [[process.phase]]
        kind = "access"
        ideal_s = {ideal_s:?}
        {access}
        "#
    )
}
