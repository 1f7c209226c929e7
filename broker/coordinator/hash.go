package coordinator

import "unicode/utf16"

// PartitionFor is the partition, out of n, that holds a key (a group or transactional id): Kafka's own choice, the absolute
// value of Java's String.hashCode modulo n.
func PartitionFor(key string, n int32) int32 {
	var h int32
	for _, r := range key {
		if a, b := utf16.EncodeRune(r); a != '\ufffd' {
			h = 31*(31*h+a) + b
		} else {
			h = 31*h + r
		}
	}
	switch {
	case h == -1<<31:
		h = 0
	case h < 0:
		h = -h
	}
	return h % n
}
