package api

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/commitlog"
	"github.com/varvehq/varve/broker/partition"
	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/record"
)

// Produce, v3–v13 (told from v0: KAFKA-18659).
//
// Batches are appended when the request is read, in order, and stay opaque; the answer waits for the disk, or with acks=-1 for
// the high watermark, so that pipelined requests share one sync. acks=0 has no answer; where an append fails then, the
// connection is closed, which is all a client can be told. Errors are per partition. From v13 on topics are named by id.
// Answers of v10 and later name the leader where the client asked another broker (KIP-951).
//
// One request has the transactional batches of one producer: with several all its partitions are INVALID_PRODUCER_ID_MAPPING.
// A transactional batch goes in only while its partition is in the producer's ongoing transaction (KIP-890). From v12 on the
// first batch puts the partition in, and the connection waits until that is durable; older clients have to have added it, and
// are refused with INVALID_TXN_STATE (v11: TRANSACTION_ABORTABLE) otherwise. Control batches of clients are INVALID_RECORD.

// produceWait is a Produce request whose batches are appended.
type produceWait struct {
	h       *Handlers
	req     *Request
	resp    *kmsg.ProduceResponse
	refused error // for all partitions
	acks    int16
	timeout time.Duration
	parts   []producePart // those that wait
	waiting partition.Wait
}

type producePart struct {
	p     *partition.Partition
	last  int64 // last offset appended
	epoch int32
	at    [2]int // topic and partition in the response
}

func (h *Handlers) produce(ctx context.Context, r *Request) (Later, error) {
	req := r.Body.(*kmsg.ProduceRequest)
	resp := kmsg.NewPtrProduceResponse()
	resp.Version = r.Version
	w := &produceWait{h: h, req: r, resp: resp, acks: req.Acks, timeout: time.Duration(req.TimeoutMillis) * time.Millisecond}
	if req.TransactionID != nil && h.severalProducers(req) {
		w.refused = errSeveralProducers
	}
	resp.Topics = make([]kmsg.ProduceResponseTopic, len(req.Topics))
	for i := range req.Topics {
		t, out := &req.Topics[i], &resp.Topics[i]
		out.Topic, out.TopicID = t.Topic, t.TopicID
		out.Partitions = make([]kmsg.ProduceResponseTopicPartition, len(t.Partitions))
		for j := range t.Partitions {
			w.append(ctx, t, &t.Partitions[j], [2]int{i, j})
		}
	}
	if req.Acks == 0 {
		return nil, w.firstError()
	}
	return w, nil
}

// append appends the records of one partition and notes the outcome in the response.
func (w *produceWait) append(ctx context.Context, t *kmsg.ProduceRequestTopic, in *kmsg.ProduceRequestTopicPartition, at [2]int) {
	out := &w.resp.Topics[at[0]].Partitions[at[1]]
	out.Default()
	out.Partition = in.Partition
	out.BaseOffset, out.LogAppendTime, out.LogStartOffset = -1, -1, -1
	if w.refused != nil {
		w.fail(out, nil, w.refused)
		return
	}
	p, err := w.h.partitionFor(w.req.Version, 13, t.Topic, t.TopicID, in.Partition)
	if err == nil {
		err = checkProduce(w.req.Version, w.acks, p, in.Records)
	}
	if err != nil {
		w.fail(out, p, err)
		return
	}
	if err := checkKeys(p, in.Records, out); err != nil {
		w.fail(out, p, err)
		out.LogStartOffset = p.LogStart()
		return
	}
	release, err := w.enter(ctx, p, in.Records)
	if err != nil {
		w.fail(out, p, err)
		return
	}
	a, err := p.Append(in.Records, partition.AppendOptions{AllReplicas: w.acks == -1})
	release()
	if err != nil {
		if w.fail(out, p, err); tellsLogStart(out.ErrorCode) {
			out.LogStartOffset = p.LogStart()
		}
		return
	}
	out.BaseOffset, out.LogAppendTime, out.LogStartOffset = a.FirstOffset, a.LogAppendTime, a.LogStart
	w.parts = append(w.parts, producePart{p: p, last: a.LastOffset, epoch: a.LeaderEpoch, at: at})
}

// tellsLogStart reports whether an append that fails with this code tells where the log begins.
func tellsLogStart(code int16) bool {
	switch code {
	case kerr.NotLeaderForPartition.Code, kerr.CorruptMessage.Code, kerr.MessageTooLarge.Code, kerr.KafkaStorageError.Code:
		return false
	}
	return true
}

// severalProducers reports whether the transactional batches that could be written are of more than one producer or epoch.
func (h *Handlers) severalProducers(req *kmsg.ProduceRequest) bool {
	var first *record.Header
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			in := &t.Partitions[j]
			p, err := h.partitionFor(req.Version, 13, t.Topic, t.TopicID, in.Partition)
			if err != nil || checkProduce(req.Version, -1, p, in.Records) != nil {
				continue
			}
			hdr, err := record.ParseHeader(in.Records)
			switch {
			case err != nil || !hdr.Transactional() || !hdr.HasProducer():
			case first == nil:
				first = &hdr
			case hdr.ProducerID != first.ProducerID || hdr.ProducerEpoch != first.ProducerEpoch:
				return true
			}
		}
	}
	return false
}

// enter lets a transactional batch through, which keeps the marker of its transaction back until release.
func (w *produceWait) enter(ctx context.Context, p *partition.Partition, batch []byte) (release func(), err error) {
	hdr, err := record.ParseHeader(batch)
	if err != nil {
		return nil, err
	}
	if !hdr.Transactional() {
		return func() {}, nil
	}
	id := w.req.Body.(*kmsg.ProduceRequest).TransactionID
	if id == nil || *id == "" || !hdr.HasProducer() {
		return nil, errProducerID
	}
	tp := kafka.TopicPartition{Topic: p.Topic(), Partition: p.Index()}
	joins := w.req.Version >= 12
	release, err = w.h.Txns.Coordinator().Enter(ctx, *id, hdr.ProducerID, hdr.ProducerEpoch, tp, joins)
	if err != nil {
		return nil, produceTxnCode(err, w.req.Version)
	}
	if joins && hdr.BaseSequence != 0 {
		if err = checkBegun(p, &hdr); err != nil {
			release()
			return nil, err
		}
	}
	return release, nil
}

// checkBegun refuses a later batch of a producer whose first has not been written: with transactions of version 2 every
// transaction begins with sequence 0 (KIP-890), so that what went before it failed or is lost.
func checkBegun(p *partition.Partition, hdr *record.Header) error {
	known, err := p.KnowsProducer(hdr.ProducerID)
	if err == nil && !known {
		err = fmt.Errorf("%w: producer %d begins with sequence %d", commitlog.ErrOutOfOrderSequence, hdr.ProducerID, hdr.BaseSequence)
	}
	return err
}

func checkProduce(version, acks int16, p *partition.Partition, records []byte) error {
	if acks < -1 || acks > 1 {
		return errRequiredAcks
	}
	if name := p.Topic(); name == kafka.ConsumerOffsetsTopic || name == kafka.TransactionStateTopic {
		return errInternalTopic
	}
	if len(records) < record.HeaderSize {
		if len(records) > 16 && records[16] != 2 {
			return errMagic // magic stands at the same place in all formats
		}
		return errOneBatch
	}
	if records[16] != 2 {
		return errMagic
	}
	hdr, err := record.ParseHeader(records)
	if err != nil {
		return err
	}
	switch {
	case hdr.Size() != len(records):
		return errOneBatch // a batch that is cut off counts for none
	case hdr.Control():
		return errControlBatch
	case hdr.BaseOffset != 0:
		return errBaseOffset
	case hdr.HasProducer() && hdr.BaseSequence < 0:
		return errNoSequence
	case hdr.Codec() == record.Zstd && version < 7:
		return errZstd
	}
	return nil
}

// checkKeys refuses records without a key where the topic is compacted, naming each (KIP-467). Decompression is bounded.
func checkKeys(p *partition.Partition, records []byte, out *kmsg.ProduceResponseTopicPartition) error {
	cfg := p.Config()
	if !cfg.Compact {
		return nil
	}
	if err := record.VerifyBatch(records); err != nil {
		return err
	}
	const named = 1000 // one bad batch does not make a large answer
	index := int32(0)
	err := record.ForEachRecord(records, min(int(cfg.MaxDecompressed), keyCheckLimit), func(r *record.Record) error {
		if r.Key == nil && len(out.ErrorRecords) < named {
			e := kmsg.NewProduceResponseTopicPartitionErrorRecord()
			e.RelativeOffset = index
			e.ErrorMessage = kmsg.StringPtr(fmt.Sprintf("Compacted topic cannot accept message without key in topic partition %s.", p))
			out.ErrorRecords = append(out.ErrorRecords, e)
		}
		index++
		return nil
	})
	if err == nil && len(out.ErrorRecords) > 0 {
		err = &rejectedRecords{out.ErrorRecords}
	}
	return err
}

// rejectedRecords has Kafka's text for records that were refused one by one.
type rejectedRecords struct {
	records []kmsg.ProduceResponseTopicPartitionErrorRecord
}

func (e *rejectedRecords) Unwrap() error { return errNoKey }

func (e *rejectedRecords) Error() string {
	text := make([]string, 0, 3)
	for _, r := range e.records[:min(len(e.records), 3)] {
		text = append(text, fmt.Sprintf("RecordError(batchIndex=%d, message='%s')", r.RelativeOffset, *r.ErrorMessage))
	}
	return fmt.Sprintf("One or more records have been rejected due to %d record errors in total, and only showing the first three errors at most: [%s]",
		len(e.records), strings.Join(text, ", "))
}

// keyCheckLimit is what a batch of a compacted topic may decompress to; compaction has the same limit.
const keyCheckLimit = 64 << 20

// fail notes an error of one partition.
func (w *produceWait) fail(out *kmsg.ProduceResponseTopicPartition, p *partition.Partition, err error) {
	out.ErrorCode, out.ErrorMessage = codeOf(err), messageOf(err)
	out.BaseOffset, out.LogAppendTime = -1, -1
	if out.ErrorCode == kerr.UnknownServerError.Code || out.ErrorCode == kerr.KafkaStorageError.Code {
		out.ErrorMessage = nil // it is for the log
		w.h.warn("produce failed", "partition", p, "err", err)
	}
	if out.ErrorCode == kerr.NotLeaderForPartition.Code && p != nil && w.req.Version >= 10 {
		w.tellLeader(out, p)
	}
}

func (w *produceWait) tellLeader(out *kmsg.ProduceResponseTopicPartition, p *partition.Partition) {
	leader, epoch := p.Leader()
	host, port, ok := w.h.Data.Endpoint(leader, w.req.Conn.Listener)
	if !ok || leader == w.h.NodeID {
		return
	}
	out.CurrentLeader.LeaderID, out.CurrentLeader.LeaderEpoch = leader, epoch
	for i := range w.resp.Brokers {
		if w.resp.Brokers[i].NodeID == leader {
			return
		}
	}
	b := kmsg.NewProduceResponseBroker()
	b.NodeID, b.Host, b.Port = leader, host, port
	w.resp.Brokers = append(w.resp.Brokers, b)
}

// firstError is what closes the connection of an acks=0 request.
func (w *produceWait) firstError() error {
	for i := range w.resp.Topics {
		for j := range w.resp.Topics[i].Partitions {
			if code := w.resp.Topics[i].Partitions[j].ErrorCode; code != 0 {
				return fmt.Errorf("acks=0: partition %d of topic %q: %w", w.resp.Topics[i].Partitions[j].Partition,
					w.resp.Topics[i].Topic, kerr.ErrorForCode(code))
			}
		}
	}
	return nil
}

// kind is what the answer waits for.
func (w *produceWait) kind() partition.Progress {
	if w.acks == -1 {
		return partition.Committed
	}
	return partition.Flushed
}

// Ready reports whether everything is durable already.
func (w *produceWait) Ready() bool {
	for i := range w.parts {
		if !w.parts[i].p.Reached(w.kind(), w.parts[i].last) {
			return false
		}
	}
	return true
}

// Wait answers when everything is on disk (acks=1) or committed (acks=-1): the acknowledgement is given here and nowhere
// else.
func (w *produceWait) Wait(ctx context.Context) (kmsg.Response, error) {
	var sig *partition.Signal
	var timer *time.Timer
	for i := range w.parts {
		part := &w.parts[i]
		for !part.p.Reached(w.kind(), part.last) {
			if err := part.p.Err(); err != nil {
				w.fail(w.at(part), part.p, err)
				break
			}
			if sig == nil {
				sig = getSignal()
				timer = time.NewTimer(w.remaining())
				defer func() { timer.Stop(); putSignal(sig) }()
			}
			expired := timer.C
			if part.p.Alone() {
				expired = nil
			}
			part.p.Watch(&w.waiting, w.kind(), part.last, sig)
			select {
			case <-sig.C():
			case <-expired:
				timer.Reset(0) // the partitions after this one have no time left either
				w.waiting.Cancel()
				if !part.p.Reached(w.kind(), part.last) {
					w.at(part).ErrorCode = kerr.RequestTimedOut.Code
				}
			case <-ctx.Done():
				w.waiting.Cancel()
				return nil, ctx.Err()
			}
			w.waiting.Cancel()
			if w.at(part).ErrorCode != 0 {
				break
			}
		}
	}
	return w.resp, nil
}

// remaining is the time that is left of the request's timeout. It bounds the waiting for other replicas only: the disk
// either takes the bytes or fails the partition.
func (w *produceWait) remaining() time.Duration {
	if w.acks == 1 {
		return math.MaxInt64
	}
	return w.timeout - w.h.Clock().Sub(w.req.Received)
}

func (w *produceWait) at(p *producePart) *kmsg.ProduceResponseTopicPartition {
	return &w.resp.Topics[p.at[0]].Partitions[p.at[1]]
}

// Abandon has nothing to release: what was appended stays.
func (w *produceWait) Abandon() {}

// checkProduceFrame refuses requests that name far more partitions than their bytes can hold records for: decoded they
// would take many times their frame.
func checkProduceFrame(version int16, body []byte) error {
	if len(body) <= DefaultFrameLimit {
		return nil
	}
	r := wireReader{b: body, flex: version >= 9}
	r.skipString() // transactional id
	r.skip(2 + 4)  // acks, timeout
	elements, limit := 0, 1024+len(body)/64
	for range r.arrayLen() {
		if version >= 13 {
			r.skip(16)
		} else {
			r.skipString()
		}
		n := r.arrayLen()
		if elements += 1 + n; elements > limit || r.bad {
			return fmt.Errorf("%w: more than %d topics and partitions in %d bytes", ErrMalformed, limit, len(body))
		}
		for range n {
			r.skip(4)
			r.skipBytes()
			r.skipTags()
		}
		r.skipTags()
		if r.bad {
			return fmt.Errorf("%w: produce request of %d bytes", ErrMalformed, len(body))
		}
	}
	return nil
}
