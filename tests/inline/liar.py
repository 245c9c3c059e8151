"""An engine written only from the numbers of docs/block-ring.md. `how` selects correct or one kind of invalid answers.

    liar.py NAME how

It prints `attached`, decides until the connection closes, and prints `evicted` or `hung up`.
"""
import mmap
import os
import select
import socket
import struct
import sys
import time

name, how = sys.argv[1:]
hello = bytearray(128)
struct.pack_into("=4s5I", hello, 0, b"LRHi", 1, 1, 2, 0, 4)
hello[32:36] = b"liar"
ring = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
ring.connect("\0linerate/" + name)
ring.send(hello)
answer, fds, _, _ = socket.recv_fds(ring, 512, 2)
if len(fds) != 2:
    sys.exit(answer[64:].split(b"\0")[0].decode())
arena = mmap.mmap(fds[0], struct.unpack_from("=Q", answer, 32)[0], prot=mmap.PROT_READ)
control = mmap.mmap(fds[1], struct.unpack_from("=Q", answer, 40)[0])
slots_offset, slot_bytes = struct.unpack_from("=QQ", arena, 40)
capacity, published_at, returned_at, verdicts_at, verdict_bytes = struct.unpack_from("=5I", control, 24)
# Stores through these views are atomic; struct.pack_into writes byte by byte.
words, longs = memoryview(control).cast("I"), memoryview(control).cast("Q")
print("attached", flush=True)
if how == "forks" and os.fork() == 0:
    # The child inherits the socket and the mappings.
    print("child waits", flush=True)
    try:
        # The socket is non-blocking for both, so wait with select.
        while select.select([ring], [], []) and ring.recv(16) != b"":
            pass
    except ConnectionError:
        pass
    print("child hung up", flush=True)
    sys.exit()


def word(memory, at):
    return struct.unpack_from("=I", memory, at)[0]


taken = given = 0
held = []  # block, from
ring.setblocking(False)
while True:
    try:
        if ring.recv(16) == b"":
            break
    except BlockingIOError:
        time.sleep(0.0002)
    except ConnectionError:
        break
    while struct.unpack_from("=Q", control, 128)[0] != taken:
        entry = struct.unpack_from("=Q", control, published_at + 8 * (taken % capacity))[0]
        held.append([entry & 0xFFFFFFFF, entry >> 32])
        taken += 1
    if not held:
        continue
    block, begin = held[0]
    base = slots_offset + block * slot_bytes
    closed, committed = word(arena, base + 108), word(arena, base + 64)
    at = verdicts_at + block * verdict_bytes
    for frame in range(begin, committed):
        if control[at + 64 + frame] == 254:
            continue
        if how == "unsaid" and frame % 16 == 15:
            continue
        lies = {"seven": 7, "settled": 254, "replace": 2}
        control[at + 64 + frame] = lies.get(how, 0) if frame % 16 == 15 else 0
    looked = committed
    if how == "ahead" and committed > 20:
        looked = committed + 1000
    if how == "back" and begin > 20:
        looked = 1
    words[at // 4] = looked
    if how == "scribble" and committed > 20:
        length = word(arena, 36) * verdict_bytes
        control[verdicts_at : verdicts_at + length] = bytes([77]) * length
    if how == "returns" and committed > 20:
        longs[256 // 8] = 1 << 40
    held[0][1] = committed
    if closed and committed == word(arena, base + 64):
        held.pop(0)
        longs[returned_at // 8 + given % capacity] = block
        given += 1
        longs[256 // 8] = given
print("evicted" if word(control, 156) == 1 else "hung up", flush=True)
