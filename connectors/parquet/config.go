package parquet

import (
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"
)

type config struct {
	URL string `config:"url" required:"true" importance:"high" group:"Store" doc:"Where the files go: s3://bucket/prefix?endpoint=…&region=…&path_style=true, or file:///folder. Credentials come from the environment of the worker, as the AWS SDK reads them."`
	Dir string `config:"topics.dir" default:"topics" importance:"medium" group:"Store" doc:"Folder below the URL that holds the topics."`

	FlushRecords int           `config:"flush.size" default:"1000000" min:"1" importance:"high" group:"Rotation" doc:"A file is closed when it has this many records."`
	FlushBytes   int64         `config:"flush.bytes" default:"67108864" min:"1" importance:"high" group:"Rotation" doc:"A file is closed when it has about this many bytes."`
	FlushEvery   time.Duration `config:"rotate.interval.ms" default:"600000" min:"1" importance:"high" group:"Rotation" doc:"A file is closed when it has been open this long, also on an idle topic."`
	Memory       int64         `config:"buffer.memory" default:"268435456" min:"1048576" importance:"medium" group:"Rotation" doc:"Bound on the bytes of all open files of a task; past it the largest is closed."`

	Codec    string `config:"parquet.codec" default:"snappy" oneof:"none,snappy,gzip,zstd" importance:"low" group:"Format" doc:"Compression of pages."`
	Changes  string `config:"change.events" default:"flatten" oneof:"flatten,envelope" importance:"medium" group:"Format" doc:"What becomes of change events: flatten gives the row's columns (before of a delete, else after) with _op and the source position; envelope keeps before, after and source as groups."`
	Metadata bool   `config:"metadata.columns" default:"true" importance:"medium" group:"Format" doc:"Adds the columns _topic, _partition, _offset and _timestamp, and for flattened change events _op, _source_ts_ms, _lsn."`
	Nulls    string `config:"behavior.on.null.values" default:"ignore" oneof:"ignore,fail,write" importance:"low" group:"Format" doc:"What becomes of records without a value (tombstones)."`
}

func (c *config) codec() compress.Codec {
	switch c.Codec {
	case "snappy":
		return &parquet.Snappy
	case "gzip":
		return &parquet.Gzip
	case "zstd":
		return &parquet.Zstd
	}
	return &parquet.Uncompressed
}
