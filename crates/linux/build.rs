//! Compiles the BPF programs and generates their skeletons.
use libbpf_cargo::SkeletonBuilder;
use std::env;
use std::path::PathBuf;

/// Programs, each with a skeleton of its own.
const PROGRAMS: [&str; 3] = ["hawkeye", "fault_trace", "exec_tracer"];

/// Architectures, as cargo and as the kernel name them.
const ARCHITECTURES: [(&str, &str); 2] = [("x86_64", "x86"), ("aarch64", "arm64")];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let target = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target's architecture");
    // Debian keeps uapi headers in a folder of the architecture. BPF takes those of the machine
    // that builds: what it includes is the same on all.
    let uapi = format!("-I/usr/include/{}-linux-gnu", env::consts::ARCH);
    // All are built everywhere, so that a change for one does not break another.
    for (name, kernel_name) in ARCHITECTURES {
        let arch = format!("-Isrc/bpf/arch/{kernel_name}");
        for program in PROGRAMS {
            let source = format!("src/bpf/{program}.bpf.c");
            let mut builder = SkeletonBuilder::new();
            builder.source(&source).obj(out.join(format!("{program}.{kernel_name}.o"))).clang_args(
                ["-Isrc/bpf", arch.as_str(), uapi.as_str(), "-mcpu=v3", "-Wall", "-Werror"],
            );
            let built = if name == target {
                builder.build_and_generate(out.join(format!("{program}.skel.rs")))
            } else {
                builder.build()
            };
            if let Err(error) = built {
                panic!(
                    "{source} does not compile for {name} (is clang installed? `make deps` installs it): {error:#}"
                );
            }
        }
    }
    println!("cargo:rerun-if-changed=src/bpf");
}
