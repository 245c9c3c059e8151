"""Reads CSV with Python's csv module and prints sums: csv_sums.py FILE."""

import csv
import datetime
import gzip
import json
import sys

path = sys.argv[1]
with gzip.open(path, "rt", newline="") if path.endswith(".gz") else open(path, newline="") as lines:
    rows = list(csv.DictReader(lines))
assert all(None not in row and None not in row.values() for row in rows), "lines have other columns than the first one"
for row in rows:
    # Python's datetime has a resolution of microseconds.
    datetime.datetime.fromisoformat(row["first_time"][:26] + "+00:00")
    assert row["first_time"].endswith("Z") and len(row["first_time"]) == 30
    json.loads(row["orig_mpls_labels"] or "[]")
number = lambda name: sum(int(row[name]) for row in rows)
print(json.dumps({
    "records": len(rows),
    "packets": number("orig_packets") + number("resp_packets"),
    "bytes": number("orig_packet_bytes") + number("resp_packet_bytes"),
    "one_way": sum(row["quality_one_way"] == "true" for row in rows),
    "states": sorted(set(row["tcp_state"] for row in rows)),
    "columns": list(rows[0]),
}))
