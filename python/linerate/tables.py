"""Reads capture files as frames, and returns tables of frames and flow records for pandas, polars or Arrow."""

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

#: Seconds that the writer waits for this reader: long enough for interactive use.
PATIENCE_S = 100_000
START_S = 20
TEMPORARY = "linerate-python-"


class Capture(Ring):
    """Frames of a capture file: a ring whose writer is a child process, started and ended with this object."""

    def __init__(self, file, *words, program="linerate"):
        path = shutil.which(program)
        if path is None:
            raise ImportError(f"program {program!r} not found on the PATH; install linerate (docs/guide/install.md), "
                              "or pass its path: program=...")
        self._folder = tempfile.TemporaryDirectory(prefix=TEMPORARY)
        socket = os.path.join(self._folder.name, "ring")
        self._errors = open(os.path.join(self._folder.name, "errors"), "w+")
        # With sudo the program would drop privileges to the sudo user, who cannot create a socket in root's folder.
        words = (*(["-Z", "root"] if os.geteuid() == 0 else []), *words)
        command = [path, "capture", "-q", "-r", os.fspath(file), "--share", socket, "--share-wait", "1",
                   "--lossless-readers", "--share-timeout", str(PATIENCE_S), *words]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._errors)
        try:
            self._attach(socket)
        except BaseException:
            self._finish()
            raise

    def close(self):
        """Detaches, and ends the child process."""
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
                # The socket may exist before the program listens on it.
                if self._process.poll() is not None:
                    raise RingError(self._said() or "linerate ended before it shared the file") from None
                if time.monotonic() > until:
                    raise RingError(f"linerate did not share the file within {START_S} s") from None
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
    """Returns a `Ring` of the frames of a capture file (pcap or pcapng, also compressed).

    The program linerate reads the file and shares its frames in memory. `filter`: a tcpdump filter expression.
    """
    return Capture(file, *([filter] if filter else []), program=program)


def frames(source, filter=None, *, engine=None, program="linerate"):
    """Returns a table with a row per frame of a capture file, or of a `Ring` until its end. Columns: time (UTC), interface,
    captured and wire bytes, l3, l4, flow hash, and a boolean per flag.

    `engine`: "pandas", "polars" or "arrow" [default: the first one installed].
    """
    numpy = need("numpy", "frames")
    name, library = choose(engine, "frames")
    ring = source if isinstance(source, Ring) else capture(source, filter, program=program)
    if filter and ring is source:
        raise ValueError("filter applies only to files; set a filter in the program that shares the ring")
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
    """Returns a table of the Parquet flow records written by `linerate flows --write FOLDER/` (or to a .parquet file). For
    a folder, columns date and hour are added. `columns`: names of the columns to read. `engine`: see `frames`."""
    path = os.fspath(path)
    if not os.path.exists(path):
        raise FileNotFoundError(f"{path}: no flow records found; write some with linerate flows --write FOLDER/")
    name, library = choose(engine, "flows")
    if name == "polars":
        pattern = os.path.join(path, "**", "*.parquet") if os.path.isdir(path) else path
        scan = library.scan_parquet(pattern, hive_partitioning=os.path.isdir(path), try_parse_hive_dates=True)
        return (scan.select(columns) if columns else scan).collect()
    dataset, arrow = need("pyarrow.dataset", "flows"), need("pyarrow", "flows")
    folders = dataset.partitioning(arrow.schema([("date", arrow.date32()), ("hour", arrow.int64())]), flavor="hive")
    table = dataset.dataset(path, format="parquet", partitioning=folders).to_table(columns=columns)
    return table if name == "arrow" else table.to_pandas()


#: Modules of each engine: the table library first, then its requirements.
ENGINES = {"pandas": ("pandas", "pyarrow"), "polars": ("polars",), "arrow": ("pyarrow",)}


def choose(engine, what):
    """Returns the name and module of an engine."""
    if engine is not None:
        if engine not in ENGINES:
            raise ValueError(f"unknown engine {engine!r}; expected one of {', '.join(ENGINES)}")
        return engine, [need(module, what) for module in ENGINES[engine]][0]
    for name, modules in ENGINES.items():
        try:
            return name, [importlib.import_module(module) for module in modules][0]
        except ImportError:
            continue
    raise ImportError(f"linerate.{what} needs pandas, polars or Arrow, and none is installed; run "
                      "pip install pandas pyarrow, or pip install polars")


def need(module, what):
    """Returns a module, or raises an error with the command that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        raise ImportError(f"linerate.{what} needs {package}; run pip install {package}") from error
