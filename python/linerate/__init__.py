"""Packets and flow records of linerate.

    import linerate

    for burst in linerate.Ring("feed"):              # linerate capture eth0 --share feed
        print(len(burst), burst.descs["captured"].sum(), bytes(burst.frame(0)))

`Ring` reads packets that a running linerate shares in memory, `capture` reads a capture file. `frames` and `flows`
return tables of packets and of flow records. `FrameRing` takes frames of memory of received streams.
"""

from .frame_ring import Frame, FrameRing
from .handshake import RingError
from .layout import FLAGS, NO_LAYER, STAMPS, Desc, Interface
from .ring import Burst, Ring
from .tables import capture, flows, frames

__all__ = [
    "FLAGS", "NO_LAYER", "STAMPS", "Burst", "Desc", "Frame", "FrameRing", "Interface", "Ring", "RingError", "capture", "flows", "frames",
]
