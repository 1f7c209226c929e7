package record

// BatchIterator walks concatenated batches without allocating. It checks sizes and magic, not checksums.
//
//	it := record.NewBatchIterator(b)
//	for h, batch, ok := it.Next(); ok; h, batch, ok = it.Next() { … }
//	if err := it.Err(); err != nil { … }
type BatchIterator struct {
	b   []byte
	pos int
	err error
}

// NewBatchIterator starts at the first byte of b. The batches it returns are parts of b.
func NewBatchIterator(b []byte) BatchIterator { return BatchIterator{b: b} }

// Next returns the next whole batch; ok is false at the end, at a partial batch and at a corrupt header.
func (it *BatchIterator) Next() (h Header, batch []byte, ok bool) {
	if it.err != nil || it.pos == len(it.b) {
		return Header{}, nil, false
	}
	rest := it.b[it.pos:]
	h, err := ParseHeader(rest)
	if err == nil && h.Size() > len(rest) {
		err = ErrPartial
	}
	if err != nil {
		it.err = err
		return Header{}, nil, false
	}
	it.pos += h.Size()
	return h, rest[:h.Size():h.Size()], true
}

// Position is the number of bytes of whole batches returned so far.
func (it *BatchIterator) Position() int { return it.pos }

// Err is nil after a walk that ended with the last byte, ErrPartial where a batch was cut (as at the end of a fetch), and
// of the class ErrCorrupt otherwise.
func (it *BatchIterator) Err() error { return it.err }
