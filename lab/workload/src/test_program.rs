//! Test programs that are workloads, too, so that tests need no other program to manage.

use crate::WorkloadCommand;
use clap::Parser;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Arguments of such a program, in place of those of the test harness.
#[derive(Parser)]
enum TestProgramArguments {
    #[command(subcommand)]
    Workload(WorkloadCommand),
}

/// Must be called before `main`. In a process started as `PROGRAM workload NAME ...`, runs that
/// workload and ends.
pub fn run_workload_if_asked() {
    if std::env::args().nth(1).as_deref() == Some("workload") {
        let TestProgramArguments::Workload(command) = TestProgramArguments::parse();
        let done = crate::run_workload(&command);
        if let Err(error) = &done {
            eprintln!("hawkeye-workload: {error}");
        }
        std::process::exit(i32::from(done.is_err()));
    }
}

/// As [`run_workload_if_asked`], and gives this program a second name, `link`. Tests start it by
/// that name, and other programs see it under that name.
///
/// # Panics
/// The link can't be created.
pub fn run_as_workload_or_link(link: &str) {
    run_workload_if_asked();
    let linked = link_to_this_program(Path::new(link));
    linked.unwrap_or_else(|error| panic!("{link} can't be made: {error}"));
}

/// Not a symbolic link: a process gets the name of its file.
fn link_to_this_program(link: &Path) -> io::Result<()> {
    let program = std::env::current_exe()?;
    let file = |path: &Path| path.metadata().map(|file| (file.dev(), file.ino()));
    let wanted = file(&program)?;
    if file(link).is_ok_and(|found| found == wanted) {
        return Ok(());
    }
    if let Some(folder) = link.parent() {
        std::fs::create_dir_all(folder)?;
    }
    // Other processes may do the same at the same time.
    let new = link.with_extension(std::process::id().to_string());
    // A copy on another file system, as in a virtual machine.
    std::fs::hard_link(&program, &new).or_else(|_| std::fs::copy(&program, &new).map(drop))?;
    std::fs::rename(&new, link)?;
    // A rename between two names of the same file does nothing.
    let _ = std::fs::remove_file(&new);
    Ok(())
}
