package postgrescdc

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/varvehq/varve/sdk"
)

// Name is the connector's name.
const Name = "postgres-cdc"

// New returns the connector.
func New() sdk.SourceConnector { return connector{} }

type connector struct{}

var (
	_ sdk.SourceConnector      = connector{}
	_ sdk.ExactlyOnceSupporter = connector{}
	_ sdk.OffsetAlterer        = connector{}
)

func (connector) Spec() sdk.Spec {
	return sdk.Spec{
		Name: Name, Version: Version, Kind: sdk.SourceKind,
		Doc: "Captures the changes of PostgreSQL tables through logical replication (pgoutput) as Debezium's change events: " +
			"a consistent snapshot, then every insert, update and delete in the order of commits.",
		Config:  sdk.Definitions(options{}),
		Aliases: []string{"io.debezium.connector.postgresql.PostgresConnector", "PostgresConnector"},
	}
}

// Validate checks the configuration, and then that the server lets the user in and is set up for logical replication.
func (connector) Validate(ctx context.Context, c sdk.Config) []sdk.ConfigError {
	cfg, errs := parseConfig(c)
	if len(errs) > 0 {
		return errs
	}
	srv := newServer(cfg, "validate")
	conn, err := srv.sql(ctx)
	if err != nil {
		return []sdk.ConfigError{{Key: "database.hostname", Message: err.Error()}}
	}
	defer hangUp(conn)
	if _, err := srv.checkServer(ctx, conn); err != nil {
		return []sdk.ConfigError{{Key: "database.hostname", Message: srv.explain(err).Error()}}
	}
	return nil
}

// Tasks makes one task: a slot has one reader.
func (connector) Tasks(_ context.Context, c sdk.Config, _ int) ([]sdk.Config, error) {
	if _, errs := parseConfig(c); len(errs) > 0 {
		return nil, errs[0]
	}
	return []sdk.Config{c}, nil
}

// ExactlyOnce holds for the stream: each record has a position, and a restart goes on behind the last stored one.
func (connector) ExactlyOnce(sdk.Config) bool { return true }

// AlterOffsets checks offsets that a user wants to set.
func (connector) AlterOffsets(_ context.Context, c sdk.Config, offsets []sdk.PartitionOffset) error {
	want := `{"server":"` + c["topic.prefix"] + `"}`
	for _, o := range offsets {
		if o.Source == nil || !samePartition(o.Source.JSON, want) {
			return problemf(nil, "the source partition of this connector is %s", want)
		}
		if o.Offset == nil {
			continue
		}
		stored, err := parseOffset(o.Offset)
		if err != nil {
			return err
		}
		if !stored.inSnapshot() && stored.position().commit == 0 {
			return problemf(nil, "an offset needs lsn_commit, or lsn")
		}
	}
	return nil
}

func (connector) NewSource() sdk.Source { return &task{} }

// samePartition compares two JSON objects of primitives.
func samePartition(a []byte, b string) bool {
	if string(a) == b {
		return true
	}
	var x, y map[string]any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	ja, _ := json.Marshal(x)
	jb, _ := json.Marshal(y)
	return bytes.Equal(ja, jb)
}
