"""Decodes IPFIX after RFC 7011, independently of linerate, and prints sums: decode.py FILE [MAX MESSAGE BYTES]."""

import json
import struct
import sys

REVERSE = 29305


def value(data, at, length):
    """Returns the bytes of a value and the position after it."""
    if length == 65535:
        length, at = data[at], at + 1
        if length == 255:
            (length,), at = struct.unpack_from("!H", data, at), at + 2
    assert at + length <= len(data), "a value exceeds its set"
    return data[at : at + length], at + length


def templates(body, is_options, known):
    at = 0
    while at + 4 <= len(body):
        number, count = struct.unpack_from("!HH", body, at)
        at += 4
        assert number >= 256 and count > 0, (number, count)
        if is_options:
            (scopes,) = struct.unpack_from("!H", body, at)
            at += 2
            assert 0 < scopes <= count
        fields = []
        for _ in range(count):
            element, length = struct.unpack_from("!HH", body, at)
            at, enterprise = at + 4, 0
            if element & 0x8000:
                (enterprise,) = struct.unpack_from("!I", body, at)
                at += 4
            fields.append((enterprise, element & 0x7FFF, length))
        assert len(set((pen, element) for pen, element, _ in fields)) == len(fields), "duplicate element"
        known[number] = (is_options, fields)


def decode(data, most):
    known, expected, at = {}, {}, 0
    sums = {"messages": 0, "records": 0, "packets": 0, "bytes": 0, "reverse": 0, "options": 0, "first": 0, "last": 0}
    sums["elements"] = []
    while at < len(data):
        version, length, _, sequence, domain = struct.unpack_from("!HHIII", data, at)
        assert version == 10 and 16 <= length <= most, (version, length)
        assert sequence == expected.get(domain, sequence), "wrong sequence number"
        message, at = data[at : at + length], at + length
        assert len(message) == length, "the file ends within a message"
        sums["messages"] += 1
        place, count = 16, 0
        while place < length:
            number, size = struct.unpack_from("!HH", message, place)
            assert size >= 4 and place + size <= length
            body, place = message[place + 4 : place + size], place + size
            if number in (2, 3):
                templates(body, number == 3, known)
                continue
            is_options, fields = known[number]
            where = 0
            while where < len(body):
                record = {}
                for enterprise, element, size in fields:
                    record[enterprise, element], where = value(body, where, size)
                count += 1
                add(record, is_options, sums)
        expected[domain] = (sequence + count) & 0xFFFFFFFF
    sums["elements"] = sorted(set(sums["elements"]))
    return sums


def add(record, is_options, sums):
    number = lambda key: int.from_bytes(record.get(key, b""), "big")
    if is_options:
        sums["options"] += 1
        return
    sums["elements"] = list(set(sums["elements"]) | set(f"{pen}/{element}" for pen, element in record))
    sums["records"] += 1
    sums["reverse"] += (REVERSE, 2) in record
    sums["packets"] += number((0, 2)) + number((REVERSE, 2))
    sums["bytes"] += number((0, 1)) + number((REVERSE, 1))
    sums["first"] += number((0, 152)) + number((REVERSE, 152))
    sums["last"] += number((0, 153)) + number((REVERSE, 153))


if __name__ == "__main__":
    most = int(sys.argv[2]) if len(sys.argv) > 2 else 65535
    print(json.dumps(decode(open(sys.argv[1], "rb").read(), most)))
