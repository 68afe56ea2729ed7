//! A virtual machine of which the first and only process is a workload of ours.
//!
//! QEMU without KVM, because not every machine lets a stock kernel start under it: good for what becomes of memory, not for
//! times.

use super::programs::die_with_us;
use super::programs::packages;
use crate::error::BenchError;
use cpio::newc::{Builder, ModeFileType};
use hawkeye_workload::Workload;
use std::fs::{self, File};
use std::io::{self, Cursor, Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const QEMU: &str = "qemu-system-x86_64";
/// Names a kernel to start, as a boot loader would.
const KERNEL_VARIABLE: &str = "HAWKEYE_GUEST_KERNEL";
/// The kernels that `scripts/vm/fetch-kernel.sh` fetches, the best known first.
const FETCHED: [&str; 3] = ["6.12", "7.2", "6.1"];
/// Where the guest's loader and libraries are.
const LIBRARIES: &str = "lib";

/// What a guest is started from.
pub(super) struct Guest {
    kernel: PathBuf,
    initramfs: PathBuf,
}

impl Guest {
    /// Makes one whose only program is `program`, with the libraries that it needs.
    ///
    /// # Errors
    /// QEMU or a kernel is missing, or the guest's files could not be written.
    pub(super) fn of(program: &Path) -> Result<Self, BenchError> {
        packages::need(QEMU, "qemu-system-x86")?;
        let guest = Self {
            kernel: kernel(program)?,
            initramfs: std::env::temp_dir()
                .join(format!("hawkeye-guest-{}.cpio", std::process::id())),
        };
        let failed = |source| BenchError::Program {
            program: format!("{QEMU} (its files could not be put together)"),
            source,
        };
        write_initramfs(program, &guest.initramfs).map_err(failed)?;
        Ok(guest)
    }

    /// Starts it with `mib` MiB of memory beside what its files take. `words` are the workload, `parameters` go to its
    /// kernel.
    pub(super) fn start(
        &self,
        mib: u64,
        parameters: &str,
        words: &str,
    ) -> Result<Workload, BenchError> {
        // In memory twice while it is unpacked.
        let files = fs::metadata(&self.initramfs).map_or(0, |file| (2 * file.len()) >> 20);
        let mut command = Command::new(QEMU);
        // Without cx16: Debian 12's QEMU emulates it wrongly, and kernels crash (see scripts/vm/run.sh).
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

/// The kernel to start: the one that is named, or one that was fetched beside this program's build.
fn kernel(program: &Path) -> Result<PathBuf, BenchError> {
    if let Some(named) = std::env::var_os(KERNEL_VARIABLE).map(PathBuf::from) {
        return named.is_file().then_some(named).ok_or_else(|| {
            BenchError::Impossible(format!("{KERNEL_VARIABLE} names no kernel that is there"))
        });
    }
    let builds = program.parent().and_then(Path::parent);
    let fetched = builds
        .into_iter()
        .flat_map(|builds| FETCHED.map(|kernel| builds.join("vm").join(kernel).join("vmlinuz")));
    let there = fetched.into_iter().find(|kernel| kernel.is_file());
    there.ok_or_else(|| {
        BenchError::Impossible(format!(
            "a virtual machine needs a kernel: `scripts/vm/fetch-kernel.sh 6.12 target/vm/6.12` fetches one, \
             or name one in {KERNEL_VARIABLE}"
        ))
    })
}

/// An archive for the kernel to unpack: the program, the libraries that it needs, and what loads them.
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
    // What its loader would load, in its own words, which ldd shows too.
    let mut listing = Command::new(program);
    let listing = listing.env("LD_TRACE_LOADED_OBJECTS", "1").output()?;
    for library in libraries(&String::from_utf8_lossy(&listing.stdout)) {
        add(
            Path::new(&library.path),
            &format!("{LIBRARIES}/{}", library.name),
        )?;
    }
    cpio::write_cpio(inputs.into_iter(), File::create(to)?).map(drop)
}

trait ReadSeek: Read + Seek {}
impl<T: Read + Seek> ReadSeek for T {}

fn entry(name: &str, kind: ModeFileType) -> Builder {
    Builder::new(name).mode(0o755).set_mode_file_type(kind)
}

/// A library by the name that programs ask for it by; the one that loads the others is called `loader`.
#[derive(Debug, PartialEq, Eq)]
struct Library {
    name: String,
    path: String,
}

/// Those in a loader's listing. What the kernel brings itself has no path there.
fn libraries(listing: &str) -> Vec<Library> {
    let library = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (name, path) = match words[..] {
            [name, "=>", path, _] => (name, path),
            [path, _] if path.starts_with('/') => ("loader", path),
            _ => return None,
        };
        let (name, path) = (name.to_owned(), path.to_owned());
        Some(Library { name, path })
    };
    listing.lines().filter_map(library).collect()
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
        let library = |name: &str, path: &str| Library {
            name: name.into(),
            path: path.into(),
        };
        assert_eq!(
            libraries(listing),
            [
                library("libelf.so.1", "/lib/x86_64-linux-gnu/libelf.so.1"),
                library("loader", "/lib64/ld-linux-x86-64.so.2"),
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
