"""Attaching: the socket, the messages, the two memories, and whether they fit together.

The writer is trusted for nothing: whatever it hands over is checked against the sizes that version 1 allows.
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
    """A ring cannot be attached to, or ended otherwise than in order."""


class Absent(RingError):
    """Nobody shares a ring of this name."""


def connect(name, trust):
    """A socket connected to whoever shares `name`, and whether that is neither root nor this user."""
    name = os.fspath(name)
    if not 1 <= len(os.fsencode(name)) <= 90:
        raise RingError(f"{name!r} is no name of a ring: 1 to 90 bytes")
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        peer.settimeout(PATIENCE_S)
        try:
            knock(peer, name if "/" in name else "\0linerate/" + name)
        except (ConnectionRefusedError, FileNotFoundError):
            raise Absent(f"{name}: nobody shares it") from None
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        foreign = struct.unpack("3i", credentials)[1] not in (0, os.geteuid())
        if foreign and not trust:
            raise RingError("neither root nor this user shares it; trust=True attaches all the same")
        return peer, foreign
    except BaseException:
        peer.close()
        raise


def knock(peer, address):
    """Connects; waits while others do so that there is no room."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return peer.connect(address)
        except BlockingIOError:
            if time.monotonic() > until:
                raise RingError("whoever shares it does not answer") from None
            time.sleep(0.005)


def greet(peer, lossless, quota, reader, kind=0):
    """Says hello; the answer, and the descriptors of arena and control memory."""
    named = reader.encode()[:96]
    hello = layout.HELLO.pack(b"LRHi", layout.MAJOR, 0, int(lossless), quota, len(named), kind, named)
    try:
        peer.send(hello)
    except (BrokenPipeError, ConnectionResetError):
        pass  # A writer that refuses need not wait for it: its words are there to be received.
    for attempt in range(2):
        try:
            message, ancillary, flags, _ = peer.recvmsg(layout.WELCOME.size, socket.CMSG_SPACE(8 * 4))
            break
        except ConnectionResetError:
            if attempt:
                raise RingError("whoever shares it hung up without a word") from None
        except socket.timeout:
            raise RingError("whoever shares it does not answer") from None
    fds = array.array("i")
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    try:
        torn = flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC)
        if torn or len(message) != layout.WELCOME.size or message[:4] != b"LRWe":
            raise RingError("what answers is no block ring")
        _, _, _, status, _, _, generation, arena, control, text_bytes, text = layout.WELCOME.unpack(message)
        if len(fds) != (2 if status == 0 else 0):
            raise RingError("what answers is no block ring: memory comes with a welcome, and only then")
        if status != 0:
            raise RingError(printable(text[:text_bytes]) or f"whoever shares it refuses: {status}")
        return generation, arena, control, list(fds)
    except BaseException:
        for fd in fds:
            os.close(fd)
        raise


def map_both(arena_bytes, control_bytes, fds, foreign, most=1 << 43):
    """Both memories, mapped."""
    try:
        if not 2 * layout.HUGE <= arena_bytes <= most or not layout.PAGE <= control_bytes <= 1 << 21:
            raise RingError("what answers is no block ring: it has sizes that no ring has")
        arena = map_one(fds[0], arena_bytes, mmap.PROT_READ, foreign)
        return arena, map_one(fds[1], control_bytes, mmap.PROT_READ | mmap.PROT_WRITE, foreign)
    finally:
        for fd in fds:
            os.close(fd)


def map_one(fd, size, protection, foreign):
    try:
        seals, there = fcntl.fcntl(fd, F_GET_SEALS), os.fstat(fd)
    except OSError:
        raise RingError("what answers is no block ring: its memory may be cut while it is read") from None
    if not seals & F_SEAL_SHRINK:
        raise RingError("what answers is no block ring: its memory may be cut while it is read")
    if there.st_size != size:
        raise RingError("what answers is no block ring: its memory has another size than it says")
    # Of another user's memory a huge page that is missing is SIGBUS, and a hole this process's memory: control memory is small.
    if foreign and os.fstatvfs(fd).f_bsize > mmap.PAGESIZE:
        raise RingError("it is another user's and in reserved huge pages, which can be taken away: share it with --share-small-pages")
    if foreign and protection == mmap.PROT_READ:
        if not seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE) or there.st_blocks * 512 < size:
            raise RingError("it is another user's, and its memory has holes, or may get some")
    return mmap.mmap(fd, size, flags=mmap.MAP_SHARED, prot=protection)


def check(arena, control, generation):
    """The shape of a ring: blocks, their bytes, frames and body, and entries of its index rings."""
    def number(name, size=4):
        return int.from_bytes(arena[ARENA[name] : ARENA[name] + size], sys.byteorder)

    def fail(what):
        raise RingError(f"what answers is no block ring of version 1: {what}")

    if arena[:8] != b"LINERATE" or number("byte_order") != layout.BYTE_ORDER:
        fail("its memory does not begin as a ring does")
    if number("major") != layout.MAJOR:
        fail("it has another version of the format")
    slots, size, frames, body = number("slots"), number("slot_bytes", 8), number("frames"), number("body")
    least, most = layout.SLOT_BYTES
    if not layout.SLOTS[0] <= slots <= layout.SLOTS[1] or not least <= size <= most or size & (size - 1):
        fail("it has blocks of a size or number that no ring has")
    room = layout.BLOCK_HEADER + frames * layout.DESC.size
    if frames == 0 or body % layout.PAGE or room > body:
        fail("its blocks have no room for descs")
    if body + layout.RECORD_HEADER + layout.MAX_FRAME + layout.TAIL > size:
        fail("its blocks have no room for frames")
    whole = -(-(layout.HUGE + slots * size) // layout.HUGE) * layout.HUGE
    places = (number("slots_offset", 8), number("interface_offset"), number("interface_bytes"), len(arena))
    if places != (layout.HUGE, layout.PAGE, layout.INTERFACE.size, whole):
        fail("its memory is laid out in another way")
    capacity = 1 << (slots - 1).bit_length()
    rings = -(-(layout.CONTROL_HEADER + 16 * capacity) // layout.PAGE) * layout.PAGE
    at = layout.CONTROL_GENERATION
    own, entries, published, returned = struct.unpack("=QIII", control[at : at + 20])
    if len(control) != rings or (entries, published) != (capacity, 512) or returned != 512 + 8 * capacity:
        fail("its control memory does not fit its arena")
    if not generation == own == number("generation", 8):
        fail("it handed over the memory of another ring")
    return slots, size, frames, body, capacity


def printable(text):
    """Words of the other side, fit to be shown."""
    return "".join(char if char.isprintable() else "?" for char in text.decode("utf-8", "replace"))
