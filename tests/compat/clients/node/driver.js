// The driver of KafkaJS. Its own codecs are none and gzip; the others are packages, as its documentation says.
'use strict'
const { once } = require('node:events')
const readline = require('node:readline')
const kafkajs = require('kafkajs')
const lz4 = require('lz4js')
const { ZstdCodec } = require('zstd-codec')
const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = kafkajs

CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async (encoder) => Buffer.from(lz4.compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from(lz4.decompress(buffer)),
})
const zstd = new Promise((resolve) => ZstdCodec.run((z) => resolve(new z.Simple())))
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from((await zstd).compress(encoder.buffer, 3)),
  decompress: async (buffer) => Buffer.from((await zstd).decompress(buffer)),
})
const codecs = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}

const connect = (bootstrap) => new Kafka({ clientId: 'driver', brokers: [bootstrap], logLevel: logLevel.ERROR })
const decode = (text) => (text === '-' ? null : Buffer.from(text, 'base64'))
const encode = (value) => (value === null ? '-' : value.toString('base64'))

function headersOf(text) {
  const out = {}
  for (const h of text.split(',').filter((h) => h)) {
    const at = h.indexOf('=')
    out[h.slice(0, at)] = Buffer.from(h.slice(at + 1), 'base64')
  }
  return out
}

async function read() {
  const records = []
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [timestamp, key, value, headers] = line.split('\t')
    records.push({ timestamp, key: decode(key), value: decode(value), headers: headersOf(headers) })
  }
  return records
}

async function produce(bootstrap, codec, topic, records) {
  const producer = connect(bootstrap).producer({ idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  for (let i = 0; i < records.length; i += 5000) {
    await producer.send({ topic, messages: records.slice(i, i + 5000), compression: codecs[codec], acks: -1 })
  }
  await producer.disconnect()
}

// lines gives the records of a batch as the contract wants them.
function lines(batch) {
  let out = ''
  for (const m of batch.messages) {
    const headers = Object.entries(m.headers).map(([n, v]) => `${n}=${v.toString('base64')}`)
    out += `${batch.topic}\t${batch.partition}\t${m.offset}\t${m.timestamp}\t${encode(m.key)}\t${encode(m.value)}\t${headers.join(',')}\n`
  }
  return out
}

async function print(text) {
  if (!process.stdout.write(text)) await once(process.stdout, 'drain')
}

// consume uses a group that is never committed to, since KafkaJS has no consumer without one.
async function consume(bootstrap, topic, count) {
  const consumer = connect(bootstrap).consumer({ groupId: `read-${topic}-${process.pid}`, maxWaitTimeInMs: 100 })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, (e) => reject(e.payload.error))
    consumer.run({
      autoCommit: false,
      eachBatch: async ({ batch }) => {
        await print(lines(batch))
        count -= batch.messages.length
        if (count <= 0) resolve()
      },
    }).catch(reject)
  })
  await consumer.disconnect()
}

async function group(bootstrap, name, topic) {
  const consumer = connect(bootstrap).consumer({ groupId: name, sessionTimeout: 6000, heartbeatInterval: 1000, maxWaitTimeInMs: 100 })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachBatch: async ({ batch, heartbeat }) => {
      await print(lines(batch))
      const offset = (BigInt(batch.lastOffset()) + 1n).toString()
      await consumer.commitOffsets([{ topic, partition: batch.partition, offset }])
      await heartbeat()
    },
  })
  await new Promise(() => {})
}

async function main([command, bootstrap, ...args]) {
  switch (command) {
    case 'version':
      return print(require('kafkajs/package.json').version + '\n')
    case 'produce': {
      const records = await read()
      for (const [codec, topic] of args.map((a) => a.split('='))) await produce(bootstrap, codec, topic, records)
      return
    }
    case 'consume':
      for (const topic of args.slice(1)) await consume(bootstrap, topic, Number(args[0]))
      return
    case 'group':
      return group(bootstrap, ...args)
    default:
      throw new Error(`${command} is no command of the contract`)
  }
}

main(process.argv.slice(2)).catch((e) => {
  console.error(e)
  process.exit(1)
})
