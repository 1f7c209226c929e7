package archive

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/varvehq/varve/internal/objstore"
	"github.com/varvehq/varve/tiering"
	"github.com/varvehq/varve/tiering/manifest"
)

// Report is what Verify found.
type Report struct {
	Partitions int     `json:"partitions"`
	Manifests  int     `json:"manifests"`
	Segments   int     `json:"segments"`
	Batches    int64   `json:"batches"`
	Records    int64   `json:"records"`
	Bytes      int64   `json:"bytes"` // of segment objects, all of them read
	Faults     []Fault `json:"faults"`
	// Orphans are objects that no manifest names: what a crash between two writes leaves, or an upload under way. They
	// cost space and do no harm.
	Orphans   []Object `json:"orphans"`
	Condemned int      `json:"condemned"` // objects that expired and wait for their deletion
}

// Fault is something wrong in the bucket.
type Fault struct {
	Partition string `json:"partition"`
	Object    string `json:"object"`
	Error     string `json:"error"`
}

// Object is an object of the bucket.
type Object struct {
	Key   string `json:"key"`
	Bytes int64  `json:"bytes"`
}

// Progress tells how far Verify is.
type Progress struct {
	Partition  string
	Segments   int
	Bytes      int64
	TotalBytes int64
	Faults     int
}

// Verify reads every byte of the given partitions: the chain of manifests, pages, and every segment object. It goes on
// behind faults and reports them; its error is a failure to read. A cluster may write meanwhile.
func (a *Archive) Verify(ctx context.Context, partitions []Partition, progress func(Progress)) (*Report, error) {
	v := &verifier{a: a, progress: progress, r: &Report{Faults: []Fault{}, Orphans: []Object{}}}
	for i := range partitions {
		v.total += partitions[i].Bytes
	}
	for i := range partitions {
		if err := v.partition(ctx, &partitions[i]); err != nil {
			return v.r, fmt.Errorf("archive: verify %s: %w", &partitions[i], err)
		}
		v.r.Partitions++
	}
	return v.r, nil
}

type verifier struct {
	a        *Archive
	progress func(Progress)
	r        *Report
	total    int64
	p        *Partition
	dir      string
}

func (v *verifier) fault(object string, err error) {
	v.r.Faults = append(v.r.Faults, Fault{v.p.String(), object, err.Error()})
}

func (v *verifier) partition(ctx context.Context, p *Partition) error {
	v.p, v.dir = p, p.Dir()
	// Objects are listed before the manifests are read: what is named later may be missing in the list, but is looked up.
	objects := map[string]int64{}
	if err := v.a.bucket.List(ctx, v.dir, objstore.ListOptions{}, func(i objstore.Info) error {
		objects[strings.TrimPrefix(i.Key, v.dir)] = i.Size
		return nil
	}); err != nil {
		return err
	}
	tail, err := v.chain(ctx, objects)
	if err != nil || tail == nil {
		return err
	}
	segments, named, err := v.list(ctx, tail)
	if err != nil {
		return err
	}
	v.gaps(tail, segments)
	for _, s := range segments {
		if err := v.segment(ctx, s); err != nil {
			return err
		}
	}
	v.orphans(objects, named)
	return nil
}

// chain checks all manifests that are there against each other and gives the newest.
func (v *verifier) chain(ctx context.Context, objects map[string]int64) (*manifest.Manifest, error) {
	var numbers []int64
	for key := range objects {
		if n, ok := manifest.ParseNumber(key); ok && strings.HasPrefix(key, manifest.ManifestFolder) {
			numbers = append(numbers, n)
		}
	}
	sort.Slice(numbers, func(i, j int) bool { return numbers[i] < numbers[j] })
	var tail *manifest.Manifest
	sha := ""
	for i, n := range numbers {
		key := manifest.ManifestName(n)
		data, err := objstore.ReadAll(ctx, v.a.bucket, v.dir+key, 0, -1, maxJSON)
		if errors.Is(err, objstore.ErrNotFound) {
			sha = "" // a cluster deletes old ones while we read
			continue
		}
		if err != nil {
			return nil, err
		}
		m, err := manifest.Decode(data)
		if err == nil {
			err = v.follows(tail, m, n, sha)
		}
		if err != nil {
			v.fault(v.dir+key, err)
			if i == len(numbers)-1 {
				return nil, nil
			}
			sha = ""
			continue
		}
		tail, sha = m, manifest.SHA256(data)
		v.r.Manifests++
	}
	if tail == nil {
		v.fault(v.dir, errors.New("no manifest"))
	}
	return tail, nil
}

func (v *verifier) follows(before, m *manifest.Manifest, number int64, sha string) error {
	switch {
	case m.Number != number:
		return fmt.Errorf("it says it is manifest %d", m.Number)
	case m.TopicID != v.p.TopicID || m.Partition != v.p.Partition || m.Topic != v.p.Topic:
		return fmt.Errorf("it says it is of %s-%d, topic id %s", m.Topic, m.Partition, m.TopicID)
	case before == nil || sha == "":
		return nil
	case m.Number != before.Number+1:
		return fmt.Errorf("manifest %d to %d are missing", before.Number+1, m.Number-1)
	case m.Previous.SHA256 != sha:
		return fmt.Errorf("manifest %d has sha256 %s, this one was written after %s", before.Number, sha, m.Previous.SHA256)
	case m.Writer.Compare(before.Writer) < 0:
		return fmt.Errorf("its writer (incarnation %d, leader epoch %d) ranks below that of manifest %d", m.Writer.Incarnation,
			m.Writer.LeaderEpoch, before.Number)
	case m.LogStartOffset < before.LogStartOffset:
		return fmt.Errorf("its log start %d lies below that of manifest %d, %d", m.LogStartOffset, before.Number, before.LogStartOffset)
	}
	return nil
}

// list gives all segments that a manifest lists, by its pages, and all keys it names.
func (v *verifier) list(ctx context.Context, m *manifest.Manifest) ([]manifest.Segment, map[string]bool, error) {
	named := map[string]bool{}
	var segments []manifest.Segment
	for _, ref := range m.Pages {
		named[ref.Key] = true
		data, err := objstore.ReadAll(ctx, v.a.bucket, v.dir+ref.Key, 0, -1, maxJSON)
		if err != nil && !errors.Is(err, objstore.ErrNotFound) {
			return nil, nil, err
		}
		var page *manifest.Page
		if err == nil {
			page, err = manifest.DecodePage(data, ref)
		}
		if err != nil {
			v.fault(v.dir+ref.Key, err)
			continue
		}
		segments = append(segments, page.Segments...)
	}
	segments = append(segments, m.Segments...)
	for _, s := range segments {
		named[s.Key()] = true
	}
	for _, c := range m.Condemned {
		named[c.Key] = true
		v.r.Condemned++
	}
	return segments, named, nil
}

func (v *verifier) gaps(m *manifest.Manifest, segments []manifest.Segment) {
	next := int64(-1)
	for _, s := range segments {
		if next >= 0 && s.BaseOffset != next {
			v.fault(v.dir+manifest.ManifestName(m.Number), fmt.Errorf("offsets %d to %d are missing: no segment holds them", next, s.BaseOffset-1))
		}
		next = s.NextOffset()
	}
	if len(segments) > 0 && segments[0].BaseOffset > m.LogStartOffset {
		v.fault(v.dir+manifest.ManifestName(m.Number), fmt.Errorf("offsets %d to %d are missing: the log starts before the first segment",
			m.LogStartOffset, segments[0].BaseOffset-1))
	}
}

func (v *verifier) segment(ctx context.Context, s manifest.Segment) error {
	key := v.dir + s.Key()
	done, err := tiering.VerifySegment(ctx, v.a.bucket, key, s)
	switch {
	case errors.Is(err, objstore.ErrNotFound):
		expired, rerr := v.expired(ctx, s)
		if rerr != nil {
			return rerr
		}
		if !expired {
			v.fault(key, fmt.Errorf("the object is missing, and the manifest names it: offsets %d to %d are lost", s.BaseOffset, s.LastOffset))
		}
	case tiering.IsFault(err):
		v.fault(key, err)
	case err != nil:
		return err
	}
	v.r.Segments++
	v.r.Bytes += int64(s.Bytes)
	v.r.Batches += done.Batches
	v.r.Records += done.Records
	if v.progress != nil {
		v.progress(Progress{v.p.String(), v.r.Segments, v.r.Bytes, v.total, len(v.r.Faults)})
	}
	return nil
}

// expired tells whether a cluster has taken a segment off the list meanwhile.
func (v *verifier) expired(ctx context.Context, s manifest.Segment) (bool, error) {
	tp := v.a.store.Partition(v.p.id(), v.p.Manifest)
	if err := tp.Refresh(ctx); err != nil {
		return false, err
	}
	found := false
	err := tp.Segments(ctx, s.BaseOffset, func(i tiering.SegmentInfo) error {
		found = found || i == s
		return nil
	})
	return !found, err
}

func (v *verifier) orphans(objects map[string]int64, named map[string]bool) {
	for key, size := range objects {
		if !named[key] && !strings.HasPrefix(key, manifest.ManifestFolder) {
			v.r.Orphans = append(v.r.Orphans, Object{v.dir + key, size})
		}
	}
	sort.Slice(v.r.Orphans, func(i, j int) bool { return v.r.Orphans[i].Key < v.r.Orphans[j].Key })
}

const maxJSON = 64 << 20 // of one manifest or page
