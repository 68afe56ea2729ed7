//! Compiles the BPF programs and generates their skeleton.
use libbpf_cargo::SkeletonBuilder;
use std::env;
use std::path::PathBuf;

/// Programs, each with a skeleton of its own.
const PROGRAMS: [&str; 3] = ["hawkeye", "fault_trace", "exec_tracer"];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target's architecture");
    // Debian keeps the architecture's uapi headers in a folder of its own.
    let include = format!("-I/usr/include/{arch}-linux-gnu");
    for program in PROGRAMS {
        let source = format!("src/bpf/{program}.bpf.c");
        if let Err(error) = SkeletonBuilder::new()
            .source(&source)
            .clang_args(["-Isrc/bpf", include.as_str(), "-mcpu=v3", "-Wall", "-Werror"])
            .build_and_generate(out.join(format!("{program}.skel.rs")))
        {
            panic!(
                "{source} does not compile (is clang installed? `make deps` installs it): {error:#}"
            );
        }
    }
    println!("cargo:rerun-if-changed=src/bpf");
}
