//go:build differential

package requests

import "github.com/twmb/franz-go/pkg/kmsg"

func (m *model) initProducer() kmsg.Request {
	r := kmsg.NewPtrInitProducerIDRequest()
	p := m.producer()
	r.TransactionalID, r.TransactionTimeoutMillis, r.ProducerID, r.ProducerEpoch = p.txn, long, -1, -1
	switch {
	case m.chance(25):
		r.ProducerID, r.ProducerEpoch = p.id, p.epoch
	case m.chance(8):
		r.ProducerID, r.ProducerEpoch = m.identity(p)
	case m.chance(5):
		r.TransactionTimeoutMillis = pick[int32](m, 0, -1, 1<<31-1)
	case m.chance(2):
		r.TransactionalID = kmsg.StringPtr("")
	}
	return r
}

func (m *model) addPartitions() kmsg.Request {
	r := kmsg.NewPtrAddPartitionsToTxnRequest()
	p := m.transactional()
	r.TransactionalID = *p.txn
	r.ProducerID, r.ProducerEpoch = m.identity(p)
	b := kmsg.NewAddPartitionsToTxnRequestTransaction()
	b.TransactionalID, b.ProducerID, b.ProducerEpoch, b.VerifyOnly = r.TransactionalID, r.ProducerID, r.ProducerEpoch, m.chance(40)
	for _, t := range m.different() {
		rt, bt := kmsg.NewAddPartitionsToTxnRequestTopic(), kmsg.NewAddPartitionsToTxnRequestTransactionTopic()
		rt.Topic, rt.Partitions = t.name, []int32{m.partition()}
		if m.chance(50) {
			rt.Partitions = []int32{0, 1}
		}
		bt.Topic, bt.Partitions = rt.Topic, rt.Partitions
		r.Topics, b.Topics = append(r.Topics, rt), append(b.Topics, bt)
	}
	r.Transactions = append(r.Transactions, b)
	return r
}

func (m *model) addOffsets() kmsg.Request {
	r := kmsg.NewPtrAddOffsetsToTxnRequest()
	p := m.transactional()
	r.TransactionalID, r.Group = *p.txn, m.group().name
	r.ProducerID, r.ProducerEpoch = m.identity(p)
	return r
}

func (m *model) endTxn() kmsg.Request {
	r := kmsg.NewPtrEndTxnRequest()
	p := m.transactional()
	r.TransactionalID, r.Commit = *p.txn, m.chance(50)
	r.ProducerID, r.ProducerEpoch = m.identity(p)
	if m.chance(4) {
		r.TransactionalID = pick(m, "", "no-such-transaction")
	}
	return r
}

func (m *model) txnCommit() kmsg.Request {
	r := kmsg.NewPtrTxnOffsetCommitRequest()
	p, g := m.transactional(), m.group()
	r.TransactionalID, r.Group, r.Generation = *p.txn, g.name, -1
	r.ProducerID, r.ProducerEpoch = m.identity(p)
	if len(g.members) > 0 && m.chance(50) {
		who := m.member(g)
		r.MemberID, r.InstanceID, r.Generation = who.id, who.instance, m.generation(g)
	}
	for _, t := range m.different() {
		rt := kmsg.NewTxnOffsetCommitRequestTopic()
		rt.Topic, rt.TopicID = t.name, t.id
		for i := range 1 + m.IntN(2) {
			tp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
			tp.Partition, tp.Offset, tp.LeaderEpoch, tp.Metadata = int32(i), int64(m.IntN(10)), -1, m.metadata()
			rt.Partitions = append(rt.Partitions, tp)
		}
		r.Topics = append(r.Topics, rt)
	}
	return r
}

func (m *model) writeMarkers() kmsg.Request {
	r := kmsg.NewPtrWriteTxnMarkersRequest()
	w := kmsg.NewWriteTxnMarkersRequestMarker()
	w.ProducerID, w.ProducerEpoch = m.identity(m.transactional())
	w.Committed, w.TransactionVersion = m.chance(50), int8(m.IntN(3))
	for _, t := range m.different() {
		rt := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
		rt.Topic, rt.Partitions = t.name, []int32{m.partition()}
		w.Topics = append(w.Topics, rt)
	}
	r.Markers = append(r.Markers, w)
	return r
}

func (m *model) describeTransactions() kmsg.Request {
	r := kmsg.NewPtrDescribeTransactionsRequest()
	r.TransactionalIDs = sample(m, 2, func() string { return pick(m, *m.transactional().txn, *m.transactional().txn, "", "no-such") })
	return r
}

func (m *model) listTransactions() kmsg.Request {
	r := kmsg.NewPtrListTransactionsRequest()
	r.DurationFilterMillis = pick[int64](m, -1, -1, 1<<50)
	if m.chance(40) {
		r.StateFilters = sample(m, 2, func() string { return pick(m, "Ongoing", "Empty", "CompleteCommit", "ongoing", "nonsense") })
	}
	if m.chance(40) {
		r.ProducerIDFilters = sample(m, 2, func() int64 { return pick(m, m.transactional().id, -1, 1<<40) })
	}
	if m.chance(40) {
		r.TransactionalIDPattern = kmsg.StringPtr(pick(m, "", m.named("x.*"), "(", "nothing.*", ".*x"))
	}
	return r
}

func (m *model) describeProducers() kmsg.Request {
	r := kmsg.NewPtrDescribeProducersRequest()
	for _, t := range m.different() {
		rt := kmsg.NewDescribeProducersRequestTopic()
		rt.Topic, rt.Partitions = t.name, []int32{0, m.partition()}
		r.Topics = append(r.Topics, rt)
	}
	return r
}
