#!/usr/bin/env python3
"""Reads a Varve bucket in a folder, from docs/formats/segment-object.md and manifest.md alone; standard library only.

    read_bucket.py FOLDER [--records]    checks every byte; prints partitions, or records as JSON lines
"""
import base64, gzip, hashlib, json, pathlib, struct, sys

CRC = [0] * 256
for i in range(256):
    c = i
    for _ in range(8):
        c = c >> 1 ^ (0x82F63B78 if c & 1 else 0)
    CRC[i] = c


def crc32c(data, crc=0):
    crc ^= 0xFFFFFFFF
    for b in data:
        crc = CRC[(crc ^ b) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def varint(b, at):
    shift = n = 0
    while True:
        n |= (b[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if b[at - 1] < 128:
            return n >> 1 ^ -(n & 1), at


def field(b, at):
    n, at = varint(b, at)
    return (None, at) if n < 0 else (b[at : at + n], at + n)


def records(base, base_ts, count, body):
    at = 0
    for _ in range(count):
        length, at = varint(body, at)
        end = at + length
        ts, at = varint(body, at + 1)
        delta, at = varint(body, at)
        key, at = field(body, at)
        value, at = field(body, at)
        yield base + delta, base_ts + ts, key, value
        at = end


def segment(path, s):
    """Checks one object and yields (offset, records or None) per batch; None where the codec is not in the library."""
    data = path.read_bytes()
    log_bytes, table_at, table_len, table_crc, fmt, flags, _, magic = struct.unpack(">QQIIHHI8s", data[-40:])
    assert magic == b"VARVESEG" and fmt == 1 and flags == 0, "not a segment object of format 1"
    assert len(data) == s["bytes"] and log_bytes == s["log_bytes"] and crc32c(data) == s["crc32c"], "not what the manifest says"
    table = data[table_at : table_at + table_len]
    assert crc32c(table) == table_crc and table_at + table_len + 40 == len(data), "section table"
    sections = {}
    for kind, sflags, crc, at, n in struct.iter_unpack(">HHIQQ", table):
        sections[kind] = data[at : at + n]
        assert crc32c(sections[kind]) == crc, f"section {kind}"
    size, *chunks = struct.unpack(f">{len(sections[6]) // 4}I", sections[6])
    assert chunks == [crc32c(data[i : min(i + size, log_bytes)]) for i in range(0, log_bytes, size)], "chunk checksums"
    at, expected = 0, s["base_offset"]
    while at < log_bytes:
        base, length, epoch, magic, crc, attrs, last, ts, max_ts, pid, pepoch, seq, n = struct.unpack_from(">qiibIhiqqqhii", data, at)
        assert base == expected and magic == 2, f"offset {base} follows, {expected} should"
        assert crc32c(data[at + 21 : at + 12 + length]) == crc, f"batch at offset {base}"
        body, codec = data[at + 61 : at + 12 + length], attrs & 7
        body = body if codec == 0 else gzip.decompress(body) if codec == 1 else None
        at, expected = at + 12 + length, base + last + 1
        if not attrs & 32:  # control batches carry no records of users
            yield base, n, list(records(base, ts, n, body)) if body is not None else None
    assert expected == s["last_offset"] + 1, "the log ends early"


def newest(folder):
    return json.loads(max(folder.glob("*.json")).read_bytes())


def show(b):
    return None if b is None else b.decode(errors="backslashreplace")


def main():
    root, print_records = pathlib.Path(sys.argv[1]), "--records" in sys.argv
    assert json.loads((root / "varve.json").read_bytes())["format"] == 1
    for folder in sorted(p for p in root.glob("topics/*/*") if (p / "manifest").is_dir()):
        m = newest(folder / "manifest")
        assert m["format"] == 1
        if "previous" in m:
            before = folder / "manifest" / f"{m['previous']['number']:020d}.json"
            assert not before.exists() or hashlib.sha256(before.read_bytes()).hexdigest() == m["previous"]["sha256"], "chain"
        segments = []
        for ref in m.get("pages", []):
            page = (folder / ref["key"]).read_bytes()
            assert hashlib.sha256(page).hexdigest() == ref["sha256"], ref["key"]
            segments += json.loads(page)["segments"]
        segments += m["segments"]
        total = packed = 0
        for before, s in zip([None] + segments, segments):
            assert before is None or s["base_offset"] == before["last_offset"] + 1, "gap"
            for base, n, recs in segment(folder / s["key"], s):
                total, packed = total + n, packed + (n if recs is None else 0)
                for offset, ts, key, value in recs or []:
                    if print_records and offset >= m["log_start_offset"]:
                        print(json.dumps({"topic": m["topic"], "partition": m["partition"], "offset": offset, "timestamp": ts, "key": show(key), "value": show(value)}))
        if not print_records:
            ident = base64.urlsafe_b64decode(m["topic_id"] + "==").hex()
            print(f"{m['topic']}-{m['partition']} ({ident}): offsets {m['log_start_offset']} to {m['end_offset'] - 1}, {len(segments)} segments, "
                  f"{total} records, {packed} of them in a codec that needs a library")


main()
