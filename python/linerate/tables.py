"""Capture files as frames, and frames and flow records as tables of whatever library is installed."""

import importlib
import os
import shutil
import subprocess
import tempfile
import time
import warnings

from .handshake import Absent, RingError
from .layout import FLAGS
from .ring import Ring

#: Long enough for somebody who thinks between two bursts.
PATIENCE_S = 100_000
START_S = 20
TEMPORARY = "linerate-python-"


class Capture(Ring):
    """The frames of a capture file: a ring whose writer this process has started, and which ends with it."""

    def __init__(self, file, *words, program="linerate"):
        path = shutil.which(program)
        if path is None:
            raise ImportError(f"the program {program!r} is not on the PATH: install linerate (docs/guide/install.md), "
                              "or say where it is: program=...")
        self._folder = tempfile.TemporaryDirectory(prefix=TEMPORARY)
        socket = os.path.join(self._folder.name, "ring")
        self._errors = open(os.path.join(self._folder.name, "errors"), "w+")
        # Plain root would stay root too; with sudo the program could not make its socket in a folder of root's.
        words = (*(["-Z", "root"] if os.geteuid() == 0 else []), *words)
        command = [path, "capture", "-q", "-r", os.fspath(file), "--share", socket, "--share-wait", "1",
                   "--lossless-readers", "--share-patience", str(PATIENCE_S), *words]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._errors)
        try:
            self._attach(socket)
        except BaseException:
            self._finish()
            raise

    def close(self):
        """Leaves, and ends the program that was started."""
        super().close()
        self._finish()

    def __del__(self):
        if hasattr(self, "_process"):
            self._finish()

    def _attach(self, socket):
        until = time.monotonic() + START_S
        while True:
            try:
                return super().__init__(socket, lossless=True)
            except Absent:
                # The socket is there before anybody answers.
                if self._process.poll() is not None:
                    raise RingError(self._said() or "linerate ended at once") from None
                if time.monotonic() > until:
                    raise RingError("linerate does not begin to share") from None
                time.sleep(0.002)

    def _said(self):
        self._errors.seek(0)
        return self._errors.read().strip()

    def _raise_end(self):
        super()._raise_end()
        if self.ended != "ended" or self._errors.closed:
            return
        self._process.wait()
        said = self._said()
        self._finish()
        if self._process.returncode != 0:
            raise RingError(said or f"linerate failed: status {self._process.returncode}")
        if said:
            warnings.warn(said, stacklevel=3)

    def _finish(self):
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._errors.close()
        self._folder.cleanup()


def capture(file, filter=None, *, program="linerate"):
    """The frames of a capture file (pcap, pcapng, also compressed), a burst at a time, as `Ring` gives them.

    The program linerate reads the file, by `filter` in the words of tcpdump, and shares its frames in memory.
    """
    return Capture(file, *([filter] if filter else []), program=program)


def frames(source, filter=None, *, engine=None, program="linerate"):
    """A table with a row for each frame of a capture file, or of a `Ring` until its end: time (UTC), interface, captured
    and wire bytes, l3, l4, flow hash, and a column of true and false for each flag.

    `engine`: "pandas", "polars" or "arrow"; the first of them that is installed where it is not said.
    """
    numpy = need("numpy", "frames")
    name, library = choose(engine, "frames")
    ring = source if isinstance(source, Ring) else capture(source, filter, program=program)
    if filter and ring is source:
        raise ValueError("a filter is for files: what shares the ring has one of its own")
    with ring:
        from .ring import DESC_TYPE
        descs = numpy.concatenate([numpy.empty(0, DESC_TYPE), *(burst.descs for burst in ring)])
        names = numpy.array([interface.name for interface in ring.interfaces] or [""], dtype=object)
    columns = {"time": descs["time"].astype("datetime64[ns]"), "interface": names[descs["interface"]]}
    columns.update((name, descs[name].copy()) for name in ("captured", "wire", "l3", "l4", "hash"))
    columns.update((flag, descs["flags"] & bit != 0) for flag, bit in FLAGS.items())
    if name == "pandas":
        table = library.DataFrame(columns)
        table["time"] = table["time"].dt.tz_localize("UTC")
        return table
    if name == "polars":
        table = library.DataFrame(columns)
        return table.with_columns(library.col("time").dt.replace_time_zone("UTC"))
    table = library.table(columns)
    return table.set_column(0, "time", table["time"].cast(library.timestamp("ns", "UTC")))


def flows(path, *, columns=None, engine=None):
    """Flow records of Parquet that `linerate flows --write FOLDER/` (or a .parquet file) has written, as a table; of a
    folder with the columns date and hour. `columns`: a list of those wanted. `engine`: as of `frames`."""
    path = os.fspath(path)
    if not os.path.exists(path):
        raise FileNotFoundError(f"{path}: there are no flow records")
    name, library = choose(engine, "flows")
    if name == "polars":
        pattern = os.path.join(path, "**", "*.parquet") if os.path.isdir(path) else path
        scan = library.scan_parquet(pattern, hive_partitioning=os.path.isdir(path), try_parse_hive_dates=True)
        return (scan.select(columns) if columns else scan).collect()
    dataset, arrow = need("pyarrow.dataset", "flows"), need("pyarrow", "flows")
    folders = dataset.partitioning(arrow.schema([("date", arrow.date32()), ("hour", arrow.int64())]), flavor="hive")
    table = dataset.dataset(path, format="parquet", partitioning=folders).to_table(columns=columns)
    return table if name == "arrow" else table.to_pandas()


#: Which module is an engine, and what it needs beside itself.
ENGINES = {"pandas": ("pandas", "pyarrow"), "polars": ("polars",), "arrow": ("pyarrow",)}


def choose(engine, what):
    """The name and module of an engine."""
    if engine is not None:
        if engine not in ENGINES:
            raise ValueError(f"engine {engine!r}: one of {', '.join(ENGINES)}")
        return engine, [need(module, what) for module in ENGINES[engine]][0]
    for name, modules in ENGINES.items():
        try:
            return name, [importlib.import_module(module) for module in modules][0]
        except ImportError:
            continue
    raise ImportError(f"linerate.{what} makes a table of pandas, polars or Arrow, and none is installed: "
                      "pip install pandas pyarrow, or pip install polars")


def need(module, what):
    """A module, or what to do about it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        raise ImportError(f"linerate.{what} needs {package}: pip install {package}") from error
