//! Test programs that are workloads, too: so they need no other program to manage.

use crate::WorkloadCommand;
use clap::Parser;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What such a program can be told, instead of what the test harness understands.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    #[command(subcommand)]
    Workload(WorkloadCommand),
}

/// To be called before `main`: started as `PROGRAM workload NAME ...`, this program runs that workload and ends.
pub fn run_if_asked() {
    if std::env::args().nth(1).as_deref() == Some("workload") {
        let Command::Workload(command) = Arguments::parse().command;
        let done = crate::run(&command);
        if let Err(error) = &done {
            eprintln!("hawkeye-workload: {error}");
        }
        std::process::exit(i32::from(done.is_err()));
    }
}

/// As [`run_if_asked`]; this program gets a second name, too: `link`, by which tests start it, and others know it.
///
/// # Panics
/// The link can't be made.
pub fn be_a_workload_too(link: &str) {
    run_if_asked();
    let linked = link_to_this(Path::new(link));
    linked.unwrap_or_else(|error| panic!("{link} can't be made: {error}"));
}

/// Not a symbolic link: a process is called what its file is called.
fn link_to_this(link: &Path) -> io::Result<()> {
    let program = std::env::current_exe()?;
    let file = |path: &Path| path.metadata().map(|file| (file.dev(), file.ino()));
    let wanted = file(&program)?;
    if file(link).is_ok_and(|found| found == wanted) {
        return Ok(());
    }
    if let Some(folder) = link.parent() {
        std::fs::create_dir_all(folder)?;
    }
    // Others may do the same at the same time.
    let new = link.with_extension(std::process::id().to_string());
    // Elsewhere: in a virtual machine, say.
    std::fs::hard_link(&program, &new).or_else(|_| std::fs::copy(&program, &new).map(drop))?;
    std::fs::rename(&new, link)?;
    // Nothing is done by renaming one of two names of the same file.
    let _ = std::fs::remove_file(&new);
    Ok(())
}
