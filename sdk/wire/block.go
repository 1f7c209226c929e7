package wire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/varvehq/varve/sdk"
	"github.com/varvehq/varve/sdk/wire/wirepb"
)

// A block, all numbers being unsigned LEB128 varints, "signed" ones zigzag first:
//
//	announcements  count, then each: kind, number, length, bytes
//	               kind 0: forget all announcements of this direction (number 0, length 0)
//	               kind 1: string; 2: source partition (JSON object); 3: schema (Avro JSON)
//	records        count, then each:
//	               topic string, partition (signed), timestamp (signed), key value, value value,
//	               number of headers, each: string, value
//	               source partition (0: none), source offset (0: none, else its length + 1, bytes), offset (signed)
//	value          schema; unless it is 0: length, bytes
//
// Announced numbers start at 1, those of schemas at 4: schema 0 is null, 1 bytes, 2 a string, 3 JSON without schema.
const (
	announceReset  = 0
	announceString = 1
	announceSource = 2
	announceSchema = 3

	schemaNull  = 0
	schemaBytes = 1
	schemaText  = 2
	schemaJSON  = 3
	firstSchema = 4
)

// BlockTarget is the size at which a sender ends a block; one record more than that goes in.
const BlockTarget = MaxFrame / 2

// What a receiver keeps of announcements at most; a sender forgets before it gets there.
const (
	maxAnnounced      = 1 << 16
	maxAnnouncedBytes = 16 << 20
	headRoom          = 2 * binary.MaxVarintLen64
	maxSpare          = 8 // blocks an encoder keeps for reuse
)

var (
	// ErrBlock marks a malformed block.
	ErrBlock = errors.New("malformed block")
	// ErrRecordTooLarge means that a record is longer than max.record.bytes.
	ErrRecordTooLarge = errors.New("record is longer than max.record.bytes")
)

// Encoder makes the blocks of one direction of one stream. Not safe for concurrent use.
type Encoder struct {
	maxRecord int
	ann       []byte // announcements of the block
	annCount  int
	buf       []byte // headRoom, then the records
	count     int
	spare     [][]byte

	strings       map[string]uint64
	sources       map[*sdk.SourcePartition]uint64
	sourcesByText map[string]uint64
	schemas       map[*sdk.Schema]uint64
	schemasByText map[string]uint64
	kept          int // bytes announced
	lastTopic     string
	lastTopicID   uint64
}

// NewEncoder returns an encoder that refuses records longer than maxRecord.
func NewEncoder(maxRecord int) *Encoder {
	e := &Encoder{maxRecord: maxRecord}
	e.forget()
	return e
}

func (e *Encoder) forget() {
	e.strings, e.sources, e.sourcesByText = map[string]uint64{}, map[*sdk.SourcePartition]uint64{}, map[string]uint64{}
	e.schemas, e.schemasByText, e.kept, e.lastTopic, e.lastTopicID = map[*sdk.Schema]uint64{}, map[string]uint64{}, 0, "", 0
}

func (e *Encoder) full() bool {
	return e.kept > maxAnnouncedBytes*3/4 ||
		max(len(e.strings), len(e.sources), len(e.sourcesByText), len(e.schemas), len(e.schemasByText)) > maxAnnounced*3/4
}

// Len is the size of the block so far, Count its number of records.
func (e *Encoder) Len() int { return len(e.buf) + len(e.ann) }

// Count is the number of records in the block so far.
func (e *Encoder) Count() int { return e.count }

// Add appends a record. After an error the block has no part of that record.
func (e *Encoder) Add(r *sdk.Record) error {
	if n := size(r); n > e.maxRecord {
		return fmt.Errorf("%w: %d bytes, the limit is %d", ErrRecordTooLarge, n, e.maxRecord)
	}
	if e.count == 0 {
		if e.full() {
			e.forget()
			e.ann = append(e.ann, announceReset, 0, 0)
			e.annCount++
		}
		if n := len(e.spare); cap(e.buf) == 0 && n > 0 {
			e.buf, e.spare = e.spare[n-1], e.spare[:n-1]
		}
		e.buf = append(e.buf[:0], make([]byte, headRoom)...)
	}
	start := len(e.buf)
	b, err := e.record(e.buf, r)
	if err != nil {
		e.buf = e.buf[:start]
		return err
	}
	e.buf = b
	e.count++
	return nil
}

// size bounds what a record takes from below; announcements are not its.
func size(r *sdk.Record) int {
	n := len(r.Key.Data) + len(r.Value.Data) + len(r.SourceOffset)
	for i := range r.Headers {
		n += len(r.Headers[i].Value.Data)
	}
	return n
}

func (e *Encoder) record(b []byte, r *sdk.Record) ([]byte, error) {
	if r.Topic != e.lastTopic || e.lastTopicID == 0 {
		e.lastTopic, e.lastTopicID = r.Topic, e.str(r.Topic)
	}
	b = binary.AppendUvarint(b, e.lastTopicID)
	b = binary.AppendVarint(b, int64(r.Partition))
	b = binary.AppendVarint(b, r.Timestamp)
	b, err := e.value(b, r.Key)
	if err != nil {
		return nil, err
	}
	if b, err = e.value(b, r.Value); err != nil {
		return nil, err
	}
	b = binary.AppendUvarint(b, uint64(len(r.Headers)))
	for i := range r.Headers {
		b = binary.AppendUvarint(b, e.str(r.Headers[i].Key))
		if b, err = e.value(b, r.Headers[i].Value); err != nil {
			return nil, err
		}
	}
	b = binary.AppendUvarint(b, e.source(r.Source))
	if r.SourceOffset == nil {
		b = append(b, 0)
	} else {
		b = append(binary.AppendUvarint(b, uint64(len(r.SourceOffset))+1), r.SourceOffset...)
	}
	return binary.AppendVarint(b, r.Offset), nil
}

func (e *Encoder) value(b []byte, v sdk.Value) ([]byte, error) {
	if v.Data == nil {
		return append(b, schemaNull), nil
	}
	id := uint64(schemaBytes)
	if v.Schema != nil {
		switch v.Schema.Type {
		case sdk.Text:
			id = schemaText
		case sdk.JSON:
			id = schemaJSON
		default:
			var err error
			if id, err = e.schema(v.Schema); err != nil {
				return nil, err
			}
		}
	}
	b = binary.AppendUvarint(b, id)
	b = binary.AppendUvarint(b, uint64(len(v.Data)))
	return append(b, v.Data...), nil
}

func (e *Encoder) announce(kind byte, id uint64, text []byte) {
	e.ann = binary.AppendUvarint(append(e.ann, kind), id)
	e.ann = binary.AppendUvarint(e.ann, uint64(len(text)))
	e.ann = append(e.ann, text...)
	e.annCount++
	e.kept += len(text)
}

func (e *Encoder) str(s string) uint64 {
	id, ok := e.strings[s]
	if !ok {
		id = uint64(len(e.strings)) + 1
		e.strings[s] = id
		e.announce(announceString, id, []byte(s))
	}
	return id
}

func (e *Encoder) source(p *sdk.SourcePartition) uint64 {
	if p == nil {
		return 0
	}
	id, ok := e.sources[p]
	if !ok {
		if id, ok = e.sourcesByText[string(p.JSON)]; !ok {
			id = uint64(len(e.sourcesByText)) + 1
			e.sourcesByText[string(p.JSON)] = id
			e.announce(announceSource, id, p.JSON)
		}
		e.sources[p] = id
	}
	return id
}

func (e *Encoder) schema(s *sdk.Schema) (uint64, error) {
	if id, ok := e.schemas[s]; ok {
		return id, nil
	}
	text, err := s.AvroJSON()
	if err != nil {
		return 0, err
	}
	id, ok := e.schemasByText[string(text)]
	if !ok {
		id = uint64(len(e.schemasByText)) + firstSchema
		e.schemasByText[string(text)] = id
		e.announce(announceSchema, id, text)
	}
	e.schemas[s] = id
	return id, nil
}

// Take ends the block and returns it; the caller owns it, and may give it back to Recycle. It is never empty.
func (e *Encoder) Take() []byte {
	if e.count == 0 {
		e.buf = append(e.buf[:0], make([]byte, headRoom)...)
	}
	var head [headRoom]byte
	var b []byte
	if e.annCount == 0 {
		n := binary.PutUvarint(head[1:], uint64(e.count)) + 1 // head[0]: no announcements
		b = e.buf[headRoom-n:]
		copy(b, head[:n])
	} else {
		b = make([]byte, 0, len(e.ann)+len(e.buf)+headRoom)
		b = append(binary.AppendUvarint(b, uint64(e.annCount)), e.ann...)
		b = append(binary.AppendUvarint(b, uint64(e.count)), e.buf[headRoom:]...)
	}
	e.ann, e.annCount, e.buf, e.count = e.ann[:0], 0, nil, 0
	return b
}

// Recycle takes back a block that nobody reads any more.
func (e *Encoder) Recycle(block []byte) {
	if len(e.spare) < maxSpare && cap(block) <= 2*MaxFrame {
		e.spare = append(e.spare, block[:0])
	}
}

// Drop gives up the records added since the last Take. What they announced is announced by the next block.
func (e *Encoder) Drop() { e.count = 0 }

// Frames cuts a block into messages of at most MaxFrame.
func Frames(block []byte, last bool) []*wirepb.Records {
	frames := make([]*wirepb.Records, 0, 1+len(block)/MaxFrame)
	for len(block) > MaxFrame {
		frames = append(frames, &wirepb.Records{Block: block[:MaxFrame], More: true})
		block = block[MaxFrame:]
	}
	return append(frames, &wirepb.Records{Block: block, Last: last})
}

// Assembler joins the parts of blocks.
type Assembler struct {
	Max   int // of a block
	parts []byte
	open  bool
}

// Empty reports whether the next part begins a block.
func (a *Assembler) Empty() bool { return !a.open }

// Add takes a part; complete says that block is whole. A block of one part is returned as it came.
func (a *Assembler) Add(part []byte, more bool) (block []byte, complete bool, err error) {
	if len(a.parts)+len(part) > a.Max {
		return nil, false, fmt.Errorf("%w: more than %d bytes", ErrRecordTooLarge, a.Max)
	}
	switch {
	case !more && !a.open:
		return part, true, nil
	case len(part) == 0 && more:
		return nil, false, fmt.Errorf("%w: empty part", ErrBlock)
	}
	a.parts, a.open = append(a.parts, part...), more
	if more {
		return nil, false, nil
	}
	block, a.parts = a.parts, nil
	return block, true, nil
}
