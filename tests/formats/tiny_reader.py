#!/usr/bin/env python3
"""tiny_reader.py FOLDER: lists the partitions of a Varve bucket and prints their records; from docs/formats/ alone."""
import gzip, json, pathlib, struct, sys

def varint(b, at):
    n = shift = 0
    while True:
        n, at, shift = n | (b[at] & 127) << shift, at + 1, shift + 7
        if b[at - 1] < 128:
            return n >> 1 ^ -(n & 1), at

def field(b, at):
    n, at = varint(b, at)
    return (None, at) if n < 0 else (b[at:at + n], at + n)

for folder in sorted(m.parent for m in pathlib.Path(sys.argv[1]).glob("topics/*/*/manifest")):
    m = json.loads(max(folder.glob("manifest/*.json")).read_bytes())
    pages = [json.loads((folder / p["key"]).read_bytes())["segments"] for p in m.get("pages", [])]
    print(m["topic"], m["partition"], "offsets", m["log_start_offset"], "to", m["end_offset"] - 1)
    for s in sum(pages, []) + m["segments"]:
        log, pos = (folder / s["key"]).read_bytes()[:s["log_bytes"]], 0
        while pos < len(log):
            base, length, attrs, n = *struct.unpack_from(">qi", log, pos), *struct.unpack_from(">h34xi", log, pos + 21)
            body, at, pos = log[pos + 61:pos + 12 + length], 0, pos + 12 + length
            body = gzip.decompress(body) if attrs & 7 == 1 else body
            for _ in range(n if attrs & 7 < 2 and not attrs & 32 else 0):  # other codecs need a library; 32: control batch
                size, at = varint(body, at)
                (delta, k), end = varint(body, varint(body, at + 1)[1]), at + size
                key, k = field(body, k)
                print(base + delta, key, field(body, k)[0])
                at = end
