package manifest

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/varvehq/varve/internal/kafka"
)

// Fixed names.
const (
	RootKey       = "varve.json"
	CatalogPrefix = "catalog/"
	TopicsPrefix  = "topics/"
	SelftestDir   = "selftest"

	ManifestFolder = "manifest/"
	PageFolder     = "pages/"
	SegmentFolder  = "segments/"
)

// maxNameInKey is where a topic name is cut, so that a folder's name stays below 255 bytes whatever the topic is called.
const maxNameInKey = 100

// CatalogKey names a catalog.
func CatalogKey(number int64) string { return fmt.Sprintf("%s%020d.json", CatalogPrefix, number) }

// TopicDir is a topic's folder, with a slash at its end.
func TopicDir(topic string, id kafka.UUID) string {
	if len(topic) > maxNameInKey {
		topic = topic[:maxNameInKey]
	}
	return TopicsPrefix + topic + "." + id.Hex() + "/"
}

// PartitionDir is a partition's folder, with a slash at its end. Keys inside manifests are relative to it.
func PartitionDir(topic string, id kafka.UUID, partition int32) string {
	return TopicDir(topic, id) + strconv.FormatInt(int64(partition), 10) + "/"
}

// ManifestName is the key of a manifest relative to its partition's folder.
func ManifestName(number int64) string { return fmt.Sprintf("%s%020d.json", ManifestFolder, number) }

// PageName is the key of a page relative to its partition's folder.
func PageName(first, last int64, nonce uint64) string {
	return fmt.Sprintf("%s%020d-%020d-%016x.json", PageFolder, first, last, nonce)
}

// SegmentName is the key of a plain segment object relative to its partition's folder.
func SegmentName(base int64, epoch int32, nonce uint64) string {
	return fmt.Sprintf("%s%020d-%d-%016x.seg", SegmentFolder, base, epoch, nonce)
}

// ParseNumber reads the number of a manifest or catalog from its key, whatever folder it is in.
func ParseNumber(key string) (int64, bool) {
	name, ok := strings.CutSuffix(key[strings.LastIndexByte(key, '/')+1:], ".json")
	if !ok {
		return 0, false
	}
	return parse20(name)
}

// ParseSegmentName reads what SegmentName wrote.
func ParseSegmentName(key string) (base int64, epoch int32, nonce uint64, err error) {
	bad := fmt.Errorf("%w: %q is not the name of a plain segment object", ErrMalformed, key)
	name, ok := strings.CutPrefix(key, SegmentFolder)
	if !ok {
		return 0, 0, 0, bad
	}
	if name, ok = strings.CutSuffix(name, ".seg"); !ok {
		if strings.HasSuffix(name, ".segz") {
			return 0, 0, 0, fmt.Errorf("%w: %q is a compressed or encrypted segment", ErrVersion, key)
		}
		return 0, 0, 0, bad
	}
	parts := strings.Split(name, "-")
	if len(parts) != 3 || len(parts[2]) != 16 {
		return 0, 0, 0, bad
	}
	base, ok = parse20(parts[0])
	e, err1 := strconv.ParseInt(parts[1], 10, 32)
	nonce, err2 := strconv.ParseUint(parts[2], 16, 64)
	if !ok || err1 != nil || err2 != nil || e < 0 || SegmentName(base, int32(e), nonce) != key {
		return 0, 0, 0, bad
	}
	return base, int32(e), nonce, nil
}

// ParseTopicDir reads the topic id, and the possibly cut name, from a topic's folder.
func ParseTopicDir(dir string) (name string, id kafka.UUID, err error) {
	s := strings.TrimSuffix(strings.TrimPrefix(dir, TopicsPrefix), "/")
	dot := strings.LastIndexByte(s, '.')
	if dot < 1 || len(s)-dot-1 != 32 || strings.ContainsRune(s, '/') {
		return "", id, fmt.Errorf("%w: %q is not a topic's folder", ErrMalformed, dir)
	}
	id, err = kafka.ParseUUID(s[dot+1:])
	if err != nil || TopicDir(s[:dot], id) != TopicsPrefix+s+"/" {
		return "", id, fmt.Errorf("%w: %q is not a topic's folder", ErrMalformed, dir)
	}
	return s[:dot], id, nil
}

// parse20 reads exactly twenty decimal digits.
func parse20(s string) (int64, bool) {
	if len(s) != 20 || s[0] < '0' || s[0] > '9' {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}
