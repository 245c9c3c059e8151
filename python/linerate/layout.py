"""Layout of shared memory: offsets and sizes of docs/block-ring.md."""

import struct
from typing import NamedTuple

MAJOR = 1
BYTE_ORDER = 0x01020304
PAGE = 4096
HUGE = 2 << 20
SLOTS = (4, 1 << 16)
SLOT_BYTES = (512 << 10, 64 << 20)
MOST_INTERFACES = 1024
MAX_FRAME = 262_144
RECORD_HEADER = 16
TAIL = 64

# Offsets in the arena.
ARENA = {
    "byte_order": 8, "major": 12, "interface_offset": 24, "interface_bytes": 28, "interface_room": 32, "slots": 36,
    "slots_offset": 40, "slot_bytes": 48, "arena_bytes": 56, "frames": 64, "body": 68, "generation": 80, "writer": 96,
    "heartbeat": 256, "horizon": 264, "drops": 272, "state": 280, "interfaces": 284,
}
ENDED = 2
INTERFACE = struct.Struct("=5I12x96s384s")

# Offsets in a block.
BLOCK_FIRST_INDEX = 24
BLOCK_COMMITTED = 64
BLOCK_CLOSED = 108
BLOCK_HEADER = 128

# Offsets in the control memory.
CONTROL_GENERATION = 16
CONTROL_CAPACITY = 24
CONTROL_PUBLISHED_OFFSET = 28
CONTROL_RETURNED_OFFSET = 32
CONTROL_PUBLISHED = 128
CONTROL_SKIPPED = 136
CONTROL_MODE = 152
CONTROL_STATUS = 156
CONTROL_RETURNED = 256
CONTROL_SLEEPING = 384
CONTROL_HEADER = 512
LOSSLESS = 1
EVICTED = 1

# Messages of the handshake.
HELLO = struct.Struct("=4s6I4x96s")
WELCOME = struct.Struct("=4s5I3QI12x448s")

# Descriptor of a frame: time, offset, captured, wire, interface, flags, l3, l4, note, hash.
DESC = struct.Struct("=QIIIHHBBHI")
DESC_FIELDS = [
    ("time", "u8"), ("offset", "u4"), ("captured", "u4"), ("wire", "u4"), ("interface", "u2"), ("flags", "u2"),
    ("l3", "u1"), ("l4", "u1"), ("note", "u2"), ("hash", "u4"),
]

#: Value of `l3` and `l4` of a desc: unknown.
NO_LAYER = 255

#: Bits of `flags` of a desc.
FLAGS = {
    "vlan_restored": 1 << 0,
    "checksum_partial": 1 << 1,
    "checksum_valid": 1 << 2,
    "super_frame": 1 << 3,
    "late": 1 << 4,
    "losing": 1 << 5,
    "outgoing": 1 << 6,
    "joined": 1 << 7,
    "sliced": 1 << 8,
    "damaged": 1 << 9,
    "fcs_2": 1 << 10,
    "fcs_4": 1 << 11,
    "incoming": 1 << 12,
    "fcs_cut": 1 << 13,
}

#: Sources of time stamps, by `stamp` of an interface.
STAMPS = ("network card", "kernel", "XDP program", "writer", "file")


class Desc(NamedTuple):
    """Descriptor of a frame, used without NumPy; `desc["time"]` works as with NumPy."""

    time: int  #: UTC nanoseconds
    offset: int  #: offset of the first byte in the block
    captured: int  #: captured bytes
    wire: int  #: bytes on the wire, without FCS
    interface: int  #: index in `Ring.interfaces`
    flags: int  #: sum of `FLAGS`
    l3: int  #: offset of the network header, or `NO_LAYER`
    l4: int  #: offset of the transport header, or `NO_LAYER`
    note: int
    hash: int  #: flow hash, the same for both directions; 0: none

    def __getitem__(self, key):
        return getattr(self, key) if isinstance(key, str) else tuple.__getitem__(self, key)


class Interface(NamedTuple):
    """Interface on which frames were captured."""

    name: str  #: empty if the file has none
    description: str
    link: int  #: LINKTYPE_* of tcpdump.org
    stamp: int  #: index in `STAMPS`
    snap: int  #: longest captured length; 0: no limit
