# SPDX-License-Identifier: Apache-2.0
"""A writer of small Parquet files with the standard library alone: `write(path, columns, ...)`.

columns: (name, kind, values, encoding) with kind int32, int64, float, double, text or bool, None in
values where they are missing, encoding plain, dictionary, delta, lengths, prefixes or rle; one page
of version 1 or 2 per column and row group, plain or gzip."""
import struct
import zlib

TYPE = dict(bool=0, int32=1, int64=2, float=4, double=5, text=6)
ENCODING = dict(plain=0, dictionary=8, rle=3, delta=5, lengths=6, prefixes=7)


def varint(v):
    out = b""
    while v > 127:
        out += bytes([v & 127 | 128])
        v >>= 7
    return out + bytes([v])


def zigzag(v):
    return varint((v << 1 ^ v >> 63) & (1 << 64) - 1)


def struct_of(*fields):
    """(id, type, value): types i (number), s (text), b (true or false), t (struct), l (list)."""
    out, last = b"", 0
    for i, kind, v in fields:
        code = {"i": 6, "s": 8, "t": 12, "l": 9, "b": 1 if v else 2}[kind]
        out += bytes([(i - last) << 4 | code])
        last = i
        out += {"i": zigzag, "s": lambda s: varint(len(s)) + s, "t": bytes, "l": bytes,
                "b": lambda _: b""}[kind](v)
    return out + b"\0"


def list_of(code, items):
    n = len(items)
    head = bytes([n << 4 | code]) if n < 15 else bytes([0xf0 | code]) + varint(n)
    return head + b"".join(items)


def pack(values, bits):
    v = sum(x << i * bits for i, x in enumerate(values))
    return v.to_bytes((len(values) * bits + 7) // 8, "little")


def runs(values, bits):
    """Bit-packed groups, and a run of one value where eight are equal."""
    out, i = b"", 0
    while i < len(values):
        n = 1
        while i + n < len(values) and values[i + n] == values[i]:
            n += 1
        if n >= 8:
            out += varint(n << 1) + values[i].to_bytes((bits + 7) // 8, "little")
            i += n
        else:
            group = values[i:i + 8] + [0] * (8 - len(values[i:i + 8]))
            out += varint(1 << 1 | 1) + pack(group, bits)
            i += 8
    return out


def deltas(values):
    out = varint(128) + varint(4) + varint(len(values)) + zigzag(values[0] if values else 0)
    step = [b - a for a, b in zip(values, values[1:])]
    for i in range(0, len(step), 128):
        block = step[i:i + 128]
        least = min(block)
        minis = [[d - least for d in block[k:k + 32]] for k in range(0, 128, 32)]
        widths = [max([d.bit_length() for d in m], default=0) for m in minis]
        out += zigzag(least) + bytes(widths)
        out += b"".join(pack(m + [0] * (32 - len(m)), w) for m, w in zip(minis, widths) if m)
    return out


def plain(kind, values):
    if kind == "bool":
        return pack([int(v) for v in values], 1)
    if kind == "text":
        return b"".join(struct.pack("<I", len(v)) + v for v in values)
    return struct.pack(f"<{len(values)}" + dict(int32="i", int64="q", float="f", double="d")[kind],
                       *values)


def encode(kind, values, encoding):
    if encoding == "plain":
        return plain(kind, values)
    if encoding == "delta":
        return deltas(values)
    if encoding == "lengths":
        return deltas([len(v) for v in values]) + b"".join(values)
    if encoding == "rle":
        data = runs([int(v) for v in values], 1)
        return struct.pack("<I", len(data)) + data
    if encoding == "prefixes":
        prefix, rest, before = [], [], b""
        for v in values:
            n = 0
            while n < min(len(v), len(before)) and v[n] == before[n]:
                n += 1
            prefix.append(n)
            rest.append(v[n:])
            before = v
        return deltas(prefix) + deltas([len(r) for r in rest]) + b"".join(rest)
    raise ValueError(encoding)


def write(path, columns, groups=1, gzip=False, version=1):
    squeeze = compressed if gzip else bytes
    out, metas = b"PAR1", []
    n = len(columns[0][2])
    cuts = [n * g // groups for g in range(groups + 1)]
    for g in range(groups):
        chunks = []
        for name, kind, values, encoding in columns:
            part = values[cuts[g]:cuts[g + 1]]
            there = [v for v in part if v is not None]
            optional = any(v is None for v in values)
            start, dictionary = len(out), None
            if encoding == "dictionary":
                words = sorted(set(there))
                body = plain(kind, words)
                data = squeeze(body)
                dictionary = start
                out += struct_of((1, "i", 2), (2, "i", len(body)), (3, "i", len(data)),
                                 (7, "t", struct_of((1, "i", len(words)), (2, "i", 0)))) + data
                bits = max(1, (len(words) - 1).bit_length())
                body = bytes([bits]) + runs([words.index(v) for v in there], bits)
            else:
                body = encode(kind, there, encoding)
            levels = runs([int(v is not None) for v in part], 1) if optional else b""
            at = len(out)
            if version == 1:
                if optional:
                    body = struct.pack("<I", len(levels)) + levels + body
                data = squeeze(body)
                head = (5, "t", struct_of((1, "i", len(part)), (2, "i", ENCODING[encoding]),
                                          (3, "i", 3), (4, "i", 3)))
                whole, kind_of_page = len(body), 0
            else:
                data = levels + squeeze(body)
                whole, kind_of_page = len(levels) + len(body), 3
                head = (8, "t", struct_of(
                    (1, "i", len(part)), (2, "i", len(part) - len(there)), (3, "i", len(part)),
                    (4, "i", ENCODING[encoding]), (5, "i", len(levels)), (6, "i", 0),
                    (7, "b", gzip)))
            out += struct_of((1, "i", kind_of_page), (2, "i", whole), (3, "i", len(data)), head)
            out += data
            meta = [(1, "i", TYPE[kind]), (2, "l", list_of(5, [zigzag(0)])),
                    (3, "l", list_of(8, [varint(len(name)) + name.encode()])),
                    (4, "i", 2 if gzip else 0), (5, "i", len(part)), (6, "i", 0),
                    (7, "i", len(out) - start), (9, "i", at)]
            if dictionary is not None:
                meta.append((11, "i", dictionary))
            chunks.append(struct_of((2, "i", start), (3, "t", struct_of(*meta))))
        metas.append(struct_of((1, "l", list_of(12, chunks)), (2, "i", 0),
                               (3, "i", cuts[g + 1] - cuts[g])))
    schema = [struct_of((4, "s", b"schema"), (5, "i", len(columns)))]
    for name, kind, values, _ in columns:
        schema.append(struct_of((1, "i", TYPE[kind]),
                                (3, "i", int(any(v is None for v in values))),
                                (4, "s", name.encode())))
    footer = struct_of((1, "i", 1), (2, "l", list_of(12, schema)), (3, "i", n),
                       (4, "l", list_of(12, metas)))
    open(path, "wb").write(out + footer + struct.pack("<I", len(footer)) + b"PAR1")


def compressed(data):
    c = zlib.compressobj(wbits=31)
    return c.compress(data) + c.flush()
