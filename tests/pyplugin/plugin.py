"""A Varve plugin in Python: a source and a sink, written from docs/formats/plugin-wire.md alone.

Run with "source" or "sink" as its argument. The source makes `count` records of `size` bytes; the sink appends the keys
and values it gets to the file `file` and keeps its offsets in memory.
"""

import base64
import datetime
import io
import json
import os
import queue
import sys
import tempfile
import threading
from concurrent import futures

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

import varve_plugin_pb2 as pb
import varve_plugin_pb2_grpc as pb_grpc

MAX_MESSAGE = 16 << 20
MAX_FRAME = 1 << 20
BLOCK = MAX_FRAME // 2


# --- numbers, blocks -------------------------------------------------------------------------------------------------


def uvarint(n):
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def signed(n):
    return uvarint(n << 1 if n >= 0 else (-n << 1) - 1)


class Encoder:
    """Makes the blocks of one direction of a stream."""

    def __init__(self):
        self.known = {}
        self.counts = {1: 0, 2: 0, 3: 3}
        self.ann, self.ann_count, self.body, self.count = bytearray(), 0, bytearray(), 0

    def number(self, kind, text):
        key = (kind, text)
        if key not in self.known:
            self.counts[kind] += 1
            self.known[key] = self.counts[kind]
            self.ann += uvarint(kind) + uvarint(self.counts[kind]) + uvarint(len(text)) + text
            self.ann_count += 1
        return uvarint(self.known[key])

    def value(self, schema, data):
        """schema: 0 null, 1 bytes, 2 text, 3 JSON, or Avro JSON."""
        if schema == 0:
            return b"\0"
        number = uvarint(schema) if isinstance(schema, int) else self.number(3, schema)
        return number + uvarint(len(data)) + data

    def add(self, topic, key, value, source, offset):
        self.body += self.number(1, topic.encode()) + signed(-1) + signed(0)
        self.body += self.value(*key) + self.value(*value) + uvarint(0)
        self.body += self.number(2, source) + uvarint(len(offset) + 1) + offset + signed(0)
        self.count += 1

    def take(self):
        block = uvarint(self.ann_count) + bytes(self.ann) + uvarint(self.count) + bytes(self.body)
        self.ann, self.ann_count, self.body, self.count = bytearray(), 0, bytearray(), 0
        return block


class Decoder:
    """Reads the blocks of one direction of a stream."""

    def __init__(self):
        self.known = {}

    def u(self):
        n = shift = 0
        while True:
            b = self.data.read(1)[0]
            n |= (b & 0x7F) << shift
            shift += 7
            if b < 0x80:
                return n

    def s(self):
        n = self.u()
        return n >> 1 if n & 1 == 0 else -(n >> 1) - 1

    def value(self):
        schema = self.u()
        if schema == 0:
            return None
        data = self.data.read(self.u())
        return data if schema < 4 else (self.known[3, schema], data)

    def decode(self, block):
        self.data = io.BytesIO(block)
        for _ in range(self.u()):
            kind, number = self.u(), self.u()
            text = self.data.read(self.u())
            if kind == 0:
                self.known.clear()
            else:
                self.known[kind, number] = text
        for _ in range(self.u()):
            r = {"topic": self.known[1, self.u()].decode(), "partition": self.s(), "timestamp": self.s()}
            r["key"], r["value"] = self.value(), self.value()
            r["headers"] = [(self.known[1, self.u()], self.value()) for _ in range(self.u())]
            source, offset = self.u(), self.u()
            if offset:
                self.data.read(offset - 1)
            r["offset"] = self.s()
            yield r


# --- tasks -----------------------------------------------------------------------------------------------------------


class Task:
    """One Task stream: messages to send go through a queue, which gRPC drains."""

    def __init__(self, generation):
        self.generation = generation
        self.out = queue.Queue()

    def send(self, **body):
        self.out.put(pb.PluginMessage(generation=self.generation, **body))

    def done(self, call, error=None, offsets=()):
        self.send(done=pb.Done(call=call, error=error, offsets=offsets))


ROW = json.dumps({
    "type": "record", "name": "py.Row", "connect.name": "py.Row",
    "fields": [{"name": "n", "type": "long"}, {"name": "pad", "type": ["null", "string"], "default": None}],
}).encode()


class Source(Task):
    def __init__(self, generation, start):
        super().__init__(generation)
        self.config = start.config
        self.credit = start.credit
        self.changed = threading.Condition()
        self.stopped = False
        self.next = 0
        for o in start.offsets:
            self.next = json.loads(o.offset)["n"] + 1
        self.encoder = Encoder()
        self.send(started=pb.Started())
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        count, size = int(self.config["count"]), int(self.config.get("size", "10"))
        pad = b"x" * size
        while self.next < count:
            n = self.next
            row = signed(n) + signed(1) + signed(size) + pad
            self.encoder.add(self.config["topic"], (2, str(n).encode()), (ROW, row), b'{"py":1}', b'{"n":%d}' % n)
            self.next += 1
            if len(self.encoder.body) >= BLOCK or self.next == count:
                if not self.send_block(self.encoder.take()):
                    return

    def send_block(self, block):
        with self.changed:
            self.changed.wait_for(lambda: self.stopped or self.credit > 0)
            if self.stopped:
                return False
            self.credit -= len(block)
        parts = [block[i:i + MAX_FRAME] for i in range(0, len(block), MAX_FRAME)]
        for i, part in enumerate(parts):
            more = i < len(parts) - 1
            self.send(records=pb.Records(block=part, more=more, last=not more))
        return True

    def handle(self, m):
        body = m.WhichOneof("body")
        with self.changed:
            if body == "credit":
                self.credit += m.credit.bytes
            elif body == "ack":
                print("acknowledged", m.ack.at.offset.decode(), file=sys.stderr, flush=True)
                self.done(m.call)
            elif body == "stop":
                self.stopped = True
            elif m.call:
                self.done(m.call, error=pb.Error(text=f"a source does not know {body}"))
            self.changed.notify_all()
        if body == "stop":
            self.thread.join()
            self.send(stopped=pb.Stopped())
            self.out.put(None)


class Sink(Task):
    def __init__(self, generation, start):
        super().__init__(generation)
        self.file = open(start.config["file"], "ab")
        self.next = {}
        self.decoder, self.parts, self.batch = Decoder(), b"", []
        self.send(started=pb.Started())

    def handle(self, m):
        body = m.WhichOneof("body")
        if body == "assign":
            for p in m.assign.partitions:
                self.next[p.topic, p.partition] = p.offset
        elif body == "revoke":
            for p in m.revoke.partitions:
                self.next.pop((p.topic, p.partition), None)
        elif body == "records":
            self.parts += m.records.block
            if not m.records.more:
                self.batch += self.decoder.decode(self.parts)
                self.parts = b""
            if m.records.last:
                for r in self.batch:
                    value = r["value"] if isinstance(r["value"], bytes) else repr(r["value"]).encode()
                    self.file.write(b"%s %d %d %s %s\n" % (r["topic"].encode(), r["partition"], r["offset"], r["key"] or b"-", value[:40]))
                    self.next[r["topic"], r["partition"]] = r["offset"] + 1
                self.batch = []
        elif body == "flush":
            self.file.flush()
            os.fsync(self.file.fileno())
            offsets = [pb.TopicPartitionOffset(topic=t, partition=p, offset=o) for (t, p), o in self.next.items()]
            self.done(m.call, offsets=offsets)
            return
        elif body == "stop":
            self.file.close()
            self.send(stopped=pb.Stopped())
            self.out.put(None)
        if m.call:
            self.done(m.call)


class Connector(pb_grpc.ConnectorServicer):
    def __init__(self, kind):
        self.kind = kind

    def Spec(self, request, context):
        keys = {"source": ["topic", "count"], "sink": ["file"]}[self.kind]
        return pb.SpecReply(
            name="py-" + self.kind, version="1.0", kind=self.kind, doc="A plugin in Python.",
            config=[pb.ConfigDef(name=k, type="STRING", required=True, importance="HIGH", doc=k, width="NONE", display_name=k) for k in keys],
        )

    def Validate(self, request, context):
        missing = [d.name for d in self.Spec(None, None).config if d.name not in request.config]
        return pb.ValidateReply(errors=[
            pb.ConfigError(key=k, message=f'Missing required configuration "{k}" which has no default value.') for k in missing
        ])

    def Tasks(self, request, context):
        return pb.TasksReply(tasks=[pb.TaskConfig(config=request.config)])

    def AlterOffsets(self, request, context):
        return pb.AlterOffsetsReply()

    def Features(self, request, context):
        return pb.FeaturesReply()

    def Metrics(self, request, context):
        return pb.MetricsReply()

    def Watch(self, request, context):
        ended = threading.Event()
        context.add_callback(ended.set)
        ended.wait()
        return iter(())

    def Task(self, messages, context):
        first = next(messages)
        task = {"source": Source, "sink": Sink}[first.start.kind](first.generation, first.start)

        def receive():
            try:
                for m in messages:
                    if m.generation == task.generation:
                        task.handle(m)
            except grpc.RpcError:
                pass  # the stream has ended
            task.out.put(None)

        threading.Thread(target=receive, daemon=True).start()
        yield from iter(task.out.get, None)


# --- the process -----------------------------------------------------------------------------------------------------


def certificate():
    """A key and a self-signed certificate for localhost: PEM, PEM, DER."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.timezone.utc)
    cert = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=1)).not_valid_after(now + datetime.timedelta(days=3650))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return private, cert.public_bytes(serialization.Encoding.PEM), cert.public_bytes(serialization.Encoding.DER)


def main():
    if os.environ.get("VARVE_PLUGIN") != "varve-connector":
        sys.exit("This is a Varve plugin: put it into the worker's plugin directory.")

    def exit_with_host():
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=exit_with_host, daemon=True).start()
    server = grpc.server(
        futures.ThreadPoolExecutor(max_workers=32),
        options=[("grpc.max_receive_message_length", MAX_MESSAGE), ("grpc.max_send_message_length", MAX_MESSAGE)],
    )
    pb_grpc.add_ConnectorServicer_to_server(Connector(sys.argv[1]), server)
    checks = health.HealthServicer()
    checks.set("plugin", health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    private, pem, der = certificate()
    credentials = grpc.ssl_server_credentials(
        [(private, pem)], root_certificates=os.environ["PLUGIN_CLIENT_CERT"].encode(), require_client_auth=True,
    )
    path = os.path.join(tempfile.mkdtemp(dir=os.environ["PLUGIN_UNIX_SOCKET_DIR"]), "s")
    server.add_secure_port("unix:" + path, credentials)
    server.start()
    print("1|1|unix|%s|grpc|%s" % (path, base64.b64encode(der).decode().rstrip("=")), flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    main()
