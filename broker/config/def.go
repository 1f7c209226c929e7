package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ErrInvalid marks an unknown config name or an illegal value.
var ErrInvalid = errors.New("invalid config")

// ErrReadOnly marks a config that cannot be changed while the broker runs. It is of class ErrInvalid.
var ErrReadOnly = fmt.Errorf("%w: read-only", ErrInvalid)

// Type is the type of a config's value, with the numbers of DescribeConfigs.
type Type int8

// The types.
const (
	Boolean  Type = 1
	String   Type = 2
	Int      Type = 3
	Short    Type = 4
	Long     Type = 5
	Double   Type = 6
	List     Type = 7
	Class    Type = 8
	Password Type = 9
)

// String is the type's name in docs.
func (t Type) String() string {
	switch t {
	case Boolean:
		return "boolean"
	case Int:
		return "int"
	case Short:
		return "short"
	case Long:
		return "long"
	case Double:
		return "double"
	case List:
		return "list"
	case Class:
		return "class"
	case Password:
		return "password"
	}
	return "string"
}

// Scope tells how a broker config may be changed.
type Scope int8

// The scopes, as in Kafka's documentation ("Dynamic Update Mode").
const (
	// ReadOnly needs a restart.
	ReadOnly Scope = iota
	// PerBroker may be set for one broker while it runs, not for the cluster.
	PerBroker
	// ClusterWide may be set for one broker or for all.
	ClusterWide
)

// String is the scope's name in docs.
func (s Scope) String() string {
	return [...]string{"read-only", "per-broker", "cluster-wide"}[s]
}

// Synonym is a broker config that a topic config falls back to, in another unit perhaps.
type Synonym struct {
	Name string
	// Factor turns the broker's value into the topic's: 60,000 for minutes to milliseconds. 0 means 1. Negative values
	// stay as they are.
	Factor int64
}

// Def is one row of the table.
type Def struct {
	Name string
	Type Type
	// Default is the text of the default; NoDefault tells that there is none (null in the protocol).
	Default   string
	NoDefault bool
	Doc       string
	// Synonyms are tried in order. Only topic configs have them; a broker config that is one of a chain of units
	// (log.retention.ms, .minutes, .hours) lists those after it.
	Synonyms []Synonym
	Scope    Scope // of broker configs; topic configs can always be changed
	// Unused names a config that is accepted and told to clients, but changes nothing in Varve; it says why.
	Unused string

	check func(value string) error // on top of the type; may be nil
}

// Sensitive configs are never told.
func (d *Def) Sensitive() bool { return d.Type == Password }

// Validate checks a value's text. The error is of class ErrInvalid and words the reason as Kafka does.
func (d *Def) Validate(value string) error {
	err := checkType(d.Type, value)
	if err == nil && d.check != nil {
		err = d.check(value)
	}
	if err == nil {
		return nil
	}
	shown := value
	if d.Sensitive() {
		shown = "[hidden]"
	}
	return fmt.Errorf("%w: Invalid value %s for configuration %s: %w", ErrInvalid, shown, d.Name, err)
}

func checkType(t Type, value string) error {
	var err error
	switch v := strings.TrimSpace(value); t {
	case Boolean:
		if !strings.EqualFold(v, "true") && !strings.EqualFold(v, "false") {
			return errors.New("Expected value to be either true or false") //nolint:staticcheck // Kafka's text
		}
	case Short:
		_, err = strconv.ParseInt(v, 10, 16)
	case Int:
		_, err = strconv.ParseInt(v, 10, 32)
	case Long:
		_, err = strconv.ParseInt(v, 10, 64)
	case Double:
		_, err = strconv.ParseFloat(v, 64)
	}
	if err != nil {
		return fmt.Errorf("Not a number of type %s", strings.ToUpper(t.String())) //nolint:staticcheck // Kafka's text
	}
	return nil
}

// atLeast and between check numbers that checkType let through.
func atLeast(lo int64) func(string) error { return between(lo, math.MaxInt64) }

func between(lo, hi int64) func(string) error {
	return func(value string) error {
		n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		switch {
		case err != nil:
			return err
		case n < lo:
			return fmt.Errorf("Value must be at least %d", lo) //nolint:staticcheck // Kafka's text
		case n > hi:
			return fmt.Errorf("Value must be no more than %d", hi) //nolint:staticcheck // Kafka's text
		}
		return nil
	}
}

func betweenFloat(lo, hi float64) func(string) error {
	return func(value string) error {
		f, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		switch {
		case err != nil:
			return err
		case math.IsNaN(f) || f < lo:
			return fmt.Errorf("Value must be at least %g", lo) //nolint:staticcheck // Kafka's text
		case f > hi:
			return fmt.Errorf("Value must be no more than %g", hi) //nolint:staticcheck // Kafka's text
		}
		return nil
	}
}

func oneOf(values ...string) func(string) error {
	return func(value string) error {
		for _, v := range values {
			if v == value {
				return nil
			}
		}
		return fmt.Errorf("String must be one of: %s", strings.Join(values, ", ")) //nolint:staticcheck // Kafka's text
	}
}

func listOf(values ...string) func(string) error {
	one := oneOf(values...)
	return func(value string) error {
		for _, v := range SplitList(value) {
			if err := one(v); err != nil {
				return err
			}
		}
		return nil
	}
}

// throttledReplicas checks "partition:broker,…" or "*".
func throttledReplicas(value string) error {
	if strings.TrimSpace(value) == "*" {
		return nil
	}
	for _, v := range SplitList(value) {
		p, b, ok := strings.Cut(v, ":")
		_, err1 := strconv.ParseUint(p, 10, 31)
		_, err2 := strconv.ParseUint(b, 10, 31)
		if !ok || err1 != nil || err2 != nil {
			return errors.New("it must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],...") //nolint:staticcheck // Kafka's text
		}
	}
	return nil
}

// minusOneOr allows -1 or what is at least lo (gzip's level, where 0 is none of its own).
func minusOneOr(lo, hi int64) func(string) error {
	in := between(lo, hi)
	return func(value string) error {
		if strings.TrimSpace(value) == "-1" {
			return nil
		}
		return in(value)
	}
}

// SplitList splits a list's text at commas and trims; an empty text is an empty list.
func SplitList(value string) []string {
	var list []string
	for v := range strings.SplitSeq(value, ",") {
		if v = strings.TrimSpace(v); v != "" {
			list = append(list, v)
		}
	}
	return list
}
