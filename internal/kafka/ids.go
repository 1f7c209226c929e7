// Package kafka holds the protocol's small shared values: topic ids, topic names, error codes by name. It knows no wire
// encoding and no state.
package kafka

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
)

// UUID identifies a topic for its whole life (KIP-516). The zero value means "none".
type UUID [16]byte

// NewUUID returns a random version 4 id. As in Kafka its text never starts with a dash, so that tools can take it as an
// argument.
func NewUUID() UUID {
	for {
		var u UUID
		if _, err := rand.Read(u[:]); err != nil {
			panic(err) // crypto/rand never fails on supported systems
		}
		u[6] = u[6]&0x0f | 0x40
		u[8] = u[8]&0x3f | 0x80
		if u.String()[0] != '-' {
			return u
		}
	}
}

// String is Kafka's form: 22 characters of unpadded URL-safe base64.
func (u UUID) String() string { return base64.RawURLEncoding.EncodeToString(u[:]) }

// Hex is the form used in the bucket: 32 hexadecimal digits.
func (u UUID) Hex() string { return hex.EncodeToString(u[:]) }

// IsZero reports whether u is "none".
func (u UUID) IsZero() bool { return u == UUID{} }

// ParseUUID reads Kafka's base64 form or 32 hexadecimal digits.
func ParseUUID(s string) (UUID, error) {
	var u UUID
	var b []byte
	var err error
	if len(s) == 32 {
		b, err = hex.DecodeString(s)
	} else {
		b, err = base64.RawURLEncoding.DecodeString(s)
	}
	if err != nil || len(b) != len(u) {
		return u, fmt.Errorf("kafka: %q is not a topic id", s)
	}
	copy(u[:], b)
	return u, nil
}

// MarshalText gives Kafka's form.
func (u UUID) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText reads what MarshalText gave.
func (u *UUID) UnmarshalText(b []byte) error {
	v, err := ParseUUID(string(b))
	*u = v
	return err
}

// TopicPartition names a partition by topic name.
type TopicPartition struct {
	Topic     string
	Partition int32
}

func (tp TopicPartition) String() string { return fmt.Sprintf("%s-%d", tp.Topic, tp.Partition) }

// MaxTopicName is the longest legal topic name in bytes.
const MaxTopicName = 249

// ErrTopicName marks an illegal topic name.
var ErrTopicName = errors.New("Topic name is invalid") //nolint:staticcheck // Kafka's text, which tools print

// ValidateTopicName applies Kafka's rules: 1 to 249 of [a-zA-Z0-9._-], neither "." nor "..".
func ValidateTopicName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: the empty string is not allowed", ErrTopicName)
	case name == "." || name == "..":
		return fmt.Errorf("%w: '%s' cannot be '.' or '..'", ErrTopicName, name)
	case len(name) > MaxTopicName:
		return fmt.Errorf("%w: the length of '%s' is longer than the max allowed length %d", ErrTopicName, name, MaxTopicName)
	}
	for _, c := range []byte(name) {
		if !legal(c) {
			return fmt.Errorf("%w: '%s' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'", ErrTopicName, name)
		}
	}
	return nil
}

func legal(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-'
}

// Internal topics of the broker.
const (
	ConsumerOffsetsTopic  = "__consumer_offsets"
	TransactionStateTopic = "__transaction_state"
)
