"""Attaches to a ring: connects, exchanges messages, maps the two memories and checks that they fit together.

The writer is not trusted: everything it sends is checked against the limits of version 1.
"""

import array
import fcntl
import mmap
import os
import socket
import struct
import sys
import time

from . import layout
from .layout import ARENA

PATIENCE_S = 5.0
F_GET_SEALS = 1034
F_SEAL_SHRINK = 0x0002
F_SEAL_WRITE = 0x0008
F_SEAL_FUTURE_WRITE = 0x0010


class RingError(OSError):
    """Attaching to a ring failed, or the ring ended abnormally."""


class Absent(RingError):
    """No writer shares a ring of this name."""


def connect(name, trust, verb="capture"):
    """Returns a socket connected to the writer of `name`, and True if the writer is neither root nor this user.

    `verb`: subcommand that shares such a ring, for the error message.
    """
    name = os.fspath(name)
    if not 1 <= len(os.fsencode(name)) <= 90:
        raise RingError(f"invalid ring name {name!r}; expected 1 to 90 bytes")
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        peer.settimeout(PATIENCE_S)
        try:
            knock(peer, name if "/" in name else "\0linerate/" + name)
        except (ConnectionRefusedError, FileNotFoundError):
            raise Absent(f"{name}: no writer shares it; start linerate {verb} --share first") from None
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        foreign = struct.unpack("3i", credentials)[1] not in (0, os.geteuid())
        if foreign and not trust:
            raise RingError("neither root nor this user shares it; pass trust=True to attach anyway")
        return peer, foreign
    except BaseException:
        peer.close()
        raise


def knock(peer, address):
    """Connects; retries while the accept queue of the writer is full."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return peer.connect(address)
        except BlockingIOError:
            if time.monotonic() > until:
                raise RingError(f"the writer does not accept connections within {PATIENCE_S:g} s") from None
            time.sleep(0.005)


def greet(peer, lossless, quota, reader, kind=0):
    """Sends the hello; returns the answer's generation and sizes, and the descriptors of arena and control memory."""
    named = reader.encode()[:96]
    hello = layout.HELLO.pack(b"LRHi", layout.MAJOR, 0, int(lossless), quota, len(named), kind, named)
    try:
        peer.send(hello)
    except (BrokenPipeError, ConnectionResetError):
        pass  # A writer may reject this reader before it reads the hello: its reason can still be received.
    for attempt in range(2):
        try:
            message, ancillary, flags, _ = peer.recvmsg(layout.WELCOME.size, socket.CMSG_SPACE(8 * 4))
            break
        except ConnectionResetError:
            if attempt:
                raise RingError("the writer closed the connection without an answer") from None
        except socket.timeout:
            raise RingError(f"the writer does not answer within {PATIENCE_S:g} s") from None
    fds = array.array("i")
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    try:
        torn = flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC)
        if torn or len(message) != layout.WELCOME.size or message[:4] != b"LRWe":
            raise RingError("peer is not a linerate ring: invalid answer")
        _, _, _, status, _, _, generation, arena, control, text_bytes, text = layout.WELCOME.unpack(message)
        if len(fds) != (2 if status == 0 else 0):
            raise RingError("peer is not a linerate ring: wrong number of file descriptors in its answer")
        if status != 0:
            raise RingError(printable(text[:text_bytes]) or f"rejected by the writer: status {status}")
        return generation, arena, control, list(fds)
    except BaseException:
        for fd in fds:
            os.close(fd)
        raise


def map_both(arena_bytes, control_bytes, fds, foreign, most=1 << 43):
    """Maps arena and control memory, and closes the descriptors."""
    try:
        if not 2 * layout.HUGE <= arena_bytes <= most or not layout.PAGE <= control_bytes <= 1 << 21:
            raise RingError("peer is not a linerate ring: its memory has invalid sizes")
        arena = map_one(fds[0], arena_bytes, mmap.PROT_READ, foreign)
        return arena, map_one(fds[1], control_bytes, mmap.PROT_READ | mmap.PROT_WRITE, foreign)
    finally:
        for fd in fds:
            os.close(fd)


def map_one(fd, size, protection, foreign):
    try:
        seals, there = fcntl.fcntl(fd, F_GET_SEALS), os.fstat(fd)
    except OSError:
        raise RingError("peer is not a linerate ring: its memory may be truncated while it is read") from None
    if not seals & F_SEAL_SHRINK:
        raise RingError("peer is not a linerate ring: its memory may be truncated while it is read")
    if there.st_size != size:
        raise RingError("peer is not a linerate ring: its memory has another size than announced")
    # In another user's memory, access to a missing huge page is SIGBUS, and filling a hole is charged to this process. Holes
    # in control memory are allowed: it is small.
    if foreign and os.fstatvfs(fd).f_bsize > mmap.PAGESIZE:
        raise RingError("it belongs to another user and is in reserved huge pages; share it with --share-small-pages")
    if foreign and protection == mmap.PROT_READ:
        if not seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE) or there.st_blocks * 512 < size:
            raise RingError("it belongs to another user, and its memory has holes or may get some")
    return mmap.mmap(fd, size, flags=mmap.MAP_SHARED, prot=protection)


def check(arena, control, generation):
    """Checks both memories; returns number of blocks, bytes, frames and body offset of a block, and entries per index ring."""
    def number(name, size=4):
        return int.from_bytes(arena[ARENA[name] : ARENA[name] + size], sys.byteorder)

    def fail(what):
        raise RingError(f"peer is not a linerate ring of version 1: {what}")

    if arena[:8] != b"LINERATE" or number("byte_order") != layout.BYTE_ORDER:
        fail("its memory does not begin with LINERATE and the byte order of this machine")
    if number("major") != layout.MAJOR:
        fail("it has another version of the format; this reader supports version 1")
    slots, size, frames, body = number("slots"), number("slot_bytes", 8), number("frames"), number("body")
    least, most = layout.SLOT_BYTES
    if not layout.SLOTS[0] <= slots <= layout.SLOTS[1] or not least <= size <= most or size & (size - 1):
        fail("its blocks have an invalid size or number")
    room = layout.BLOCK_HEADER + frames * layout.DESC.size
    if frames == 0 or body % layout.PAGE or room > body:
        fail("its blocks have no room for descs")
    if body + layout.RECORD_HEADER + layout.MAX_FRAME + layout.TAIL > size:
        fail("its blocks have no room for frames")
    whole = -(-(layout.HUGE + slots * size) // layout.HUGE) * layout.HUGE
    places = (number("slots_offset", 8), number("interface_offset"), number("interface_bytes"), len(arena))
    if places != (layout.HUGE, layout.PAGE, layout.INTERFACE.size, whole):
        fail("its memory has an unexpected layout")
    capacity = 1 << (slots - 1).bit_length()
    rings = -(-(layout.CONTROL_HEADER + 16 * capacity) // layout.PAGE) * layout.PAGE
    at = layout.CONTROL_GENERATION
    own, entries, published, returned = struct.unpack("=QIII", control[at : at + 20])
    if len(control) != rings or (entries, published) != (capacity, 512) or returned != 512 + 8 * capacity:
        fail("its control memory does not fit its arena")
    if not generation == own == number("generation", 8):
        fail("it sent the memory of another ring")
    return slots, size, frames, body, capacity


def printable(text):
    """Decodes text of the peer and replaces unprintable characters."""
    return "".join(char if char.isprintable() else "?" for char in text.decode("utf-8", "replace"))
