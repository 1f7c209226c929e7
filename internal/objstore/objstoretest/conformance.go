// Package objstoretest is the contract of objstore.Bucket as tests. Every implementation runs Conformance; whoever writes
// a new one starts there.
package objstoretest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/varvehq/varve/internal/objstore"
	"github.com/varvehq/varve/internal/objstore/selftest"
)

// Options tell what to leave out or add.
type Options struct {
	// LargeObject is the size of an object put in parts; zero leaves it out.
	LargeObject int
	// Racers is how many writers race for one key; zero means eight.
	Racers int
	// OnePage leaves out the list of more objects than a store gives at a time.
	OnePage bool
}

// Conformance runs the suite on an empty bucket, which it leaves empty.
func Conformance(t *testing.T, b objstore.Bucket, opts Options) {
	t.Helper()
	for _, c := range []struct {
		name string
		run  func(*testing.T, objstore.Bucket, Options)
	}{
		{"PutGet", testPutGet},
		{"Ranges", testRanges},
		{"IfAbsent", testIfAbsent},
		{"Race", testRace},
		{"Checksum", testChecksum},
		{"NotFound", testNotFound},
		{"List", testList},
		{"ListMany", testListMany},
		{"BadKeys", testBadKeys},
		{"Canceled", testCanceled},
		{"Large", testLarge},
		{"Selftest", testSelftest},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.run(t, b, opts)
			clean(t, b)
		})
	}
}

// Bytes gives n bytes that follow from a seed.
func Bytes(n int, seed uint64) []byte {
	b := make([]byte, n)
	rng := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)})
	_, _ = rng.Read(b) // never fails
	return b
}

// Put stores data and fails the test where that fails.
func Put(t *testing.T, b objstore.Bucket, key string, data []byte, opts objstore.PutOptions) {
	t.Helper()
	if err := put(t.Context(), b, key, data, opts); err != nil {
		t.Fatal(err)
	}
}

func put(ctx context.Context, b objstore.Bucket, key string, data []byte, opts objstore.PutOptions) error {
	return b.Put(ctx, key, bytes.NewReader(data), int64(len(data)), opts)
}

func get(t *testing.T, b objstore.Bucket, key string, offset, length int64) []byte {
	t.Helper()
	data, err := objstore.ReadAll(t.Context(), b, key, offset, length, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func keys(t *testing.T, b objstore.Bucket, prefix string, opts objstore.ListOptions) []string {
	t.Helper()
	out := []string{}
	if err := b.List(t.Context(), prefix, opts, func(i objstore.Info) error {
		out = append(out, i.Key)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

func clean(t *testing.T, b objstore.Bucket) {
	t.Helper()
	for _, k := range keys(t, b, "", objstore.ListOptions{}) {
		if err := b.Delete(t.Context(), k); err != nil {
			t.Fatal(err)
		}
	}
	if left := keys(t, b, "", objstore.ListOptions{}); len(left) > 0 {
		t.Fatalf("left after deletion: %v", left)
	}
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got error %v, want %v", what, err, want)
	}
}

func testPutGet(t *testing.T, b objstore.Bucket, _ Options) {
	for _, n := range []int{0, 1, 1000, 300_000} {
		key := fmt.Sprintf("dir/sub/object-%d", n)
		data := Bytes(n, uint64(n))
		Put(t, b, key, data, objstore.PutOptions{})
		if got := get(t, b, key, 0, -1); !bytes.Equal(got, data) {
			t.Errorf("%s: got %d other bytes", key, len(got))
		}
		info, err := b.Stat(t.Context(), key)
		if err != nil || info.Size != int64(n) || info.Key != key || info.Modified.IsZero() {
			t.Errorf("stat %s: %+v, %v", key, info, err)
		}
	}
	Put(t, b, "dir/sub/object-1", []byte("other"), objstore.PutOptions{})
	if got := get(t, b, "dir/sub/object-1", 0, -1); string(got) != "other" {
		t.Errorf("after an overwrite: %q", got)
	}
	long := "topics/" + strings.Repeat("n", 240) + "/0/object"
	Put(t, b, long, []byte("x"), objstore.PutOptions{IfAbsent: true})
	if got := get(t, b, long, 0, -1); string(got) != "x" {
		t.Errorf("key with a long component: %q", got)
	}
}

func testRanges(t *testing.T, b objstore.Bucket, _ Options) {
	data := Bytes(100_000, 1)
	n := int64(len(data))
	Put(t, b, "r", data, objstore.PutOptions{})
	for _, r := range [][2]int64{
		{0, 0}, {5, 0}, {0, 1}, {0, n}, {0, n + 1}, {1, n}, {99_999, 1}, {99_999, 10}, {99_990, -1}, {50_000, 100}, {-1, -1}, {-40, -1},
		{-40, 10}, {-n, -1}, {-2 * n, -1},
	} {
		from, to, err := objstore.CutRange(n, r[0], r[1])
		if err != nil {
			t.Fatal(err)
		}
		if got := get(t, b, "r", r[0], r[1]); !bytes.Equal(got, data[from:to]) {
			t.Errorf("range %v: got %d bytes, other than the %d wanted", r, len(got), to-from)
		}
	}
	for _, r := range [][2]int64{{n, 1}, {n, -1}, {n + 10, 5}} {
		_, err := objstore.ReadAll(t.Context(), b, "r", r[0], r[1], n)
		wantErr(t, fmt.Sprintf("range %v", r), err, objstore.ErrRange)
	}
	testPartialReads(t, b, data)
}

// testPartialReads reads two bodies of one object by turns, and closes one early.
func testPartialReads(t *testing.T, b objstore.Bucket, data []byte) {
	one, err1 := b.Get(t.Context(), "r", 0, -1)
	two, err2 := b.Get(t.Context(), "r", 50_000, 1000)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	buf := make([]byte, 10)
	if _, err := io.ReadFull(one, buf); err != nil || !bytes.Equal(buf, data[:10]) {
		t.Errorf("first reader: %v", err)
	}
	if _, err := io.ReadFull(two, buf); err != nil || !bytes.Equal(buf, data[50_000:50_010]) {
		t.Errorf("second reader: %v", err)
	}
	if err := one.Close(); err != nil {
		t.Error(err)
	}
	if rest, err := io.ReadAll(two); err != nil || !bytes.Equal(rest, data[50_010:51_000]) {
		t.Errorf("second reader after the first closed: %v", err)
	}
	if err := two.Close(); err != nil {
		t.Error(err)
	}
}

func testIfAbsent(t *testing.T, b objstore.Bucket, _ Options) {
	opts := objstore.PutOptions{IfAbsent: true}
	Put(t, b, "a/once", []byte("first"), opts)
	wantErr(t, "second put", put(t.Context(), b, "a/once", []byte("second"), opts), objstore.ErrExists)
	if got := get(t, b, "a/once", 0, -1); string(got) != "first" {
		t.Errorf("after a refused put: %q", got)
	}
	if err := b.Delete(t.Context(), "a/once"); err != nil {
		t.Fatal(err)
	}
	Put(t, b, "a/once", []byte("third"), opts)
	if got := get(t, b, "a/once", 0, -1); string(got) != "third" {
		t.Errorf("after deletion and a put: %q", got)
	}
}

func testRace(t *testing.T, b objstore.Bucket, opts Options) {
	racers := opts.Racers
	if racers == 0 {
		racers = 8
	}
	for round := range 10 {
		key := fmt.Sprintf("race/%d", round)
		errs := make([]error, racers)
		var wg sync.WaitGroup
		for i := range racers {
			wg.Go(func() {
				data := bytes.Repeat([]byte{byte(i)}, 10_000)
				errs[i] = put(t.Context(), b, key, data, objstore.PutOptions{IfAbsent: true})
			})
		}
		wg.Wait()
		winner := get(t, b, key, 0, -1)
		for i, err := range errs {
			switch {
			case err == nil && (len(winner) != 10_000 || winner[0] != byte(i)):
				t.Errorf("round %d: writer %d was told it won, but the object is writer %d's", round, i, winner[0])
			case err != nil && !errors.Is(err, objstore.ErrExists) && winner[0] == byte(i):
				t.Logf("round %d: writer %d won and was told: %v", round, i, err)
			}
		}
	}
}

func testChecksum(t *testing.T, b objstore.Bucket, opts Options) {
	sizes := []int{0, 1000}
	if opts.LargeObject > 0 {
		sizes = append(sizes, opts.LargeObject)
	}
	for _, n := range sizes {
		data := Bytes(n, 7)
		crc := objstore.CRC32C(data)
		wrong := crc + 1
		err := put(t.Context(), b, "sum", data, objstore.PutOptions{CRC32C: &wrong, IfAbsent: true})
		wantErr(t, fmt.Sprintf("%d bytes with a wrong checksum", n), err, objstore.ErrChecksum)
		_, err = b.Stat(t.Context(), "sum")
		wantErr(t, "stat after a refused put", err, objstore.ErrNotFound)
		Put(t, b, "sum", data, objstore.PutOptions{CRC32C: &crc, IfAbsent: true})
		if got := get(t, b, "sum", 0, -1); !bytes.Equal(got, data) {
			t.Errorf("%d bytes with their checksum: other bytes came back", n)
		}
		if err := b.Delete(t.Context(), "sum"); err != nil {
			t.Fatal(err)
		}
	}
}

func testNotFound(t *testing.T, b objstore.Bucket, _ Options) {
	_, err := b.Get(t.Context(), "no/such", 0, -1)
	wantErr(t, "get", err, objstore.ErrNotFound)
	_, err = b.Get(t.Context(), "no/such", -40, -1)
	wantErr(t, "get of a suffix", err, objstore.ErrNotFound)
	_, err = b.Stat(t.Context(), "no/such")
	wantErr(t, "stat", err, objstore.ErrNotFound)
	if !strings.Contains(err.Error(), "no/such") {
		t.Errorf("error without the key: %v", err)
	}
	if err := b.Delete(t.Context(), "no/such"); err != nil {
		t.Errorf("delete of nothing: %v", err)
	}
	if got := keys(t, b, "no/", objstore.ListOptions{}); len(got) > 0 {
		t.Errorf("list of nothing: %v", got)
	}
}

func testList(t *testing.T, b objstore.Bucket, _ Options) {
	all := []string{"a", "b-1/x", "b/1", "b/2/x", "b/2/y", "b/3", "b0", "c/1"}
	for _, k := range all {
		Put(t, b, k, []byte(k), objstore.PutOptions{})
	}
	for _, c := range []struct {
		prefix string
		opts   objstore.ListOptions
		want   []string
	}{
		{"", objstore.ListOptions{}, all},
		{"b", objstore.ListOptions{}, all[1:7]},
		{"b/", objstore.ListOptions{}, all[2:6]},
		{"b/2", objstore.ListOptions{}, all[3:5]},
		{"", objstore.ListOptions{After: "b/2/x"}, all[4:]},
		{"b/", objstore.ListOptions{After: "b/1"}, all[3:6]},
		{"", objstore.ListOptions{After: "zz"}, nil},
		{"", objstore.ListOptions{Delimiter: "/"}, []string{"a", "b-1/", "b/", "b0", "c/"}},
		{"b/", objstore.ListOptions{Delimiter: "/"}, []string{"b/1", "b/2/", "b/3"}},
		{"b/", objstore.ListOptions{Delimiter: "/", After: "b/1"}, []string{"b/2/", "b/3"}},
	} {
		if got := keys(t, b, c.prefix, c.opts); !slices.Equal(got, c.want) {
			t.Errorf("list %q %+v:\n got %v\nwant %v", c.prefix, c.opts, got, c.want)
		}
	}
	stop := errors.New("stop")
	n := 0
	err := b.List(t.Context(), "", objstore.ListOptions{}, func(objstore.Info) error { n++; return stop })
	if wantErr(t, "stopped list", err, stop); n != 1 {
		t.Errorf("list went on after its callback failed: %d calls", n)
	}
}

// testListMany needs more than one page of a store that gives 1,000 keys at a time.
func testListMany(t *testing.T, b objstore.Bucket, opts Options) {
	if opts.OnePage {
		return
	}
	const n = 1030
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := w; i < n; i += 8 {
				if err := put(t.Context(), b, fmt.Sprintf("many/%05d", i), nil, objstore.PutOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	got := keys(t, b, "many/", objstore.ListOptions{})
	if len(got) != n || !slices.IsSorted(got) {
		t.Errorf("list of %d objects gave %d, sorted: %v", n, len(got), slices.IsSorted(got))
	}
}

func testBadKeys(t *testing.T, b objstore.Bucket, _ Options) {
	for _, k := range []string{"", "/a", "a/", "a//b", "../a", "a/../b", "a/.", ".hidden/a", strings.Repeat("k", 256), strings.Repeat("k/", 600) + "k"} {
		wantErr(t, fmt.Sprintf("put of key %q", k), put(t.Context(), b, k, nil, objstore.PutOptions{}), objstore.ErrKey)
	}
}

func testCanceled(t *testing.T, b objstore.Bucket, _ Options) {
	Put(t, b, "c", []byte("x"), objstore.PutOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantErr(t, "put", put(ctx, b, "c2", []byte("x"), objstore.PutOptions{}), context.Canceled)
	_, err := objstore.ReadAll(ctx, b, "c", 0, -1, 10)
	wantErr(t, "get", err, context.Canceled)
	wantErr(t, "list", b.List(ctx, "", objstore.ListOptions{}, func(objstore.Info) error { return nil }), context.Canceled)
}

func testLarge(t *testing.T, b objstore.Bucket, opts Options) {
	if opts.LargeObject == 0 {
		return
	}
	data := Bytes(opts.LargeObject, 3)
	once := objstore.PutOptions{IfAbsent: true}
	Put(t, b, "large", data, once)
	if got := get(t, b, "large", 0, -1); !bytes.Equal(got, data) {
		t.Error("other bytes came back")
	}
	at := int64(len(data)/2 - 1000)
	if got := get(t, b, "large", at, 2000); !bytes.Equal(got, data[at:at+2000]) {
		t.Error("range: other bytes came back")
	}
	wantErr(t, "second put", put(t.Context(), b, "large", data, once), objstore.ErrExists)
}

func testSelftest(t *testing.T, b objstore.Bucket, _ Options) {
	if err := selftest.Run(t.Context(), b, "selftest"); err != nil {
		t.Error(err)
	}
}
