//! A virtual machine that runs one of our workloads as its first and only process.
//!
//! It is QEMU without KVM, because some machines can't start a stock kernel under KVM. Results
//! about memory are valid, times are not.

use super::programs::die_with_us;
use super::programs::packages;
use crate::error::{BenchError, Result, impossible};
use cpio::newc::{Builder, ModeFileType};
use hawkeye_workload::Workload;
use std::fs::{self, File};
use std::io::{self, Cursor, Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const QEMU: &str = "qemu-system-x86_64";
/// Environment variable with a kernel to start, as a boot loader would.
const KERNEL_VARIABLE: &str = "HAWKEYE_GUEST_KERNEL";
/// The kernels that `scripts/vm/fetch-kernel.sh` fetches, the best tested first.
const FETCHED: [&str; 3] = ["6.12", "7.2", "6.1"];
/// Folder of the guest's loader and libraries.
const LIBRARIES: &str = "lib";

/// The files that a guest is started from.
pub(super) struct Guest {
    kernel: PathBuf,
    initramfs: PathBuf,
}

impl Guest {
    /// Prepares a guest that runs only `program`, with the libraries that this needs.
    pub(super) fn of(program: &Path) -> Result<Self> {
        packages::need(QEMU, "qemu-system-x86")?;
        let guest = Self {
            kernel: kernel(program)?,
            initramfs: std::env::temp_dir()
                .join(format!("hawkeye-guest-{}.cpio", std::process::id())),
        };
        let failed = BenchError::program(format!("{QEMU} (its files could not be put together)"));
        write_initramfs(program, &guest.initramfs).map_err(failed)?;
        Ok(guest)
    }

    /// Starts the guest with `mib` MiB of memory in addition to the space of its files. `words` are
    /// the workload; `parameters` go to the guest's kernel.
    pub(super) fn start(&self, mib: u64, parameters: &str, words: &str) -> Result<Workload> {
        // The files are in memory twice while they are unpacked.
        let files = fs::metadata(&self.initramfs).map_or(0, |file| (2 * file.len()) >> 20);
        let mut command = Command::new(QEMU);
        // Without cx16, because Debian 12's QEMU emulates it wrongly and kernels crash (see
        // scripts/vm/run.sh).
        command.args("-M q35 -accel tcg,thread=single,tb-size=64 -cpu max,-cx16".split(' '));
        command.args("-nodefaults -no-user-config -display none -no-reboot".split(' '));
        command.args(["-serial", "stdio", "-m", &(mib + files).to_string()]);
        command.arg("-kernel").arg(&self.kernel);
        command.arg("-initrd").arg(&self.initramfs);
        command.arg("-append").arg(format!(
            "console=ttyS0 quiet loglevel=0 panic=-1 {parameters} rdinit=/{LIBRARIES}/loader \
             -- --library-path /{LIBRARIES} /program workload {words}"
        ));
        command.stderr(Stdio::inherit());
        hawkeye_linux::stop::let_signals_through(&mut command);
        die_with_us(&mut command);
        Ok(Workload::spawn_behind_terminal(command)?)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.initramfs);
    }
}

/// The kernel to start: the one that the environment names, or one that was fetched next to this
/// program's build.
fn kernel(program: &Path) -> Result<PathBuf> {
    if let Some(named) = std::env::var_os(KERNEL_VARIABLE).map(PathBuf::from) {
        return named
            .is_file()
            .then_some(named)
            .ok_or_else(|| impossible!("{KERNEL_VARIABLE} names no kernel that is there"));
    }
    let builds = program.parent().and_then(Path::parent);
    let fetched = builds
        .into_iter()
        .flat_map(|builds| FETCHED.map(|kernel| builds.join("vm").join(kernel).join("vmlinuz")));
    let there = fetched.into_iter().find(|kernel| kernel.is_file());
    there.ok_or_else(|| {
        impossible!("a virtual machine needs a kernel: `scripts/vm/fetch-kernel.sh 6.12 target/vm/6.12` fetches one, \
             or name one in {KERNEL_VARIABLE}")
    })
}

/// Writes an archive for the kernel to unpack: the program, the libraries that it needs, and their
/// loader.
fn write_initramfs(program: &Path, to: &Path) -> io::Result<()> {
    let mut inputs: Vec<(Builder, Box<dyn ReadSeek>)> = vec![(
        entry(LIBRARIES, ModeFileType::Directory),
        Box::new(Cursor::new([])),
    )];
    let mut add = |path: &Path, name: &str| -> io::Result<()> {
        inputs.push((
            entry(name, ModeFileType::Regular),
            Box::new(File::open(path)?),
        ));
        Ok(())
    };
    add(program, "program")?;
    // The loader's own list of libraries, which ldd shows too.
    let mut listing = Command::new(program);
    let listing = listing.env("LD_TRACE_LOADED_OBJECTS", "1").output()?;
    for (name, path) in libraries(&String::from_utf8_lossy(&listing.stdout)) {
        add(Path::new(path), &format!("{LIBRARIES}/{name}"))?;
    }
    cpio::write_cpio(inputs.into_iter(), File::create(to)?).map(drop)
}

trait ReadSeek: Read + Seek {}
impl<T: Read + Seek> ReadSeek for T {}

fn entry(name: &str, kind: ModeFileType) -> Builder {
    Builder::new(name).mode(0o755).set_mode_file_type(kind)
}

/// Parses a loader's listing: for each library, the name that programs ask for (`loader` for the
/// loader itself) and its path. Libraries that the kernel supplies have no path there.
fn libraries(listing: &str) -> Vec<(&str, &str)> {
    let lines = listing.lines().map(str::split_whitespace);
    lines
        .filter_map(|words| match words.collect::<Vec<_>>()[..] {
            [name, "=>", path, _] => Some((name, path)),
            [path, _] if path.starts_with('/') => Some(("loader", path)),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_named_as_they_are_asked_for() {
        let listing = "\
\tlinux-vdso.so.1 (0x00007ffd0f1fe000)
\tlibelf.so.1 => /lib/x86_64-linux-gnu/libelf.so.1 (0x00007f23)
\t/lib64/ld-linux-x86-64.so.2 (0x00007f24)";
        assert_eq!(
            libraries(listing),
            [
                ("libelf.so.1", "/lib/x86_64-linux-gnu/libelf.so.1"),
                ("loader", "/lib64/ld-linux-x86-64.so.2"),
            ]
        );
    }

    #[test]
    fn a_guests_files_are_an_archive_with_all_of_them() {
        let to = std::env::temp_dir().join(format!("hawkeye-guest-test-{}", std::process::id()));
        write_initramfs(&std::env::current_exe().expect("is there"), &to).expect("writes");
        let mut rest: Box<dyn Read> = Box::new(File::open(&to).expect("opens"));
        let mut names = Vec::new();
        loop {
            let reader = cpio::NewcReader::new(rest).expect("reads");
            if reader.entry().is_trailer() {
                break;
            }
            names.push(reader.entry().name().to_owned());
            rest = reader.finish().expect("goes on");
        }
        fs::remove_file(to).expect("removes");
        assert_eq!(names[..2], ["lib", "program"]);
        assert!(names.contains(&"lib/loader".to_owned()), "{names:?}");
        assert!(names.contains(&"lib/libc.so.6".to_owned()), "{names:?}");
    }
}
