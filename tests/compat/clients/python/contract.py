"""The drivers' side of the contract with the compatibility suite (golang/contract/contract.go has its text)."""

import collections
import sys
from base64 import b64decode, b64encode

Record = collections.namedtuple("Record", "timestamp key value headers")


def _decode(text):
    return None if text == "-" else b64decode(text)


def _encode(value):
    return "-" if value is None else b64encode(value).decode()


def _read():
    for line in sys.stdin:
        timestamp, key, value, headers = line.rstrip("\n").split("\t")
        pairs = (h.split("=", 1) for h in headers.split(",") if h)
        yield Record(int(timestamp), _decode(key), _decode(value), [(n, b64decode(v)) for n, v in pairs])


def show(topic, partition, offset, timestamp, key, value, headers):
    """Prints a record."""
    pairs = ",".join(f"{n}={b64encode(v or b'').decode()}" for n, v in headers or ())
    sys.stdout.write(f"{topic}\t{partition}\t{offset}\t{timestamp}\t{_encode(key)}\t{_encode(value)}\t{pairs}\n")


def main(client):
    """Runs the command of the arguments with a client, which has version, produce, consume and group."""
    match sys.argv[1:]:
        case ["version"]:
            print(client.version())
        case ["produce", bootstrap, *topics]:
            records = list(_read())
            for codec, topic in (t.split("=") for t in topics):
                client.produce(bootstrap, codec, topic, records)
        case ["consume", bootstrap, count, *topics]:
            for topic in topics:
                client.consume(bootstrap, topic, int(count))
        case ["group", bootstrap, group, topic]:
            client.group(bootstrap, group, topic)
        case other:
            sys.exit(f"arguments {other} are no command of the contract")
