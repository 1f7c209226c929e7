"""The driver of kafka-python."""

import sys

import kafka
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

import contract


def version():
    return kafka.__version__


def produce(bootstrap, codec, topic, records):
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec, enable_idempotence=True, acks="all",
        linger_ms=5, batch_size=65536,
    )
    sent = [producer.send(topic, value=r.value, key=r.key, headers=r.headers, timestamp_ms=r.timestamp) for r in records]
    producer.flush()
    for f in sent:
        f.get(timeout=0)  # raises where the record failed
    producer.close()


def _show(batches):
    for messages in batches.values():
        for m in messages:
            contract.show(m.topic, m.partition, m.offset, m.timestamp, m.key, m.value, m.headers)
    sys.stdout.flush()


def consume(bootstrap, topic, count):
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, p) for p in consumer.partitions_for_topic(topic)])
    while count > 0:
        batches = consumer.poll(timeout_ms=1000, max_records=2000)
        _show(batches)
        count -= sum(map(len, batches.values()))
    consumer.close()


def group(bootstrap, name, topic):
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=name, auto_offset_reset="earliest", enable_auto_commit=False,
        session_timeout_ms=6000, heartbeat_interval_ms=1000,
    )
    while True:
        batches = consumer.poll(timeout_ms=100, max_records=1000)
        if batches:
            _show(batches)
            consumer.commit()


if __name__ == "__main__":
    contract.main(sys.modules[__name__])
