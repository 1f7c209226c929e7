"""The driver of confluent-kafka, which is librdkafka."""

import sys

import confluent_kafka
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

import contract


def version():
    return f"{confluent_kafka.version()} (librdkafka {confluent_kafka.libversion()[0]})"


def produce(bootstrap, codec, topic, records):
    failed = []

    def delivered(err, _):
        if err is not None:
            failed.append(err)

    producer = Producer({
        "bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": True, "linger.ms": 5,
        "queue.buffering.max.messages": 1000000,
    })
    for r in records:
        producer.produce(topic, value=r.value, key=r.key, headers=r.headers, timestamp=r.timestamp, on_delivery=delivered)
        producer.poll(0)
    if producer.flush(60) or failed:
        sys.exit(f"{len(failed)} records failed: {failed[:3]}")


def _show(messages):
    for m in messages:
        if m.error():
            raise KafkaException(m.error())
        contract.show(m.topic(), m.partition(), m.offset(), m.timestamp()[1], m.key(), m.value(), m.headers())
    sys.stdout.flush()


def consume(bootstrap, topic, count):
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    partitions = consumer.list_topics(topic).topics[topic].partitions
    consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
    while count > 0:
        messages = consumer.consume(min(count, 1000), 1)
        _show(messages)
        count -= len(messages)
    consumer.close()


def group(bootstrap, name, topic):
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": name, "enable.auto.commit": False, "auto.offset.reset": "earliest",
        "session.timeout.ms": 6000, "heartbeat.interval.ms": 1000, "partition.assignment.strategy": "cooperative-sticky",
    })
    consumer.subscribe([topic])
    while True:
        messages = consumer.consume(1000, 0.1)
        if messages:
            _show(messages)
            consumer.commit(asynchronous=False)


if __name__ == "__main__":
    contract.main(sys.modules[__name__])
