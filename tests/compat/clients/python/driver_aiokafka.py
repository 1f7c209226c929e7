"""The driver of aiokafka."""

import asyncio
import sys

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

import contract


def version():
    return aiokafka.__version__


def produce(bootstrap, codec, topic, records):
    asyncio.run(_produce(bootstrap, codec, topic, records))


async def _produce(bootstrap, codec, topic, records):
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec, enable_idempotence=True, acks="all",
        linger_ms=5, max_batch_size=65536,
    )
    async with producer:
        sent = [
            await producer.send(topic, value=r.value, key=r.key, headers=r.headers, timestamp_ms=r.timestamp) for r in records
        ]
        await asyncio.gather(*sent)


def _show(batches):
    for messages in batches.values():
        for m in messages:
            contract.show(m.topic, m.partition, m.offset, m.timestamp, m.key, m.value, m.headers)
    sys.stdout.flush()


def consume(bootstrap, topic, count):
    asyncio.run(_consume(bootstrap, topic, count))


async def _consume(bootstrap, topic, count):
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        while count > 0:
            batches = await consumer.getmany(timeout_ms=1000, max_records=2000)
            _show(batches)
            count -= sum(map(len, batches.values()))


def group(bootstrap, name, topic):
    asyncio.run(_group(bootstrap, name, topic))


async def _group(bootstrap, name, topic):
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=name, auto_offset_reset="earliest", enable_auto_commit=False,
        session_timeout_ms=6000, heartbeat_interval_ms=1000,
    )
    async with consumer:
        while True:
            batches = await consumer.getmany(timeout_ms=100, max_records=1000)
            if batches:
                _show(batches)
                await consumer.commit({tp: m[-1].offset + 1 for tp, m in batches.items()})


if __name__ == "__main__":
    contract.main(sys.modules[__name__])
