//! A separate database cluster in a temporary folder.

use crate::live::prelude::*;
use crate::live::programs::child_process::{RunningProcess, command_output, poll_for_answer};
use crate::live::programs::client_server_cores::ClientServerCores;
use crate::live::programs::{packages, temporary_folder};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{User, chown, geteuid};
use std::os::unix::process::CommandExt;
use std::process::ExitStatus;
use tempfile::TempDir;

/// Where Debian installs the programs of each version.
const VERSIONS: &str = "/usr/lib/postgresql";
/// The user that the Debian package creates.
const USER: &str = "postgres";
const START: Duration = Duration::from_secs(30);

/// The folder of the newest version's programs, if one is installed.
pub(super) fn postgres_program_folder() -> Option<PathBuf> {
    let versions = std::fs::read_dir(VERSIONS).ok()?.flatten();
    let number = |entry: &std::fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    versions
        .filter_map(|entry| Some((number(&entry)?, entry.path().join("bin"))))
        .filter(|(_, path)| path.join("pgbench").exists() && path.join("initdb").exists())
        .max()
        .map(|(_, path)| path)
}

/// A server and its data; stopped and deleted when dropped.
pub(super) struct PostgresCluster {
    programs: PathBuf,
    /// The user that runs the server, because it refuses root.
    user: Option<User>,
    server: Option<RunningProcess>,
    folder: TempDir,
}

impl PostgresCluster {
    pub(super) fn start(buffers_mib: u64) -> BenchResult<Self> {
        packages::need_program("pg_ctlcluster", "postgresql")?;
        let missing = || impossible!("PostgreSQL is not installed in {VERSIONS}");
        let mut cluster = Self {
            programs: postgres_program_folder().ok_or_else(missing)?,
            user: unprivileged_user()?,
            server: None,
            folder: temporary_folder()?,
        };
        cluster.initialize_cluster()?;
        cluster.start_server_process(buffers_mib)?;
        Ok(cluster)
    }

    fn initialize_cluster(&self) -> BenchResult<()> {
        let folder = self.folder.path();
        if let Some(user) = &self.user {
            chown(folder, Some(user.uid), Some(user.gid)).map_err(|errno| LinuxError::Call {
                call: "changing the owner of PostgreSQL's folder",
                errno,
            })?;
        }
        let mut initdb = self.command("initdb");
        // No other user can reach its socket.
        initdb.args(["--auth=trust", "--no-sync", "--username", USER, "-D"]);
        initdb.arg(folder.join("data"));
        run(initdb).map(drop)
    }

    fn start_server_process(&mut self, buffers_mib: u64) -> BenchResult<()> {
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
            // It starts with base pages, and keeps everything inside its folder.
            "huge_pages=off",
            "dynamic_shared_memory_type=mmap",
            // Nothing else uses the server during the measurement, and its data need not survive.
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
        hawkeye_linux::stop::unblock_signals(&mut command);
        // At SIGQUIT the server ends its backends and leaves nothing behind in the kernel.
        // SAFETY: the closure makes only one system call between fork and exec.
        unsafe {
            command.pre_exec(|| Ok(set_pdeathsig(Signal::SIGQUIT)?));
        }
        if let Some(cores) = ClientServerCores::divided() {
            cores.server.restrict_command(&mut command);
        }
        // At SIGQUIT the server ends its backends.
        let server = self
            .server
            .insert(RunningProcess::start(&mut command, Signal::SIGQUIT)?);
        let program = self.programs.join("pg_isready");
        let listens = poll_for_answer(START, || {
            if let Ok(Some(status)) = server.try_wait() {
                bail!("postgres ended before it listened: {status}");
            }
            let asked = command_as(self.user.as_ref(), &program, folder).status();
            Ok(asked.ok().filter(ExitStatus::success))
        })?;
        if listens.is_none() {
            bail!("postgres did not listen within {} s", START.as_secs());
        }
        Ok(())
    }

    /// The command for one of the cluster's programs, set up to find the server.
    pub(super) fn command(&self, program: &str) -> Command {
        let path = self.programs.join(program);
        command_as(self.user.as_ref(), &path, self.folder.path())
    }

    pub(super) fn query(&self, query: &str) -> BenchResult<String> {
        let mut psql = self.command("psql");
        psql.args(["-X", "-q", "-A", "-t", "-c", query]);
        run(psql)
    }
}

pub(super) fn run(mut command: Command) -> BenchResult<String> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = command_output(&mut command)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    bail!(
        "{} ended with {}: {}",
        command.get_program().to_string_lossy(),
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    )
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

fn unprivileged_user() -> BenchResult<Option<User>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let found = User::from_name(USER).ok().flatten();
    let missing = || impossible!("PostgreSQL refuses root, and there is no user {USER} to run it");
    found.map(Some).ok_or_else(missing)
}
