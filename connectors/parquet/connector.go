package parquet

import (
	"context"
	"maps"
	"time"

	"github.com/varvehq/varve/internal/objstore"
	"github.com/varvehq/varve/internal/objstore/open"
	"github.com/varvehq/varve/sdk"
)

// New returns the connector.
func New() sdk.SinkConnector { return &connector{open: open.Default} }

// connector opens stores by open, which tests replace.
type connector struct {
	open func(ctx context.Context, url string) (objstore.Bucket, error)
}

func (c *connector) Spec() sdk.Spec {
	return sdk.Spec{
		Name:    "parquet",
		Version: "1.0.0",
		Kind:    sdk.SinkKind,
		Doc:     "Writes topics as Parquet files to an S3-compatible bucket or a folder, each record exactly once.",
		Config:  sdk.Definitions(&config{}),
	}
}

// Validate opens the store, so that a wrong URL or missing rights show at once and not as a failed task.
func (c *connector) Validate(ctx context.Context, raw sdk.Config) []sdk.ConfigError {
	var cfg config
	if errs := raw.Decode(&cfg); len(errs) > 0 {
		return errs
	}
	b, err := c.open(ctx, cfg.URL)
	if err == nil {
		err = b.List(ctx, "varve-probe/", objstore.ListOptions{}, func(objstore.Info) error { return nil })
		if cerr := b.Close(); err == nil {
			err = cerr
		}
	}
	if err != nil {
		return []sdk.ConfigError{{Key: "url", Message: "the store cannot be used: " + err.Error()}}
	}
	return nil
}

// Tasks gives every task the same configuration: the consumer group spreads the partitions.
func (c *connector) Tasks(_ context.Context, cfg sdk.Config, max int) ([]sdk.Config, error) {
	out := make([]sdk.Config, max)
	for i := range out {
		out[i] = maps.Clone(cfg)
	}
	return out, nil
}

func (c *connector) NewSink() sdk.Sink { return &sink{open: c.open, now: time.Now} }
