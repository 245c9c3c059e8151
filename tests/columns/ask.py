"""Runs SQL in the folder that contains flows/: ask.py duckdb|clickhouse. Reads a JSON list of statements, writes a JSON list of row lists."""
import datetime
import decimal
import json
import sys


def plain(value):
    if isinstance(value, (datetime.datetime, datetime.date)):
        return str(value)[:19]
    return float(value) if isinstance(value, decimal.Decimal) else value


def duckdb_rows(statements):
    import duckdb

    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    for statement in statements:
        yield [[plain(value) for value in row] for row in connection.execute(statement).fetchall()]


def clickhouse_rows(statements):
    from chdb import session

    here = session.Session()
    for statement in statements:
        text = here.query(statement, "JSONCompactEachRowWithNames").bytes().decode()
        yield [json.loads(line) for line in text.splitlines()[1:]]


ask = {"duckdb": duckdb_rows, "clickhouse": clickhouse_rows}[sys.argv[1]]
json.dump(list(ask(json.load(sys.stdin))), sys.stdout)
