"""The Python counterpart of examples/c/ring_cat.c: the same arguments, output and final line."""

import struct
import sys

import linerate

ENDS = {"ended": "the writer has ended", "died": "the writer died", "evicted": "evicted by the writer: too slow, or broke the protocol",
        "broken": "the writer broke the format"}


def lines(ring, burst):
    interfaces = ring.interfaces
    for desc in burst.descs:
        seconds, nanos = divmod(int(desc["time"]), 10**9)
        name = interfaces[desc["interface"]].name or "-"
        lengths = f"captured {desc['captured']} wire {desc['wire']}"
        print(f"{seconds}.{nanos:09} {name} {lengths} flags 0x{desc['flags']:04x} hash 0x{desc['hash']:08x}")
    sys.stdout.flush()


class Pcap:
    def __init__(self):
        self.link = None

    def __call__(self, ring, burst):
        for desc, frame in zip(burst.descs, burst):
            link = ring.interfaces[desc["interface"]].link
            if self.link is None:
                sys.stdout.buffer.write(struct.pack("=IHHIIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, link))
            elif self.link != link:
                sys.exit("ring_cat: frames have several link types; a pcap file holds only one")
            self.link = link
            record = int(desc["offset"]) - 16
            sys.stdout.buffer.write(burst.block[record : record + 16])
            sys.stdout.buffer.write(frame)
        sys.stdout.buffer.flush()


def main(words):
    options, show, look, quota = {"reader": "ring_cat.py"}, lines, False, False
    for word in words[:-1]:
        if quota:
            options["quota"], quota = int(word), False
        elif word == "-l":
            options["lossless"] = True
        elif word == "-t":
            options["trust"] = True
        elif word == "-w":
            show = Pcap()
        elif word == "-i":
            look = True
        elif word == "-q":
            quota = True
    try:
        ring = linerate.Ring(words[-1], **options)
    except linerate.RingError as error:
        sys.exit(f"ring_cat: {error}")
    if look:
        print(ring.interfaces)
        return
    frames = 0
    try:
        for burst in ring:
            show(ring, burst)
            frames += len(burst)
    except linerate.RingError:
        pass
    print(f"{frames} frames, {ring.skipped} skipped, {ring.bad} bad: {ENDS[ring.ended]}", file=sys.stderr)
    sys.exit(ring.ended != "ended")


main(sys.argv[1:])
