//! A separate database cluster in a temporary folder.

use crate::live::prelude::*;
use crate::live::programs::client_server_cores::{
    restrict_launched_server, restrict_server_command,
};
use crate::live::programs::running_process::{
    RunningProcess, redirect_streams_to_null, run_for_successful_stdout,
    signal_when_parent_thread_ends,
};
use crate::live::programs::{create_temporary_folder, debian_packages, program_launcher};
use nix::sys::signal::Signal;
use nix::unistd::{User, chown, geteuid};
use std::os::unix::process::CommandExt;
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

/// PostgreSQL's setting of the pages of its shared buffers.
#[derive(Clone, Copy)]
pub(super) struct BufferPages(&'static str);

impl BufferPages {
    /// Pages that can be promoted.
    pub(super) const BASE: Self = Self("huge_pages=off");
    /// Pages of the hugetlb pool; without enough of them the server does not start.
    pub(super) const HUGETLB: Self = Self("huge_pages=on");
}

/// A server and its data; stopped and deleted when dropped.
pub(in crate::live::programs) struct PostgresCluster {
    programs: PathBuf,
    /// The user that runs the server, because it refuses root.
    user: Option<User>,
    server: Option<RunningProcess>,
    folder: TempDir,
}

impl PostgresCluster {
    /// A cluster without a server yet.
    pub(super) fn new() -> BenchResult<Self> {
        debian_packages::install_program_if_missing("pg_ctlcluster", "postgresql")?;
        let missing = || impossible!("PostgreSQL is not installed in {VERSIONS}");
        let cluster = Self {
            programs: postgres_program_folder().ok_or_else(missing)?,
            user: postgres_user_if_root()?,
            server: None,
            folder: create_temporary_folder()?,
        };
        cluster.initialize_cluster()?;
        Ok(cluster)
    }

    /// Starts a server that writes the data and is not measured.
    pub(super) fn start_writing_server(&mut self, buffers_mib: u64) -> BenchResult<()> {
        let command = self.command("postgres");
        // At SIGQUIT the server ends its backends.
        self.start_server_process(command, Signal::SIGQUIT, buffers_mib, BufferPages::BASE)
    }

    /// Ends the server after it has written everything.
    pub(super) fn stop_server(&mut self) -> BenchResult<()> {
        if let Some(mut server) = self.server.take() {
            // A fast shutdown. Without it unlogged tables would be empty.
            let ended = server.send_signal(Signal::SIGINT).is_ok() && server.child.wait().is_ok();
            if !ended {
                bail!("postgres did not end at SIGINT");
            }
        }
        Ok(())
    }

    /// The first process of the server, if one runs.
    pub(super) fn server_pid(&self) -> Option<u32> {
        Some(self.server.as_ref()?.child.id())
    }

    /// Starts a server for measurements after the present one has written everything. A launcher
    /// needs root, so it is not the launcher that changes the user.
    pub(super) fn restart_for_measurement(
        &mut self,
        buffers_mib: u64,
        pages: BufferPages,
    ) -> BenchResult<()> {
        self.stop_server()?;
        let program = self.programs.join("postgres");
        let command = match &self.user {
            Some(user) => {
                let mut command = program_launcher::command_through_launcher("setpriv");
                command
                    .args(["--reuid", &user.uid.to_string()])
                    .args(["--regid", &user.gid.to_string(), "--clear-groups"])
                    .arg(program);
                command
            }
            None => program_launcher::command_through_launcher(program),
        };
        let command = with_cluster_environment(command, self.folder.path());
        self.start_server_process(
            command,
            program_launcher::end_signal(Signal::SIGQUIT),
            buffers_mib,
            pages,
        )?;
        if let Some(server) = &self.server {
            restrict_launched_server(server.child.id())?;
        }
        Ok(())
    }

    fn initialize_cluster(&self) -> BenchResult<()> {
        let folder = self.folder.path();
        if let Some(user) = &self.user {
            chown(folder, Some(user.uid), Some(user.gid))
                .map_err(LinuxError::wrap_errno("changing the owner of PostgreSQL's folder"))?;
        }
        let mut initdb = self.command("initdb");
        // No other user can reach its socket.
        initdb.args(["--auth=trust", "--no-sync", "--username", USER, "-D"]);
        initdb.arg(folder.join("data"));
        run_for_successful_stdout(initdb).map(drop)
    }

    fn start_server_process(
        &mut self,
        mut command: Command,
        ended_by: Signal,
        buffers_mib: u64,
        pages: BufferPages,
    ) -> BenchResult<()> {
        let folder = self.folder.path();
        command
            .arg("-D")
            .arg(folder.join("data"))
            .arg("-k")
            .arg(folder)
            .args(["-c", &format!("shared_buffers={}MB", buffers_mib.max(1))]);
        for setting in [
            "listen_addresses=",
            pages.0,
            // It keeps everything inside its folder.
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
            // Each backend maps what its client reads.
            "max_parallel_workers_per_gather=0",
        ] {
            command.args(["-c", setting]);
        }
        // At SIGQUIT the server ends its backends and leaves nothing behind in the kernel. A
        // launcher passes on SIGTERM, but not SIGQUIT.
        signal_when_parent_thread_ends(&mut command, ended_by);
        restrict_server_command(&mut command);
        let server = self.server.insert(RunningProcess::start(&mut command, ended_by)?);
        let program = self.programs.join("pg_isready");
        server.wait_until_listening("postgres", START, || {
            let asked = command_as_user(self.user.as_ref(), &program, folder).status();
            asked.is_ok_and(|status| status.success())
        })
    }

    /// The command for one of the cluster's programs, set up to find the server.
    pub(super) fn command(&self, program: &str) -> Command {
        let path = self.programs.join(program);
        command_as_user(self.user.as_ref(), &path, self.folder.path())
    }

    /// The place of a file that a program of the cluster writes.
    pub(super) fn path_in_folder(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    pub(super) fn run_query(&self, query: &str) -> BenchResult<String> {
        let mut psql = self.command("psql");
        psql.args(["-X", "-q", "-A", "-t", "-c", query]);
        run_for_successful_stdout(psql)
    }
}

fn command_as_user(user: Option<&User>, program: &Path, folder: &Path) -> Command {
    let mut command = Command::new(program);
    if let Some(user) = user {
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    }
    with_cluster_environment(command, folder)
}

fn with_cluster_environment(mut command: Command, folder: &Path) -> Command {
    command.current_dir(folder).env("PGHOST", folder).env("PGUSER", USER).env("PGDATABASE", USER);
    redirect_streams_to_null(&mut command);
    command
}

fn postgres_user_if_root() -> BenchResult<Option<User>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let found = User::from_name(USER).ok().flatten();
    let missing = || impossible!("PostgreSQL refuses root, and there is no user {USER} to run it");
    found.map(Some).ok_or_else(missing)
}
