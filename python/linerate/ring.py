"""Reader of a block ring: yields committed frames in order, and returns finished blocks to the writer.

The writer is not trusted: each number in its memory is copied once, checked, then used.
"""

import collections
import select
import socket
import threading
import time

from . import handshake, layout
from .handshake import RingError
from .layout import ARENA, Desc, Interface

try:
    import numpy
    DESC_TYPE = numpy.dtype(layout.DESC_FIELDS)
except ImportError:
    numpy = None

ENDS = {
    "died": "the writer died without ending the ring; all committed frames were read",
    "evicted": "evicted by the writer: too slow, or broke the protocol",
    "broken": "the writer broke the format",
}
_barrier = threading.Lock()


def fence():
    """Full memory barrier: no load or store moves across it. On x86 taking a lock is one. Elsewhere, earlier accesses
    stay before the first release, later ones stay after the second acquire, and these two keep their order."""
    for _ in range(2):
        _barrier.acquire()
        _barrier.release()


class Burst:
    """Frames of one block, valid until the next burst is requested.

    `descs` is a checked copy and stays valid: a NumPy array with the fields of `Desc`, or a list of `Desc` without NumPy.
    `block` and the result of `frame` are views of the writer's memory: copy (`bytes(...)`) what is needed for longer.
    """

    __slots__ = ("descs", "block", "_ring")

    def __init__(self, ring, block, descs):
        self._ring, self.block, self.descs = ring, block, descs

    def __len__(self):
        return len(self.descs)

    def frame(self, index):
        """Returns a view of the bytes of one frame."""
        self._check()
        desc = self.descs[index]
        at = int(desc["offset"])
        return self.block[at : at + int(desc["captured"])]

    def __iter__(self):
        """Yields a view of the bytes of each frame."""
        self._check()
        if numpy is not None:
            places = zip(self.descs["offset"].tolist(), self.descs["captured"].tolist())
        else:
            places = ((desc.offset, desc.captured) for desc in self.descs)
        block = self.block
        return (block[at : at + length] for at, length in places)

    def _check(self):
        if self._ring._shown is not self:
            raise ValueError("burst was released: its frames may be overwritten; "
                             "copy them before requesting the next burst")


class Ring:
    """Reader of the frames that `linerate capture PORT --share NAME` shares; iteration yields a `Burst` at a time.

    `name`: as given to --share; a path if it contains a /. `lossless`: the writer waits for this reader, if it runs with
    --lossless-readers. `quota`: maximum number of blocks to hold, 0: chosen by the writer. `reader`: name in the writer's
    report. `trust`: attach even if another user than root and this one shares the ring.

    For one thread at a time. Iteration stops when the writer ends, and raises RingError if the ring ended abnormally.
    Shared contents cannot make this process fault, unless it accesses a frame after its burst was released.
    """

    def __init__(self, name, *, lossless=False, quota=0, reader="python", trust=False):
        self.name, self.ended, self.bad = name, None, 0
        self._socket, foreign = handshake.connect(name, trust)
        try:
            generation, arena, control, fds = handshake.greet(self._socket, lossless, quota, reader)
            self._maps = handshake.map_both(arena, control, fds, foreign)
            shape = handshake.check(*self._maps, generation)
        except BaseException:
            self._socket.close()
            raise
        self._socket.setblocking(False)
        self._slots, self._slot_bytes, self._frames, self._body, self._capacity = shape
        self._arena, self._control = (memoryview(memory) for memory in self._maps)
        self._words, self._longs = self._arena.cast("I"), self._arena.cast("Q")
        self._control_words, self._control_longs = self._control.cast("I"), self._control.cast("Q")
        self._held = collections.deque()  # Blocks in order, each with its first frame not shown yet.
        self._taken = self._given = 0
        self._hung_up, self._shown, self._interfaces = False, None, []

    def __iter__(self):
        return self

    def __next__(self):
        burst = self.next()
        if burst is None:
            self._raise_end()
            raise StopIteration
        return burst

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def next(self, timeout=None):
        """Returns the next burst, and releases the previous one. Returns None after `timeout` seconds, or after the last
        burst: then `ended` is "ended" (normally), "died", "evicted" or "broken"."""
        self.release()
        until = None if timeout is None else time.monotonic() + timeout
        while self.ended is None:
            burst = self._look()
            if burst is not None or self.ended is not None:
                return burst
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                self._listen()
                return None
            self._wait(left)
        return None

    def release(self):
        """Releases the last burst; its block is returned to the writer if it is closed and finished."""
        if self._shown is None:
            return
        self._shown = None
        if self.ended is None and self._held:
            slot, first = self._held[0]
            closed, committed = self._progress(slot)
            if closed and committed == first:
                self._give_up(True)

    def close(self):
        """Detaches; the writer reclaims all held blocks."""
        self._shown = None
        self.ended = self.ended or "closed"
        self._socket.close()

    @property
    def interfaces(self):
        """Interfaces, indexed by `interface` of a desc. The list only grows."""
        for index in range(len(self._interfaces), self._interface_count()):
            at = layout.PAGE + index * layout.INTERFACE.size
            link, stamp, snap, named, described, name, description = layout.INTERFACE.unpack_from(self._arena, at)
            texts = (text[:length].decode("utf-8", "replace") for text, length in
                     ((name, named), (description, described)))
            self._interfaces.append(Interface(*texts, link, stamp, snap))
        return self._interfaces

    @property
    def skipped(self):
        """Number of frames that this reader missed because it was too slow."""
        return self._control_longs[layout.CONTROL_SKIPPED // 8]

    @property
    def drops(self):
        """Number of frames lost before the ring since its start."""
        return self._longs[ARENA["drops"] // 8]

    @property
    def is_lossless(self):
        """True if the writer waits for this reader."""
        return self._control_words[layout.CONTROL_MODE // 4] == layout.LOSSLESS

    def _raise_end(self):
        if self.ended in ENDS:
            raise RingError(f"{self.name}: {ENDS[self.ended]}")

    def _stop(self, ended):
        self.ended = ended
        self._held.clear()
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def _has_ended(self):
        return self._words[ARENA["state"] // 4] == layout.ENDED

    def _is_evicted(self):
        return self._control_words[layout.CONTROL_STATUS // 4] == layout.EVICTED

    def _interface_count(self):
        return min(self._words[ARENA["interfaces"] // 4], layout.MOST_INTERFACES)

    def _progress(self, slot):
        """Returns whether a block is closed (its number of frames is final), and its number of committed frames."""
        block = layout.HUGE + slot * self._slot_bytes
        closed = self._words[(block + layout.BLOCK_CLOSED) // 4] != 0
        fence()
        committed = self._words[(block + layout.BLOCK_COMMITTED) // 4]
        fence()
        return closed, committed

    def _look(self):
        """Returns the next burst, or None if none is available now."""
        if self._is_evicted():
            return self._stop("evicted")
        # Read these first: the reads below then find all frames committed before the end.
        ended = self._has_ended()
        over = ended or self._hung_up
        fence()
        if not self._take_published():
            return self._stop("broken")
        while self._held:
            slot, first = self._held[0]
            closed, committed = self._progress(slot)
            if not first <= committed <= self._frames:
                return self._stop("broken")
            if committed > first:
                self._held[0] = (slot, committed)
                burst = self._show(slot, first, committed)
                if len(burst):
                    self._shown = burst
                    return burst
            if not closed and not over:
                break
            self._give_up(closed)
            if self._is_evicted():
                return self._stop("evicted")
        if over and not self._held:
            return self._stop("ended" if ended or self._has_ended() else "died")
        return None

    def _take_published(self):
        """Takes newly published blocks; returns False if an entry is invalid."""
        held = {slot for slot, _ in self._held}
        while True:
            there = self._control_longs[layout.CONTROL_PUBLISHED // 8] - self._taken
            fence()
            if there == 0:
                return True
            if not 0 < there <= self._capacity:
                return False
            entry = self._control_longs[layout.CONTROL_HEADER // 8 + self._taken % self._capacity]
            slot, first = entry & 0xFFFFFFFF, entry >> 32
            if slot >= self._slots or slot in held:
                return False
            held.add(slot)
            self._held.append((slot, first))
            self._taken += 1

    def _show(self, slot, first, committed):
        at = layout.HUGE + slot * self._slot_bytes
        block = self._arena[at : at + self._slot_bytes]
        descs = layout.BLOCK_HEADER + first * layout.DESC.size
        copied = bytes(block[descs : descs + (committed - first) * layout.DESC.size])
        # The writer adds an interface before the first frame that refers to it.
        fence()
        known = self._interface_count()
        least, most = self._body + layout.RECORD_HEADER, self._slot_bytes - layout.TAIL
        if numpy is not None:
            found = numpy.frombuffer(copied, DESC_TYPE)
            captured, offset = found["captured"], found["offset"].astype("u8")
            sound = (captured <= layout.MAX_FRAME) & (offset >= least)
            sound &= (offset + captured <= most) & (found["interface"] < known)
            shown = found if sound.all() else found[sound]
        else:
            found = [Desc._make(words) for words in layout.DESC.iter_unpack(copied)]
            shown = [
                desc for desc in found
                if desc.captured <= layout.MAX_FRAME and least <= desc.offset
                and desc.offset + desc.captured <= most and desc.interface < known
            ]
        self.bad += len(found) - len(shown)
        return Burst(self, block, shown)

    def _give_up(self, closed):
        """Drops the first held block, and returns it to the writer if it is closed. Check for eviction before accessing the
        next block: after an eviction the writer keeps only the first block that was not returned unchanged."""
        slot, _ = self._held.popleft()
        if closed:
            at = (layout.CONTROL_HEADER + 8 * self._capacity) // 8 + self._given % self._capacity
            self._control_longs[at] = slot
            self._given += 1
            fence()
            self._control_longs[layout.CONTROL_RETURNED // 8] = self._given
            fence()

    def _is_anything_new(self):
        published = self._control_longs[layout.CONTROL_PUBLISHED // 8]
        if self._hung_up or self._has_ended() or self._is_evicted() or published != self._taken:
            return True
        if not self._held:
            return False
        slot, first = self._held[0]
        closed, committed = self._progress(slot)
        return closed or committed != first

    def _wait(self, seconds):
        """Waits for news, a hang-up or the timeout; may return early."""
        sleeping = layout.CONTROL_SLEEPING // 4
        self._control_words[sleeping] = 1
        fence()
        try:
            if not self._is_anything_new():
                poll = select.poll()
                poll.register(self._socket, select.POLLIN)
                poll.poll(None if seconds is None else max(1, int(seconds * 1000)))
        finally:
            self._control_words[sleeping] = 0
        self._listen()

    def _listen(self):
        """Drains wake-ups from the socket, and detects that the writer has closed it."""
        while True:
            try:
                if not self._socket.recv(16, socket.MSG_DONTWAIT):
                    self._hung_up = True
                    return
            except BlockingIOError:
                return
            except OSError:
                self._hung_up = True
                return
