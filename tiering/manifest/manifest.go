package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"sort"
	"strings"
	"time"

	"github.com/varvehq/varve/internal/kafka"
)

// Manifest says what is archived of one partition. It is immutable once written.
type Manifest struct {
	Format         int         `json:"format"`
	ClusterID      string      `json:"cluster_id"`
	Topic          string      `json:"topic"`
	TopicID        kafka.UUID  `json:"topic_id"`
	Partition      int32       `json:"partition"`
	Number         int64       `json:"number"`
	Previous       *Previous   `json:"previous,omitempty"` // none for number 1
	Writer         Writer      `json:"writer"`
	Time           time.Time   `json:"time"`
	LogStartOffset int64       `json:"log_start_offset"`
	EndOffset      int64       `json:"end_offset"` // exclusive
	LeaderEpochs   []Epoch     `json:"leader_epochs"`
	Pages          []PageRef   `json:"pages,omitempty"` // older than Segments, in order
	Segments       []Segment   `json:"segments"`
	Condemned      []Condemned `json:"condemned,omitempty"`
}

// Previous ties a manifest to the one before it.
type Previous struct {
	Number int64  `json:"number"`
	SHA256 string `json:"sha256"` // hexadecimal
}

// Writer tells who wrote a manifest. Writers are ranked by incarnation, then leader epoch.
type Writer struct {
	Incarnation int64  `json:"incarnation"`
	LeaderEpoch int32  `json:"leader_epoch"`
	Broker      int32  `json:"broker"`
	Nonce       string `json:"nonce"` // new for each attempt
}

// Compare ranks two writers: negative where w is below o.
func (w Writer) Compare(o Writer) int {
	switch {
	case w.Incarnation != o.Incarnation:
		return sign(w.Incarnation, o.Incarnation)
	default:
		return sign(int64(w.LeaderEpoch), int64(o.LeaderEpoch))
	}
}

func sign(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// Epoch is the start of a leader epoch.
type Epoch struct {
	Epoch       int32 `json:"epoch"`
	StartOffset int64 `json:"start_offset"`
}

// PageRef refers to a page from a manifest.
type PageRef struct {
	Key          string `json:"key"`
	FirstOffset  int64  `json:"first_offset"`
	LastOffset   int64  `json:"last_offset"`
	Segments     int    `json:"segments"`
	Bytes        int64  `json:"bytes"` // sum of the segments' objects
	MaxTimestamp int64  `json:"max_timestamp"`
	Flags        uint16 `json:"flags"` // of all its segments, or-ed
	SHA256       string `json:"sha256"`
}

// Condemned is an object that left the list and is deleted after a grace for readers.
type Condemned struct {
	Key   string    `json:"key"`
	Since time.Time `json:"since"`
}

// Page is a sealed list of older segments.
type Page struct {
	Format    int        `json:"format"`
	TopicID   kafka.UUID `json:"topic_id"`
	Partition int32      `json:"partition"`
	Segments  []Segment  `json:"segments"`
}

// SHA256 is the sum by which manifests and pages are referred to.
func SHA256(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Encode gives the file's bytes.
func (m *Manifest) Encode() ([]byte, error) {
	if m.Segments == nil {
		m.Segments = []Segment{}
	}
	if m.LeaderEpochs == nil {
		m.LeaderEpochs = []Epoch{}
	}
	return encode(m)
}

// Encode gives the file's bytes.
func (p *Page) Encode() ([]byte, error) { return encode(p) }

// Ref describes a page whose encoded bytes and nonce are given.
func (p *Page) Ref(nonce uint64, encoded []byte) PageRef {
	first, last := p.Segments[0], p.Segments[len(p.Segments)-1]
	r := PageRef{
		Key:         PageName(first.BaseOffset, last.LastOffset, nonce),
		FirstOffset: first.BaseOffset, LastOffset: last.LastOffset, Segments: len(p.Segments),
		MaxTimestamp: math.MinInt64, SHA256: SHA256(encoded),
	}
	for _, s := range p.Segments {
		r.Bytes += int64(s.Bytes)
		r.MaxTimestamp = max(r.MaxTimestamp, s.MaxTimestamp)
		r.Flags |= s.Flags
	}
	return r
}

// Decode reads and checks a manifest. Segments and pages that overlap or are out of order are malformed; gaps are not
// judged here, see Gaps.
func Decode(b []byte) (*Manifest, error) {
	m := new(Manifest)
	if err := decode(b, m, &m.Format, "manifest"); err != nil {
		return nil, err
	}
	return m, m.Validate()
}

// Validate checks what Decode promises.
func (m *Manifest) Validate() error {
	if err := m.validateHead(); err != nil {
		return fmt.Errorf("%w: manifest %d: %w", ErrMalformed, m.Number, err)
	}
	next := int64(0)
	for _, p := range m.Pages {
		if err := p.validate(next); err != nil {
			return fmt.Errorf("%w: manifest %d: %w", ErrMalformed, m.Number, err)
		}
		next = p.LastOffset + 1
	}
	if err := validateOrder(m.Segments, next); err != nil {
		return fmt.Errorf("%w: manifest %d: %w", ErrMalformed, m.Number, err)
	}
	if n := len(m.Segments); n > 0 {
		next = m.Segments[n-1].NextOffset()
	}
	if (len(m.Segments) > 0 || len(m.Pages) > 0) && next != m.EndOffset {
		return fmt.Errorf("%w: manifest %d: end_offset %d, but the last segment ends before %d",
			ErrMalformed, m.Number, m.EndOffset, next)
	}
	return nil
}

func (m *Manifest) validateHead() error {
	if err := kafka.ValidateTopicName(m.Topic); err != nil {
		return err
	}
	switch {
	case m.TopicID.IsZero() || m.Partition < 0 || m.Number < 1:
		return fmt.Errorf("topic id %s, partition %d, number %d", m.TopicID, m.Partition, m.Number)
	case m.Number == 1 && m.Previous != nil, m.Number > 1 && (m.Previous == nil || m.Previous.Number != m.Number-1):
		return fmt.Errorf("its previous is not the number before it")
	case m.LogStartOffset < 0 || m.LogStartOffset > m.EndOffset:
		return fmt.Errorf("log_start_offset %d, end_offset %d", m.LogStartOffset, m.EndOffset)
	}
	for i, e := range m.LeaderEpochs {
		if e.Epoch < 0 || e.StartOffset < 0 ||
			i > 0 && (e.Epoch <= m.LeaderEpochs[i-1].Epoch || e.StartOffset < m.LeaderEpochs[i-1].StartOffset) {
			return fmt.Errorf("leader_epochs are out of order at epoch %d", e.Epoch)
		}
	}
	for _, c := range m.Condemned {
		if err := checkRelative(c.Key); err != nil {
			return err
		}
	}
	return nil
}

func (p *PageRef) validate(next int64) error {
	if err := checkRelative(p.Key); err != nil {
		return err
	}
	if !strings.HasPrefix(p.Key, PageFolder) || p.FirstOffset < next || p.LastOffset < p.FirstOffset ||
		p.LastOffset == math.MaxInt64 || p.Segments < 1 || p.Bytes < 0 {
		return fmt.Errorf("page %s (%d to %d, %d segments) overlaps or is not sane", p.Key, p.FirstOffset, p.LastOffset, p.Segments)
	}
	return nil
}

// checkRelative makes sure that a key from a file names an object of the partition's own folder: what is condemned is
// deleted.
func checkRelative(key string) error {
	for _, folder := range []string{SegmentFolder, PageFolder} {
		if name, ok := strings.CutPrefix(key, folder); ok && name != "" && !strings.Contains(name, "/") && name[0] != '.' {
			return nil
		}
	}
	return fmt.Errorf("key %q is not in %s or %s", key, SegmentFolder, PageFolder)
}

func validateOrder(segments []Segment, next int64) error {
	for _, s := range segments {
		if s.BaseOffset < next {
			return fmt.Errorf("segment %s starts below %d: overlap", s.Key(), next)
		}
		next = s.NextOffset()
	}
	return nil
}

// DecodePage reads a page and checks it against the reference by which it was found.
func DecodePage(b []byte, ref PageRef) (*Page, error) {
	if got := SHA256(b); got != ref.SHA256 {
		return nil, fmt.Errorf("%w: page %s has sha256 %s, the manifest says %s", ErrChecksum, ref.Key, got, ref.SHA256)
	}
	p := new(Page)
	if err := decode(b, p, &p.Format, "page"); err != nil {
		return nil, err
	}
	if len(p.Segments) != ref.Segments || len(p.Segments) == 0 ||
		p.Segments[0].BaseOffset != ref.FirstOffset || p.Segments[len(p.Segments)-1].LastOffset != ref.LastOffset {
		return nil, fmt.Errorf("%w: page %s does not hold what the manifest says", ErrMalformed, ref.Key)
	}
	if err := validateOrder(p.Segments, ref.FirstOffset); err != nil {
		return nil, fmt.Errorf("%w: page %s: %w", ErrMalformed, ref.Key, err)
	}
	return p, nil
}

// Find gives the index of the segment that holds offset, or of the first one after it where it falls into a gap, or
// len(segments).
func Find(segments []Segment, offset int64) int {
	return sort.Search(len(segments), func(i int) bool { return segments[i].LastOffset >= offset })
}

// FindPage is Find for pages.
func FindPage(pages []PageRef, offset int64) int {
	return sort.Search(len(pages), func(i int) bool { return pages[i].LastOffset >= offset })
}

// Bytes is the sum of all listed objects.
func (m *Manifest) Bytes() int64 {
	var n int64
	for _, p := range m.Pages {
		n += p.Bytes
	}
	for _, s := range m.Segments {
		n += int64(s.Bytes)
	}
	return n
}

// EpochAt tells the leader epoch at an offset, or -1 where none is known.
func EpochAt(epochs []Epoch, offset int64) int32 {
	i := sort.Search(len(epochs), func(i int) bool { return epochs[i].StartOffset > offset })
	if i == 0 {
		return -1
	}
	return epochs[i-1].Epoch
}

// SameLineage tells whether two histories have the same epochs over [from, to].
func SameLineage(a, b []Epoch, from, to int64) bool {
	return equalEpochs(cut(a, from, to), cut(b, from, to))
}

// cut gives the epochs that have an offset in [from, to], the first one starting at from.
func cut(epochs []Epoch, from, to int64) []Epoch {
	var out []Epoch
	for i, e := range epochs {
		end := int64(math.MaxInt64)
		if i+1 < len(epochs) {
			end = epochs[i+1].StartOffset
		}
		if end <= e.StartOffset || end <= from || e.StartOffset > to {
			continue
		}
		out = append(out, Epoch{e.Epoch, max(e.StartOffset, from)})
	}
	return out
}

func equalEpochs(a, b []Epoch) bool {
	if len(a) != len(b) || len(a) == 0 {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
