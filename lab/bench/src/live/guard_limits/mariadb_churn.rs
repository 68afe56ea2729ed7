//! Tables of MariaDB that are filled, mostly emptied, and filled again by several connections,
//! which also sort them.

use super::churn_load::{ChurnLoad, CommandWrapper, DELETED_PERCENT, WorkClock};
use crate::live::prelude::*;
use crate::live::programs::{
    MARIADB_SERVER, copy_mariadb_files, install_mariadb_files, run_mariadb_query,
    start_mariadb_server,
};
use nix::sys::signal::Signal;
use tempfile::TempDir;

/// Connections at a time; each has a table.
const CONNECTIONS: u64 = 4;
/// Sizes of the rows, stored in turn.
pub(super) const ROW_BYTES: [u64; 2] = [1000, 7000];
/// Without the page cache. Its size says nothing about huge pages.
const UNBUFFERED: &str = "--innodb-flush-method=O_DIRECT";

/// The files of a server without data, to be copied for each run.
pub(super) struct MariaDbChurn {
    files: TempDir,
}

impl MariaDbChurn {
    pub(super) fn prepare() -> BenchResult<Self> {
        Ok(Self { files: install_mariadb_files()? })
    }

    /// See [`PreparedService::run_load`](super::churn_service::PreparedService::run_load).
    pub(super) fn run_load(
        &self,
        load: &ChurnLoad,
        within: CommandWrapper<'_>,
    ) -> BenchResult<f64> {
        let folder = copy_mariadb_files(&self.files)?;
        let command = within(&Command::new(MARIADB_SERVER));
        // The tables fill three quarters of the pool.
        let server = start_mariadb_server(command, folder.path(), load.mib, &[UNBUFFERED])?;
        let done = carry_load_out(folder.path(), load);
        // Its files are not needed any more.
        let _ = server.send_signal(Signal::SIGKILL);
        done
    }
}

fn carry_load_out(folder: &Path, load: &ChurnLoad) -> BenchResult<f64> {
    let all_bytes = (load.mib << 20) * 3 / 4 / CONNECTIONS;
    let rows = |bytes: u64, size: u64| (bytes / size).max(1);
    let run = |query: &dyn Fn(u64) -> String| run_in_each_connection(folder, query);
    let insert = |size: u64, rows: u64| {
        run(&|table| {
            format!("INSERT INTO t{table} (v) SELECT REPEAT('c', {size}) FROM seq_1_to_{rows}")
        })
    };
    let sort = || {
        run(&|table| {
            format!(
                "SET sort_buffer_size = 16777216, tmp_table_size = 67108864, \
                 max_heap_table_size = 67108864; SELECT MAX(x) FROM \
                 (SELECT MD5(id) x, LEFT(v, 100) y FROM t{table} ORDER BY x LIMIT 1000000) s"
            )
        })
    };
    run_mariadb_query(folder, "CREATE DATABASE churn")?;
    run(&|table| {
        format!(
            "CREATE TABLE t{table} (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, \
             v VARCHAR(8000) NOT NULL) ENGINE=InnoDB CHARACTER SET latin1"
        )
    })?;
    let [small, _] = ROW_BYTES;
    let mut in_table = rows(all_bytes / 2, small);
    insert(small, in_table)?;
    std::thread::sleep(load.settle);
    let mut clock = WorkClock::default();
    clock.time(CONNECTIONS * in_table, || insert(small, in_table))?;
    in_table *= 2;
    clock.time(CONNECTIONS * in_table, sort)?;
    for n in 0..load.deletions {
        let share = f64::from(DELETED_PERCENT) / 100.0;
        clock.time(CONNECTIONS * in_table, || {
            run(&|table| format!("DELETE FROM t{table} WHERE RAND({n}) < {share}"))
        })?;
        std::thread::sleep(load.pause);
        let size = ROW_BYTES[usize::from(n % 2 == 0)];
        let new = rows(all_bytes * u64::from(DELETED_PERCENT) / 100, size);
        clock.time(CONNECTIONS * new, || insert(size, new))?;
        in_table = in_table * u64::from(100 - DELETED_PERCENT) / 100 + new;
        clock.time(CONNECTIONS * in_table, sort)?;
    }
    Ok(clock.operations_per_s())
}

/// Runs a query in all connections at the same time; it depends on the number of the table.
fn run_in_each_connection(folder: &Path, query: &dyn Fn(u64) -> String) -> BenchResult<()> {
    std::thread::scope(|scope| {
        let sessions: Vec<_> = (0..CONNECTIONS)
            .map(|table| {
                let query = format!("USE churn; {}", query(table));
                scope.spawn(move || run_mariadb_query(folder, &query))
            })
            .collect();
        sessions.into_iter().try_for_each(|session| join_or_resume_panic(session).map(drop))
    })
}
