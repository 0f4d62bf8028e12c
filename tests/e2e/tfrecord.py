# SPDX-License-Identifier: Apache-2.0
"""Writers of small files with the standard library alone: records of tf.train.Example as TFRecord
has them, and PNG images of stripes in two colours."""
import struct
import zlib

TABLE = []
for i in range(256):
    c = i
    for _ in range(8):
        c = (c >> 1) ^ (0x82F63B78 if c & 1 else 0)
    TABLE.append(c)


def masked(data):
    c = 0xFFFFFFFF
    for byte in data:
        c = TABLE[(c ^ byte) & 255] ^ (c >> 8)
    c ^= 0xFFFFFFFF
    return struct.pack("<I", ((c >> 15 | c << 17 & 0xFFFFFFFF) + 0xA282EAD8) & 0xFFFFFFFF)


def record(data):
    n = struct.pack("<Q", len(data))
    return n + masked(n) + data + masked(data)


def varint(v):
    out = b""
    while v > 127:
        out += bytes([v & 127 | 128])
        v >>= 7
    return out + bytes([v])


def part(field, data):
    return varint(field << 3 | 2) + varint(len(data)) + data


def ints(*v):
    return part(3, part(1, b"".join(map(varint, v))))


def floats(*v):
    return part(2, part(1, struct.pack(f"<{len(v)}f", *v)))


def loose(*v):  # not packed
    return part(2, b"".join(b"\x0d" + struct.pack("<f", x) for x in v))


def data(v):
    return part(1, part(1, v))


def example(**features):
    return part(1, b"".join(part(1, part(1, k.encode()) + part(2, v)) for k, v in features.items()))


def png(v, width=8, height=8, stripe=0):
    """stripe: how many columns of each colour; 0: all of one."""
    chunk = lambda k, d: struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d))
    own, other = bytes([v, 0, 255 - v]), bytes([0, v, 40])
    row = b"".join(other if stripe and x // stripe % 2 else own for x in range(width))
    size = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size)
            + chunk(b"IDAT", zlib.compress((b"\0" + row) * height)) + chunk(b"IEND", b""))
