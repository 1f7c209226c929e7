// Package record is the codec of Kafka's record batches (magic 2) and of the files beside a segment. It owns the batch
// header, CRC-32C verification, reading and building of records in all five codecs, and the byte formats of offset,
// time and transaction indexes, producer snapshots and leader epoch checkpoints. It promises: parsers never panic and
// never allocate more than a small multiple of their input or the limit they were given; walking headers allocates
// nothing; what it writes is byte-equal to Kafka's own files. It never touches a file or a socket.
//
// A batch, big-endian:
//
//	 0 baseOffset           int64
//	 8 batchLength          int32    bytes after this field
//	12 partitionLeaderEpoch int32
//	16 magic                int8     2
//	17 crc                  uint32   CRC-32C of everything after it
//	21 attributes           int16    0-2 codec, 3 timestamp type, 4 transactional, 5 control, 6 delete horizon
//	23 lastOffsetDelta      int32
//	27 baseTimestamp        int64
//	35 maxTimestamp         int64
//	43 producerId           int64
//	51 producerEpoch        int16
//	53 baseSequence         int32
//	57 recordsCount         int32
//	61 records              compressed as one block where a codec is set
//
// A record: varint length, int8 attributes, varlong timestamp delta, varint offset delta, varint key length (-1 null),
// key, varint value length (-1 null), value, varint header count, headers (varint key length, key, varint value length,
// value).
package record
