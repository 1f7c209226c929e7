package sdk

import (
	"fmt"
	"log/slog"
)

// Config is a connector's or a task's configuration, as in the REST interface: a flat map of strings.
type Config map[string]string

// ConfigDef defines one key, with all that Kafka Connect's validate reply shows.
type ConfigDef struct {
	Name         string
	Type         ConfigType
	Required     bool
	Default      string // meaningful where HasDefault
	HasDefault   bool
	Importance   string // HIGH, MEDIUM, LOW
	Doc          string
	Group        string
	OrderInGroup int
	Width        string // NONE, SHORT, MEDIUM, LONG
	DisplayName  string
	Dependents   []string
	// OneOf are the allowed values; empty: any.
	OneOf []string
	// Min and Max bound numbers where set.
	Min, Max *int64
}

// ConfigType is a type of Kafka's ConfigDef.
type ConfigType string

// The types.
const (
	TypeString   ConfigType = "STRING"
	TypeInt      ConfigType = "INT"
	TypeLong     ConfigType = "LONG"
	TypeDouble   ConfigType = "DOUBLE"
	TypeBoolean  ConfigType = "BOOLEAN"
	TypeList     ConfigType = "LIST"
	TypePassword ConfigType = "PASSWORD"
	TypeClass    ConfigType = "CLASS"
)

// ConfigError says what is wrong with one key.
type ConfigError struct {
	Key     string
	Message string
}

func (e ConfigError) Error() string { return fmt.Sprintf("%s: %s", e.Key, e.Message) }

// Secret is a string that prints itself redacted; a config field of this type is a PASSWORD.
type Secret string

// String hides the value.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "[hidden]"
}

// GoString hides the value.
func (s Secret) GoString() string { return s.String() }

// LogValue hides the value.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText hides the value, also in JSON.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Definitions and Decode (configstruct.go) read the tags of a struct:
//
//	type config struct {
//		Slot  string        `config:"slot.name" default:"debezium" doc:"Name of the replication slot." importance:"high" group:"Postgres"`
//		Pass  sdk.Secret    `config:"database.password" required:"true"`
//		Mode  string        `config:"snapshot.mode" default:"initial" oneof:"initial,never"`
//		Every time.Duration `config:"poll.interval.ms" default:"500" min:"1"`   // keys that end in .ms: milliseconds
//		List  []string      `config:"table.include.list"`                       // comma-separated
//	}
