"""Drives daq_linerate.so as libdaq 3 does; knows only the offsets of its structures.

    host.py MODULE INPUT MODE ACTION [key=value ...]

Prints a line of JSON. Keys: pool, batch, timeout, snaplen, instance, instances, filter, write (pcap file of received messages), ready (file
that is created after the start), scribble (overwrite each message after reading it), hold (maximum number of held messages), leaves (number of
the instance that leaves), second (input of the second instance), and var.NAME for variables of the module.
"""
import ctypes
import json
import signal
import struct
import sys
import threading
import time
from ctypes import CFUNCTYPE, c_char_p, c_int, c_size_t, c_uint, c_void_p, string_at

OK, TIMEOUT, END, INTERRUPTED, NO_ROOM, ERROR = 0, 2, 3, 4, 5, 6
MODES = {"passive": 1, "inline": 2, "read-file": 3}
# Offsets in the module's table.
AT = {"load": 32, "unload": 40, "variables": 48, "instantiate": 56, "destroy": 64, "set_filter": 72, "start": 80, "inject": 88,
      "inject_relative": 96, "interrupt": 104, "stop": 112, "ioctl": 120, "get_stats": 128, "reset_stats": 136, "get_snaplen": 144,
      "get_capabilities": 152, "get_datalink_type": 160, "config_load": 168, "config_swap": 176, "config_free": 184,
      "receive": 192, "finalize": 200, "pool": 208}
STATS = ["hw_received", "hw_dropped", "received", "filtered", "injected", "outstanding"]


def option(name, default):
    return type(default)(options.get(name, default))


class Host:
    """One instance of the module."""

    def __init__(self, total=None, number=None, of=None):
        self.table = ctypes.addressof(ctypes.c_char.in_dll(library, "DAQ_MODULE_DATA"))
        self.why = ""
        self.variables = [(key[4:], value) for key, value in options.items() if key.startswith("var.")]
        self.next = 0
        self.source = ctypes.create_string_buffer((of or source).encode())
        self.keep = []  # keeps objects alive that C points to
        total = option("instances", 0) if total is None else total
        number = option("instance", 0) if number is None else number
        self.base = struct.pack("=II12Q", 0x00030002, 104, self.give(c_void_p, lambda _: ctypes.addressof(self.source)),
                                self.give(c_int, lambda _: option("snaplen", 65535)),
                                self.give(c_uint, lambda _: option("timeout", 1000)),
                                self.give(c_uint, lambda _: option("pool", 256)), self.give(c_uint, lambda _: total),
                                self.give(c_uint, lambda _: number), self.give(c_int, lambda _: MODES[mode]), 0,
                                self.give(c_int, lambda _, key, value: self.variable(0, key, value), c_void_p, c_void_p),
                                self.give(c_int, lambda _, key, value: self.variable(self.next, key, value), c_void_p, c_void_p),
                                0, self.give(None, self.fails, c_char_p, c_void_p))
        self.base = ctypes.create_string_buffer(self.base, 104)

    def give(self, result, function, *arguments):
        self.keep.append(CFUNCTYPE(result, c_void_p, *arguments)(function))
        return ctypes.cast(self.keep[-1], c_void_p).value

    def variable(self, at, key, value):
        texts = [text.encode() for text in self.variables[at]] if at < len(self.variables) else [None, None]
        self.keep.append(texts)
        for place, text in zip((key, value), texts):
            c_char_p.from_address(place).value = text
        self.next = at + 1
        return 0

    def fails(self, _, text, first):
        # The module passes at most one string after the format.
        self.why = text.decode().replace("%s", string_at(first).decode() if b"%s" in text else "")

    def call(self, name, *arguments, result=c_int):
        function = struct.unpack("=Q", string_at(self.table + AT[name], 8))[0]
        return CFUNCTYPE(result, *[type(one) for one in arguments])(function)(*arguments)

    def start(self):
        handle = c_void_p()
        assert self.call("load", ctypes.cast(self.base, c_void_p)) == 0
        made = self.call("instantiate", c_void_p(1), c_void_p(2), ctypes.pointer(handle))
        if made != 0:
            return made
        self.handle = handle
        if "filter" in options:
            made = self.call("set_filter", handle, c_char_p(options["filter"].encode()))
        return made or self.call("start", handle)

    def end(self):
        self.call("stop", self.handle)
        self.call("destroy", self.handle, result=None)
        self.call("unload")

    def receive(self, most):
        messages, status = (c_void_p * max(most, 1))(), ctypes.c_int(-1)
        got = self.call("receive", self.handle, c_uint(most), messages, ctypes.pointer(status), result=c_uint)
        return status.value, list(messages[:got])

    def finalize(self, message, verdict=0):
        return self.call("finalize", self.handle, c_void_p(message), c_int(verdict))

    def inject(self, message, data, reverse):
        return self.call("inject_relative", self.handle, c_void_p(message), c_char_p(data), ctypes.c_uint32(len(data)),
                         c_int(reverse))

    def reason(self, message, number):
        argument = ctypes.create_string_buffer(struct.pack("=QB7x", message, number), 16)
        return self.call("ioctl", self.handle, c_int(7), ctypes.cast(argument, c_void_p), c_size_t(16))

    def stats(self):
        into = ctypes.create_string_buffer(96)
        assert self.call("get_stats", self.handle, into) == 0
        numbers = struct.unpack("=12Q", into.raw)
        return {**dict(zip(STATS, numbers)), "verdicts": numbers[6:]}

    def pool(self):
        into = ctypes.create_string_buffer(16)
        assert self.call("pool", self.handle, into) == 0
        return struct.unpack("=IIQ", into.raw)[:2]


def look(message):
    """Returns seconds, microseconds, wire length, ingress and egress index, flags and bytes of a message."""
    header, data = struct.unpack("=QQ", string_at(message, 16))
    owner, _, header_bytes, kind, length = struct.unpack("=QQQII", string_at(message + 80, 32))
    assert (owner, header_bytes, kind) == (2, 56, 1)
    seconds, micros, wire, ingress, egress = struct.unpack("=qqIii", string_at(header, 28))
    return seconds, micros, wire, ingress, egress, struct.unpack("=I", string_at(header + 40, 4))[0], string_at(data, length)


def scribble(message):
    """Overwrites the header and the data of a message with garbage."""
    header, data = struct.unpack("=QQ", string_at(message, 16))
    ctypes.memset(data, 0xEE, struct.unpack("=I", string_at(message + 108, 4))[0])
    ctypes.memset(header, 0xEE, 56)


def read():
    """Receives all messages and writes them to a file."""
    statuses, links, out = {}, host.call("get_datalink_type", host.handle), open(option("write", "/dev/null"), "wb")
    out.write(struct.pack("=IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, links))
    flags, ingresses = set(), set()
    while True:
        status, messages = host.receive(option("batch", 64))
        statuses[status] = statuses.get(status, 0) + 1
        for message in messages:
            seconds, micros, wire, ingress, _, flag, data = look(message)
            out.write(struct.pack("=IIII", seconds, micros, len(data), wire) + data)
            flags.add(flag)
            ingresses.add(ingress)
            if "scribble" in options:
                scribble(message)
        for message in reversed(messages):
            assert host.finalize(message) == 0
        if status in (END, ERROR, NO_ROOM):
            break
    size, available = host.pool()
    return {"statuses": statuses, "stats": host.stats(), "link": links, "flags": sorted(flags), "ingress": sorted(ingresses),
            "why": host.why, "pool": size, "available": available, "capabilities": host.call("get_capabilities", host.handle)}


def hold():
    """Holds 192 of 256 messages, then all; finalizes them in reverse order. Returns the sequence numbers in the frames."""
    def take(most):
        status, messages = host.receive(most)
        return status, messages, [struct.unpack(">I", look(one)[6][42:46])[0] for one in messages]
    kept, numbers = [], []
    while len(kept) < 192:
        status, messages, some = take(min(64, 192 - len(kept)))
        kept, numbers = kept + messages, numbers + some
    available = host.pool()[1]
    status, more, some = take(64)
    numbers += some
    for message in more:
        host.finalize(message)
    while host.pool()[1] > 0:
        _, messages, some = take(1000)
        kept, numbers = kept + messages, numbers + some
    outstanding = host.stats()["outstanding"]
    none = [host.receive(most)[0] for most in (1, 1000)]
    begun = time.monotonic()
    zero = host.receive(0)
    waited = time.monotonic() - begun
    twice = host.finalize(kept[-1]), host.finalize(kept[-1]), host.finalize(kept[-1] + 8), host.finalize(1)
    for message in kept[-2::-1]:
        assert host.finalize(message) == 0
    while status != END:
        status, messages, some = take(64)
        numbers += some
        for message in messages:
            host.finalize(message)
    return {"numbers": numbers, "available": available, "more": len(more), "none": none, "zero": zero[0], "waited": waited,
            "twice": twice, "outstanding": outstanding, "pool": host.pool(), "stats": host.stats()}


def wait():
    """Receives without input: measures timeouts, and interruptions from another thread."""
    took = []
    for most in (64, 0):
        begun = time.monotonic()
        took.append([host.receive(most)[0], time.monotonic() - begun])
    options["timeout"] = "0"
    host.end()
    assert host.start() == 0
    for most in (64, 64, 0):
        threading.Timer(0.2, lambda: host.call("interrupt", host.handle)).start()
        begun = time.monotonic()
        status = host.receive(most)[0]
        while most == 0 and status == TIMEOUT:
            status = host.receive(most)[0]
        took.append([status, time.monotonic() - begun])
    host.call("interrupt", host.handle)
    took.append([host.receive(64)[0], 0])
    return {"took": took}


def decide(host=None):
    """Decides by the destination UDP port of each frame (see tests/inline/daq.rs), until the ring ends."""
    host = host or globals()["host"]
    held, counts, status, ways, ends = [], {}, OK, set(), set()
    while status not in (END, ERROR, NO_ROOM):
        status, messages = host.receive(option("batch", 64))
        for message in messages:
            *_, ingress, egress, _, data = look(message)
            ways.add((ingress, egress))
            port = struct.unpack(">H", data[36:38])[0]
            counts[port] = counts.get(port, 0) + 1
            ends.add(data[26:38].hex())
            if port == 12:
                place = struct.unpack("=Q", string_at(message + 8, 8))[0]
                ctypes.memset(place + len(data) - 1, 0x5A, 1)
                host.finalize(message, 2)
                continue
            if port in (16, 17):
                injected = host.inject(message, data[:-1] + (b"\xaa" if port == 16 else b"\xbb"), port - 16)
                # If another instance leaves, the ring may already have ended.
                assert injected == 0 or "leaves" in options
            scribble(message)
            if port == 11:
                assert (host.reason(message, 5), host.reason(message + 8, 5)) == (0, -7)
            if port == 18:
                held.append(message)
                continue
            host.finalize(message, {11: 1, 13: 3, 14: 4, 15: 5, 16: 1, 19: 77}.get(port, 0))
        if len(held) > option("hold", 100) or (held and status == TIMEOUT):
            for message in reversed(held):
                host.finalize(message)
            held = []
    return {"counts": counts, "directions": sorted(ways), "ends": sorted(ends), "stats": host.stats(), "why": host.why, "status": status,
            "capabilities": host.call("get_capabilities", host.handle)}


def share():
    """Runs several instances in one process, each in a thread. All decide; the instance `leaves` stops while it holds frames."""
    others = [host] + [Host(number=number) for number in range(2, option("instances", 2) + 1)]
    for other in others[1:]:
        assert other.start() == 0, other.why
    open(option("ready", "/dev/null"), "w").write("attached")
    results = [None] * len(others)

    def run(at):
        results[at] = decide(others[at]) if at + 1 != option("leaves", 0) else leave(others[at])
    threads = [threading.Thread(target=run, args=(at,)) for at in range(len(others))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for other in others[1:]:
        other.call("stop", other.handle)
        other.call("destroy", other.handle, result=None)
    return {"instances": results}


def second():
    """Starts another instance with another input."""
    other = Host(number=2, of=option("second", ""))
    begun = other.start()
    other.call("destroy", other.handle, result=None)
    return {"failed": begun, "why": other.why}


def leave(host):
    """Receives a message, and stops without finalizing it."""
    messages = []
    while not messages:
        messages = host.receive(1)[1]
    host.call("stop", host.handle)
    return {"left": len(messages)}


def layout():
    """Returns the description that the module exports."""
    table = string_at(host.table, 216)
    version, size, own = struct.unpack("=3I", table[:12])
    functions = {name: struct.unpack("=Q", table[at:at + 8])[0] != 0 for name, at in AT.items()}
    into = c_void_p()
    count = host.call("variables", ctypes.pointer(into))
    rows = [struct.unpack("=QQI4x", string_at(into.value + 24 * at, 24)) for at in range(count)]
    wrong = []
    for place, value in ((0, 0x00030001), (4, 96)):
        base = bytearray(host.base.raw)
        struct.pack_into("=I", base, place, value)
        wrong.append(host.call("load", ctypes.cast(ctypes.create_string_buffer(bytes(base), 104), c_void_p)))
    return {"version": version, "size": size, "own": own, "name": string_at(struct.unpack("=Q", table[16:24])[0]).decode(),
            "type": struct.unpack("=I", table[24:28])[0], "functions": functions, "wrong": wrong,
            "variables": {string_at(name).decode(): flags for name, _, flags in rows}}


module, source, mode, action, *rest = sys.argv[1:]
# A module that hangs fails the test.
signal.alarm(300)
options = dict(one.split("=", 1) for one in rest)
library = ctypes.CDLL(module)
host = Host()
if action != "layout":
    begun = host.start()
    if begun != 0:
        print(json.dumps({"failed": begun, "why": host.why}))
        sys.exit()
    if action != "share":
        open(option("ready", "/dev/null"), "w").write("attached")
result = {"layout": layout, "read": read, "hold": hold, "wait": wait, "decide": decide, "share": share, "second": second}[action]()
if action != "layout":
    host.end()
print(json.dumps(result))
