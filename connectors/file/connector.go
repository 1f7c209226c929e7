package file

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"time"

	"github.com/varvehq/varve/internal/vfs"
	"github.com/varvehq/varve/sdk"
)

const version = "1.0.0"

// NewSource returns the source connector.
func NewSource() sdk.SourceConnector { return sourceConnector{fs: vfs.OS()} }

// NewSink returns the sink connector.
func NewSink() sdk.SinkConnector { return sinkConnector{fs: vfs.OS()} }

type sourceConfig struct {
	File    string        `config:"file" required:"true" importance:"high" group:"Files" width:"long" doc:"File to read, or folder whose files to read."`
	Pattern string        `config:"pattern" default:"*" group:"Files" doc:"Of a folder: names of the files to read, as a shell pattern."`
	Topic   string        `config:"topic" required:"true" importance:"high" group:"Records" doc:"Topic to write to."`
	Format  string        `config:"format" default:"text" oneof:"text,json,bytes" group:"Records" doc:"What a line is: text, a JSON document, or bytes."`
	Batch   int           `config:"batch.size" default:"2000" min:"1" max:"100000" importance:"low" group:"Reading" doc:"Most lines of one read."`
	Poll    time.Duration `config:"poll.interval.ms" default:"500" min:"1" importance:"low" group:"Reading" doc:"How often to look for new lines and files."`
	MaxLine int           `config:"max.line.bytes" default:"1048576" min:"1" max:"15728640" importance:"low" group:"Reading" doc:"Longest line; a longer one fails the task."`
}

type sourceConnector struct{ fs vfs.FS }

func (sourceConnector) Spec() sdk.Spec {
	return sdk.Spec{
		Name: "file-source", Version: version, Kind: sdk.SourceKind,
		Doc:     "Reads lines of a file, or of the files of a folder, and follows them as they grow.",
		Config:  sdk.Definitions(sourceConfig{}),
		Aliases: []string{"org.apache.kafka.connect.file.FileStreamSourceConnector", "FileStreamSource"},
	}
}

// Validate accepts a file that is not there yet.
func (c sourceConnector) Validate(_ context.Context, raw sdk.Config) []sdk.ConfigError {
	var cfg sourceConfig
	errs := raw.Decode(&cfg)
	if _, err := filepath.Match(cfg.Pattern, "x"); err != nil {
		errs = append(errs, sdk.ConfigError{Key: "pattern", Message: "not a shell pattern: " + cfg.Pattern})
	}
	if len(errs) > 0 {
		return errs
	}
	f, err := c.fs.Open(cfg.File)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return []sdk.ConfigError{{Key: "file", Message: err.Error()}}
	}
	_ = f.Close()
	return nil
}

// Tasks is one task: the order of lines is worth more than speed here.
func (sourceConnector) Tasks(_ context.Context, cfg sdk.Config, _ int) ([]sdk.Config, error) {
	return []sdk.Config{maps.Clone(cfg)}, nil
}

// ExactlyOnce holds: a line is known by its position.
func (sourceConnector) ExactlyOnce(sdk.Config) bool { return true }

// AlterOffsets checks what a user wants to set: positions of files.
func (sourceConnector) AlterOffsets(_ context.Context, _ sdk.Config, offsets []sdk.PartitionOffset) error {
	for _, o := range offsets {
		if _, err := filename(o); err != nil {
			return err
		}
		if o.Offset == nil {
			continue
		}
		if _, err := parsePosition(o); err != nil {
			return err
		}
	}
	return nil
}

func (c sourceConnector) NewSource() sdk.Source { return &source{fs: c.fs} }

type sinkConfig struct {
	File   string `config:"file" required:"true" importance:"high" group:"Files" width:"long" doc:"File to append to. FILE.offsets beside it belongs to the connector."`
	Format string `config:"format" default:"raw" oneof:"raw,json" importance:"high" group:"Files" doc:"raw: the value, as it is or as JSON where it has a schema; json: an object with topic, partition, offset, timestamp, key, value and headers."`
}

type sinkConnector struct{ fs vfs.FS }

func (sinkConnector) Spec() sdk.Spec {
	return sdk.Spec{
		Name: "file-sink", Version: version, Kind: sdk.SinkKind,
		Doc:     "Appends records as lines to a file, each exactly once.",
		Config:  sdk.Definitions(sinkConfig{}),
		Aliases: []string{"org.apache.kafka.connect.file.FileStreamSinkConnector", "FileStreamSink"},
	}
}

func (sinkConnector) Validate(_ context.Context, raw sdk.Config) []sdk.ConfigError {
	var cfg sinkConfig
	return raw.Decode(&cfg)
}

// Tasks is one task: a file has one writer.
func (sinkConnector) Tasks(_ context.Context, cfg sdk.Config, _ int) ([]sdk.Config, error) {
	return []sdk.Config{maps.Clone(cfg)}, nil
}

func (c sinkConnector) NewSink() sdk.Sink { return &sink{fs: c.fs} }
