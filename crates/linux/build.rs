//! Compiles the BPF programs and generates their skeletons.
use libbpf_cargo::SkeletonBuilder;
use std::env;
use std::path::PathBuf;

/// Programs, each with a skeleton of its own.
const PROGRAMS: [&str; 3] = ["hawkeye", "fault_trace", "exec_tracer"];

/// Architectures, as cargo and as the kernel name them.
const ARCHITECTURES: [(&str, &str); 2] = [("x86_64", "x86"), ("aarch64", "arm64")];

/// Sizes of base pages as powers of two: 4 KiB, and 16 KiB for a feature of that name.
const PAGE_SHIFTS: [u32; 2] = [12, 14];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let target = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target's architecture");
    // Debian keeps uapi headers in a folder of the architecture. BPF takes those of the machine
    // that builds: what it includes is the same on all.
    let uapi = format!("-I/usr/include/{}-linux-gnu", env::consts::ARCH);
    let has_pages_of_16_kib = env::var_os("CARGO_FEATURE_BASE_PAGES_16_KIB").is_some();
    let wanted = (target.as_str(), PAGE_SHIFTS[usize::from(has_pages_of_16_kib)]);
    // All are built everywhere, so that a change for one does not break another.
    for (name, kernel_name) in ARCHITECTURES {
        let arch = format!("-Isrc/bpf/arch/{kernel_name}");
        for shift in PAGE_SHIFTS {
            let pages = format!("-DPAGE_SHIFT={shift}");
            for program in PROGRAMS {
                let source = format!("src/bpf/{program}.bpf.c");
                let mut builder = SkeletonBuilder::new();
                let object = out.join(format!("{program}.{kernel_name}.{shift}.o"));
                builder.source(&source).obj(object).clang_args([
                    "-Isrc/bpf",
                    arch.as_str(),
                    pages.as_str(),
                    uapi.as_str(),
                    "-mcpu=v3",
                    "-Wall",
                    "-Werror",
                ]);
                let built = if (name, shift) == wanted {
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
    }
    println!("cargo:rerun-if-changed=src/bpf");
}
