"""Joins and aggregations over a table in memory: DuckDB, single-threaded. An operation is the scan of a row."""

import console
import duckdb

ROW_BYTES = 24
ROWS_PER_KEY = 16
SLICES = 16


def program(console, mib):
    rows = (mib << 20) // ROW_BYTES
    keys = max(1, rows // ROWS_PER_KEY)
    database = duckdb.connect(":memory:", config={"threads": 1})
    database.execute(
        f"CREATE TABLE fact AS SELECT i AS id, (hash(i) % {keys})::BIGINT AS key, (i % 1000)::DOUBLE AS value "
        f"FROM range({rows}) numbers(i)"
    )
    database.execute(
        f"CREATE TABLE dimension AS SELECT i AS id, (i % 97)::DOUBLE AS weight FROM range({keys}) numbers(i)"
    )
    console.ready()
    size = rows // SLICES
    while True:
        for first in range(0, size * SLICES, size):
            part = f"id >= {first} AND id < {first + size}"
            joined = database.execute(
                f"SELECT count(*), sum(value * weight) FROM (SELECT * FROM fact WHERE {part}) f "
                "JOIN dimension d ON f.key = d.id"
            ).fetchone()
            if joined[0] != size:
                raise ArithmeticError(f"{joined[0]} of {size} rows joined")
            database.execute(
                f"SELECT max(total) FROM (SELECT key, sum(value) AS total FROM fact WHERE {part} GROUP BY key)"
            ).fetchone()
            console.worked(2 * size)


console.run(program)
