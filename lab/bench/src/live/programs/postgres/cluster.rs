//! A database cluster of its own, in a temporary folder.

use crate::error::BenchError;
use crate::live::programs::cores::Cores;
use crate::live::programs::packages;
use crate::live::programs::scratch::Scratch;
use hawkeye_linux::LinuxError;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User, chown, geteuid};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Where Debian keeps the programs of each version.
const VERSIONS: &str = "/usr/lib/postgresql";
/// The user that its package makes.
const USER: &str = "postgres";
/// How long the server may take to listen.
const START: Duration = Duration::from_secs(30);

/// The folder of the newest version's programs, if there is one.
pub(super) fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir(VERSIONS).ok()?.flatten();
    let number = |entry: &std::fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    versions
        .filter_map(|entry| Some((number(&entry)?, entry.path().join("bin"))))
        .filter(|(_, path)| path.join("pgbench").exists() && path.join("initdb").exists())
        .max()
        .map(|(_, path)| path)
}

/// A server and its data; stopped and deleted when dropped.
pub(super) struct Cluster {
    programs: PathBuf,
    /// Who runs it: it refuses root.
    user: Option<User>,
    server: Option<Child>,
    folder: Scratch,
}

impl Cluster {
    /// Starts one with so much memory for its shared buffers.
    pub(super) fn start(buffers_mib: u64) -> Result<Self, BenchError> {
        packages::need("pg_ctlcluster", "postgresql")?;
        let missing = || BenchError::Impossible(format!("there is no PostgreSQL in {VERSIONS}"));
        let mut cluster = Self {
            programs: programs().ok_or_else(missing)?,
            user: unprivileged()?,
            server: None,
            folder: Scratch::new("postgres")?,
        };
        cluster.make()?;
        cluster.serve(buffers_mib)?;
        Ok(cluster)
    }

    fn make(&self) -> Result<(), BenchError> {
        let folder = self.folder.path();
        if let Some(user) = &self.user {
            chown(folder, Some(user.uid), Some(user.gid)).map_err(|errno| LinuxError::Call {
                call: "giving a folder away",
                errno,
            })?;
        }
        let mut initdb = self.command("initdb");
        // Nobody else can reach its socket.
        initdb.args(["--auth=trust", "--no-sync", "--username", USER, "-D"]);
        initdb.arg(folder.join("data"));
        run(initdb).map(drop)
    }

    fn serve(&mut self, buffers_mib: u64) -> Result<(), BenchError> {
        let folder = self.folder.path();
        let mut command = self.command("postgres");
        command
            .arg("-D")
            .arg(folder.join("data"))
            .arg("-k")
            .arg(folder)
            .args(["-c", &format!("shared_buffers={}MB", buffers_mib.max(1))]);
        for setting in [
            "listen_addresses=",
            // Base pages to begin with, and nothing of it outside of its folder.
            "huge_pages=off",
            "dynamic_shared_memory_type=mmap",
            // Nobody else works while it is measured, and it need not survive.
            "max_connections=10",
            "autovacuum=off",
            "fsync=off",
            "wal_level=minimal",
            "max_wal_senders=0",
            "max_wal_size=4GB",
            "checkpoint_timeout=1h",
            "bgwriter_lru_maxpages=0",
        ] {
            command.args(["-c", setting]);
        }
        hawkeye_linux::stop::let_signals_through(&mut command);
        // At SIGQUIT it ends its backends and leaves nothing behind in the kernel.
        // SAFETY: between fork and exec nothing is done but one system call.
        unsafe {
            command.pre_exec(|| Ok(set_pdeathsig(Signal::SIGQUIT)?));
        }
        if let Some(cores) = Cores::divided() {
            cores.server.keep(&mut command);
        }
        let started = command.spawn().map_err(|source| failed(&command, source))?;
        let server = self.server.insert(started);
        let deadline = Instant::now() + START;
        loop {
            if let Ok(Some(status)) = server.try_wait() {
                let message = format!("postgres ended at its start: {status}");
                return Err(BenchError::Impossible(message));
            }
            let mut ask = command_as(
                self.user.as_ref(),
                &self.programs.join("pg_isready"),
                folder,
            );
            match ask.status() {
                Ok(status) if status.success() => return Ok(()),
                _ if Instant::now() > deadline => {
                    let message = format!("postgres did not listen within {} s", START.as_secs());
                    return Err(BenchError::Impossible(message));
                }
                _ => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// The command for one of its programs, which finds the server by itself.
    pub(super) fn command(&self, program: &str) -> Command {
        let path = self.programs.join(program);
        command_as(self.user.as_ref(), &path, self.folder.path())
    }

    /// What a query answers, as text.
    pub(super) fn query(&self, query: &str) -> Result<String, BenchError> {
        let mut psql = self.command("psql");
        psql.args(["-X", "-q", "-A", "-t", "-c", query]);
        run(psql)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            let _ = kill(Pid::from_raw(server.id() as i32), Signal::SIGQUIT);
            let _ = server.wait();
        }
    }
}

/// Runs a program to its end; what it printed.
pub(super) fn run(mut command: Command) -> Result<String, BenchError> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = command
        .output()
        .map_err(|source| failed(&command, source))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    Err(BenchError::Impossible(format!(
        "{} ended with {}: {}",
        command.get_program().to_string_lossy(),
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    )))
}

pub(super) fn failed(command: &Command, source: std::io::Error) -> BenchError {
    BenchError::Program {
        program: command.get_program().to_string_lossy().into_owned(),
        source,
    }
}

fn command_as(user: Option<&User>, program: &Path, folder: &Path) -> Command {
    let mut command = Command::new(program);
    if let Some(user) = user {
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    }
    command
        .current_dir(folder)
        .env("PGHOST", folder)
        .env("PGUSER", USER)
        .env("PGDATABASE", USER)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

fn unprivileged() -> Result<Option<User>, BenchError> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let found = User::from_name(USER).ok().flatten();
    let missing = || BenchError::Impossible(format!("there is no user {USER} to run it"));
    found.map(Some).ok_or_else(missing)
}
