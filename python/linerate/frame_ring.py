"""Frames of streams that another process receives: docs/frame-ring.md.

The writer is not trusted: each number in its memory is copied once, checked, then used.
"""

import ipaddress
import select
import socket
import struct
import sys
import threading
import time

from . import handshake, layout
from .handshake import RingError
from .ring import fence

# Header of the arena, and an entry of its table.
HEADER = struct.Struct("=8s6I4Q4I2Q2I3Q")
ENTRY = struct.Struct("=Q2I7Q10I16s16s112x")
ENTRY_STATE = 96
MOST_FRAMES = 1 << 15
MOST_BYTES = 1 << 45
CRC, COARSE = 1, 2
EVICTED, OVER = 1, 2
ENDINGS = (None, "complete", "reset", "silent", "stopped")
ENDS = {
    "died": "the writer died without ending the ring; the frames received are complete",
    "evicted": "evicted by the writer: this reader returned a frame that it did not hold",
    "broken": "the writer broke the format",
}


class Frame:
    """Part of a stream, in the memory where it was received. Valid until it is given back.

    `data` is a view of the writer's memory: copy (`bytes(...)`) what is needed for longer. `gaps` lists missing bytes as
    (first, end) offsets in the frame; end is exclusive.
    """

    __slots__ = ("id", "stream", "sender", "receiver", "number", "offset", "length", "missing", "crc32c", "first", "last",
                 "repeated", "late", "ending", "offered", "gaps", "data", "_entry", "_ring")

    def give_back(self):
        """Returns the frame to the writer, which fills it again: do not access it afterwards."""
        self._ring._give_back(self)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.give_back()


class FrameRing:
    """Reader of the frames that `linerate receive PORT --tcp A:P --share NAME` shares; iteration yields one at a time.

    One reader at a time may attach. Iteration gives each frame back when the next one is requested. After `next` call
    `Frame.give_back`: several frames can be held. Held frames may delay senders. If this reader closes or dies, the next
    reader gets the frames it held. Iteration stops when the writer ends, and raises RingError if the ring ended
    abnormally. Only one thread at a time may take frames; any thread may give them back.
    """

    def __init__(self, name, *, reader="python", trust=False):
        self.name, self.ended = name, None
        self._socket, foreign = handshake.connect(name, trust, "receive")
        try:
            generation, arena, control, fds = handshake.greet(self._socket, True, 0, reader, kind=1)
            self._maps = handshake.map_both(arena, control, fds, foreign, MOST_BYTES)
            self._check(*self._maps, generation)
        except BaseException:
            self._socket.close()
            raise
        self._socket.setblocking(False)
        self._arena, self._control = (memoryview(memory) for memory in self._maps)
        self._words, self._longs = self._control.cast("I"), self._control.cast("Q")
        self._held, self._taken, self._given, self._hung_up = set(), 0, 0, False
        self._lock = threading.Lock()

    def __iter__(self):
        while True:
            frame = self.next()
            if frame is None:
                if self.ended in ENDS:
                    raise RingError(f"{self.name}: {ENDS[self.ended]}")
                return
            yield frame
            # A frame on which the loop breaks or raises is not given back: the next reader gets it.
            frame.give_back()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def next(self, timeout=None):
        """Returns the next frame. Returns None after `timeout` seconds, or after the last frame: then `ended` is "ended"
        (normally), "died", "evicted" or "broken"."""
        until = None if timeout is None else time.monotonic() + timeout
        while self.ended is None:
            frame = self._look()
            if frame is not None or self.ended is not None:
                return frame
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return None
            self._wait(left)
        return None

    def close(self):
        """Detaches; the next reader gets the held frames."""
        self.ended = self.ended or "closed"
        self._socket.close()

    def _check(self, arena, control, generation):
        def fail(what):
            raise RingError(f"peer is not a frame ring of version 1: {what}")

        if arena[:8] != b"LRFRAMES":
            fail("its memory does not begin with LRFRAMES")
        (_, order, major, _, header, entries, frames, size, stride, at, whole, granule, bitmap, room, _, own, _, _, entry,
         table, bitmaps, gaps) = HEADER.unpack_from(arena)
        if order != layout.BYTE_ORDER or major != layout.MAJOR:
            fail("it has another byte order or another version of the format")
        if not 1 <= frames <= MOST_FRAMES or not 1 <= size <= 64 << 30 or granule == 0:
            fail("its frames have an invalid size or number")

        def up(number, multiple):
            return -(-number // multiple) * multiple

        page, huge = layout.PAGE, layout.HUGE
        most = frames + max(frames, 16)
        words = 8 * -(-(-(-size // granule)) // 64)
        listed = min(max(size // 1024, 64), 4096)
        second = up(page + most * ENTRY.size, page)
        third = up(second + frames * words, page)
        begin = up(third + frames * listed * 16, huge)
        last = up(begin + frames * up(size, page), huge)
        said = (header, entries, stride, at, whole, bitmap, room, entry, table, bitmaps, gaps)
        if said != (page, most, up(size, page), begin, last, words, listed, ENTRY.size, page, second, third):
            fail("its memory has an unexpected layout")
        capacity = 1 << (most - 1).bit_length()
        at = layout.CONTROL_GENERATION
        its, slots, handed, returned = struct.unpack("=QIII", control[at : at + 20])
        rings = up(layout.CONTROL_HEADER + 16 * capacity, page)
        if len(arena) != last or len(control) != rings or (slots, handed) != (capacity, 512):
            fail("its control memory does not fit its arena")
        if returned != 512 + 8 * capacity or not generation == its == own:
            fail("it sent the memory of another ring")
        self.frames, self.frame_bytes, self._entries, self._capacity = frames, size, most, capacity
        self._gaps, self._room, self._begin, self._stride = third, listed, begin, stride

    def _look(self):
        status = self._words[layout.CONTROL_STATUS // 4]
        if status == EVICTED:
            return self._stop("evicted")
        gone = self._hung_up
        fence()
        there = self._longs[layout.CONTROL_PUBLISHED // 8] - self._taken
        fence()
        if there == 0:
            return self._stop("ended") if status == OVER else self._stop("died") if gone else None
        if not 0 < there <= self._entries:
            return self._stop("broken")
        entry = self._longs[layout.CONTROL_HEADER // 8 + self._taken % self._capacity]
        with self._lock:
            if entry >= self._entries or entry in self._held:
                return self._stop("broken")
            self._held.add(entry)
        self._taken += 1
        frame = self._read(entry)
        return self._stop("broken") if frame is None else frame

    def _read(self, entry):
        """Returns the frame of an entry; None if the entry is invalid."""
        at = layout.PAGE + entry * ENTRY.size
        if int.from_bytes(self._arena[at + ENTRY_STATE : at + ENTRY_STATE + 4], sys.byteorder) != 1:
            return None
        fence()
        frame = Frame()
        (frame.id, frame.stream, ending, frame.number, frame.offset, frame.length, frame.missing, frame.first, frame.last,
         memory, crc, flags, frame.repeated, frame.late, gaps, frame.offered, _, family, from_port, to_port, source,
         to) = ENTRY.unpack_from(self._arena, at)
        has_memory = entry < self.frames
        own = self._begin + entry * self._stride if has_memory else 0
        most = self.frame_bytes if has_memory else 0
        if memory != own or frame.length > most or gaps > (self._room if has_memory else 0):
            return None
        if ending >= len(ENDINGS) or family not in (4, 6):
            return None
        listed = self._gaps + entry * self._room * 16
        numbers = struct.unpack(f"={2 * gaps}Q", bytes(self._arena[listed : listed + 16 * gaps]))
        frame.gaps = list(zip(numbers[::2], numbers[1::2]))
        before = 0
        for start, end in frame.gaps:
            if not before <= start < end <= frame.length:
                return None
            before = end
        width = 4 if family == 4 else 16
        frame.sender = (str(ipaddress.ip_address(source[:width])), from_port & 0xFFFF)
        frame.receiver = (str(ipaddress.ip_address(to[:width])), to_port & 0xFFFF)
        frame.ending, frame.crc32c = ENDINGS[ending], crc if flags & CRC else None
        frame.data = self._arena[own : own + frame.length]
        frame._entry, frame._ring = entry, self
        return frame

    def _give_back(self, frame):
        with self._lock:
            if frame._entry not in self._held:
                raise ValueError("frame was already given back")
            self._held.remove(frame._entry)
            frame.data = None
            at = (layout.CONTROL_HEADER + 8 * self._capacity) // 8 + self._given % self._capacity
            self._longs[at] = frame._entry
            self._given += 1
            fence()
            self._longs[layout.CONTROL_RETURNED // 8] = self._given

    def _stop(self, ended):
        self.ended = ended

    def _wait(self, seconds):
        """Waits for news, a hang-up or the timeout; may return early."""
        sleeping = layout.CONTROL_SLEEPING // 4
        self._words[sleeping] = 1
        fence()
        try:
            is_new = self._longs[layout.CONTROL_PUBLISHED // 8] != self._taken
            if not is_new and not self._hung_up and self._words[layout.CONTROL_STATUS // 4] == 0:
                poll = select.poll()
                poll.register(self._socket, select.POLLIN)
                poll.poll(None if seconds is None else max(1, int(seconds * 1000)))
        finally:
            self._words[sleeping] = 0
        try:
            while True:
                if not self._socket.recv(16, socket.MSG_DONTWAIT):
                    self._hung_up = True
                    return
        except BlockingIOError:
            pass
        except OSError:
            self._hung_up = True
