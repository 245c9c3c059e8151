"""Inserts the batches of a spool into ClickHouse tables of the guide, each three times with one deduplication token; also reads them with DuckDB."""

import glob
import json
import sys

import chdb.session
import duckdb

spool, tables = sys.argv[1:]
batches = sorted(glob.glob(spool + "/*/*.parquet"))
session = chdb.session.Session()
session.query("CREATE DATABASE net")
session.query("USE net")
for statement in tables.split(";"):
    # Adapts the tables to one node without a keeper, and to old traffic (no TTL).
    for here, there in [
        ("Replicated", ""),
        (" ON CLUSTER fleet", ""),
        (", replicated_deduplication_window_seconds = 604800", ""),
        (" replicated_deduplication_window = ", " non_replicated_deduplication_window = "),
    ]:
        statement = statement.replace(here, there)
    statement = "\n".join(line.split("--")[0] for line in statement.splitlines() if not line.startswith("TTL "))
    if statement.strip() and "Distributed" not in statement and "Kafka" not in statement:
        session.query(statement)
for number, batch in enumerate(batches * 3):
    token = batch.rsplit("/", 1)[1]
    session.query(
        f"INSERT INTO flows_local FROM INFILE '{batch}' SETTINGS insert_deduplication_token = '{token}', async_insert = 0 FORMAT Parquet"
    )
sums = "count(), sum(orig_packets + resp_packets), sum(orig_frame_bytes + resp_frame_bytes), sum(flows)"
in_clickhouse = json.loads(str(session.query(f"SELECT {sums} FROM flows_local", "JSONCompactEachRow")))
rolled = json.loads(str(session.query("SELECT sum(packets), sum(bytes), sum(flows) FROM flows_1m", "JSONCompactEachRow")))
missing = str(session.query("SELECT max(batch) + 1 - count(DISTINCT batch) FROM flows_local GROUP BY sensor, run", "TSV")).split()
in_duckdb = list(duckdb.sql(f"SELECT {sums} FROM read_parquet({batches})").fetchall()[0])
once = [int(number) for number in rolled] == [int(number) for number in in_clickhouse[1:]] and set(missing) == {"0"}
print(json.dumps({"duckdb": [int(number) for number in in_duckdb], "clickhouse": [int(number) for number in in_clickhouse], "once": once}))
