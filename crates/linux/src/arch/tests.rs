//! Tests of what is known of processors, and of the BPF programs' reads of page tables. Those run
//! on simulated memory, for every architecture and depth of tables
//! (`bpf/arch/tests/page_tables.c`).

use super::*;
use hawkeye_test_support::this_test;
use libbpf_rs::ObjectBuilder;
use std::path::Path;
use std::process::Command;

#[test]
fn an_unknown_processor_has_huge_pages_and_no_events() {
    for cpuinfo in ["", "processor\t: 0\nhart\t: 0\nisa\t: rv64imafdc\n"] {
        assert_eq!(walk_events(cpuinfo), None);
        assert_eq!(processor_model(cpuinfo), "unknown");
        assert_eq!(tlb_page_sizes(cpuinfo), PageOrderSet::HUGE);
    }
}

fn run_successfully(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&text));
}

/// Builds the programs for this machine with the entries of an architecture and base pages of
/// 2^`page_shift` bytes, and runs them with each of these lists of arguments.
fn test_page_tables(arch: &str, page_shift: u32, arguments: &[&[&str]]) {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let program = folder.path().join("page_tables");
    let mut clang = Command::new("clang");
    clang.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bpf"));
    clang.args(["-O1", "-Wall", "-Werror", "-Wno-unknown-attributes", "-Iarch/tests", "-I."]);
    clang.args([format!("-Iarch/{arch}"), format!("-D__TARGET_ARCH_{arch}")]);
    clang.arg(format!("-DPAGE_SHIFT={page_shift}"));
    run_successfully(clang.arg("arch/tests/page_tables.c").arg("-o").arg(&program));
    for arguments in arguments {
        run_successfully(Command::new(&program).args(*arguments));
    }
}

#[test]
fn tables_of_4_and_5_levels_are_read_on_x86() {
    test_page_tables("x86", 12, &[&["4"], &["5"]]);
}

/// Pages without access have bit 58 up to Linux 6.10, bit 11 after that.
#[test]
fn tables_of_3_to_5_levels_and_contiguous_entries_are_read_on_arm64() {
    for bit in ["58", "11"] {
        test_page_tables("arm64", 12, &[&["3", bit], &["4", bit], &["5", bit]]);
        test_page_tables("arm64", 14, &[&["3", bit], &["4", bit]]);
    }
}

#[test]
fn the_programs_of_first_touches_are_built_under_their_names() {
    for (object, sets) in [
        ("fault_trace.x86.12", x86_64::FIRST_TOUCH_PROGRAMS),
        ("fault_trace.arm64.12", aarch64::FIRST_TOUCH_PROGRAMS),
        ("fault_trace.arm64.14", aarch64::FIRST_TOUCH_PROGRAMS),
    ] {
        let file = Path::new(env!("OUT_DIR")).join(format!("{object}.o"));
        let open = ObjectBuilder::default().open_file(file).expect("the build made it");
        let built: Vec<_> = open.progs().map(|p| p.name().to_string_lossy().into_owned()).collect();
        let mut named = sets.concat();
        named.sort_unstable();
        named.dedup();
        // None is built that no set names.
        assert_eq!(named.len(), built.len(), "{object}: {built:?}");
        assert!(named.iter().all(|name| built.iter().any(|b| b == name)), "{object}: {built:?}");
    }
}

/// This kernel's verifier accepts the programs of every architecture and page size. Programs that
/// are entered with a function of another kernel (fentry) cannot be tried.
#[test]
fn the_verifier_accepts_the_programs_of_all_architectures() {
    if !nix::unistd::geteuid().is_root() {
        return this_test!().skip("it needs root");
    }
    let built_for = ["x86.12", "arm64.12", "arm64.14"];
    let programs = ["hawkeye", "fault_trace"];
    for name in built_for.iter().flat_map(|it| programs.map(|program| format!("{program}.{it}"))) {
        let object = Path::new(env!("OUT_DIR")).join(format!("{name}.o"));
        let mut open = ObjectBuilder::default().open_file(object).expect("the build made it");
        for mut program in open.progs_mut() {
            let entered = program.section().to_string_lossy().starts_with("fentry/");
            program.set_autoload(!entered);
        }
        open.load().unwrap_or_else(|error| panic!("{name}: {error:#}"));
    }
}
