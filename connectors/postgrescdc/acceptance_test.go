package postgrescdc

import (
	"context"
	"testing"

	"github.com/varvehq/varve/sdk"
	"github.com/varvehq/varve/sdk/sdktest"
)

// steady is the connector with what differs from run to run (times and positions in values) left out, and without the
// records that only carry a position.
type steady struct {
	sdk.SourceConnector
	t *testing.T
}

func (s steady) NewSource() sdk.Source { return &steadySource{s.SourceConnector.NewSource(), s.t} }

type steadySource struct {
	sdk.Source
	t *testing.T
}

func (s *steadySource) Read(ctx context.Context) ([]sdk.Record, error) {
	for {
		recs, err := s.Source.Read(ctx)
		if err != nil {
			return nil, err
		}
		var out []sdk.Record
		for _, r := range recs {
			if r.Topic != "" {
				r.Value = sdk.TextValue(decodeEvent(s.t, &r).String())
				out = append(out, r)
			}
		}
		if len(out) > 0 {
			return out, nil
		}
	}
}

func TestAcceptance(t *testing.T) {
	d := newDatabase(t)
	d.exec("CREATE TABLE a (id int PRIMARY KEY, v text)")
	cfg := d.config("snapshot.mode", "never", "slot.name", "acceptance")
	slot := cfg["slot.name"]
	sdktest.RunSource(t, sdktest.Source{
		Connector: steady{New(), t}, Config: cfg, Records: 40,
		Prepare: func(t *testing.T) {
			waitFor(t, func() bool {
				return d.value("SELECT count(*)::text FROM pg_replication_slots WHERE slot_name = $1 AND active", slot) == "0"
			})
			d.exec("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '"+slot+"'", "TRUNCATE a")
			d.start(d.config("slot.name", slot))
			d.exec("INSERT INTO a SELECT i, 'v' || i FROM generate_series(1, 20) i", "UPDATE a SET v = 'w' WHERE id <= 10", "DELETE FROM a WHERE id <= 5")
		},
	})
}
