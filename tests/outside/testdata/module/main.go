// Command outside is a connector in a module of its own: a source of numbered records, which misbehaves where its
// configuration, or a file beside the program, says so.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"

	"github.com/varvehq/varve/sdk"
	"github.com/varvehq/varve/sdk/serve"
)

func main() {
	// A plugin is started for its spec and again for each connector: the files turn it into another program in between.
	exe, err := os.Executable()
	if err == nil {
		switch {
		case exists(exe + ".handshake"):
			fmt.Println("1|99|unix|/nowhere|grpc")
			select {}
		case exists(exe + ".frames"):
			serveFrames()
			return
		}
	}
	serve.Connector(connector{})
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

type config struct {
	Topic string `config:"topic" required:"true" importance:"high" doc:"Topic to write to."`
	Count int64  `config:"count" default:"1000" min:"0" doc:"How many records there are."`
	Size  int    `config:"size" default:"10" min:"0" doc:"Bytes of each value."`
	// Fault is done at record At, once: when the file Once exists it is over.
	Fault string `config:"fault" default:"none" oneof:"none,wait,hang,flood" doc:"How to misbehave."`
	At    int64  `config:"at" default:"0" doc:"Where to misbehave."`
	Once  string `config:"once" default:"" doc:"File that is made before misbehaving, with the process id in it; where it exists, nothing happens."`
}

type connector struct{}

func (connector) Spec() sdk.Spec {
	return sdk.Spec{Name: "outside", Version: "1.0.0", Kind: sdk.SourceKind, Doc: "Numbered records.", Config: sdk.Definitions(config{})}
}

func (connector) Validate(_ context.Context, raw sdk.Config) []sdk.ConfigError {
	var cfg config
	return raw.Decode(&cfg)
}

func (connector) Tasks(_ context.Context, raw sdk.Config, _ int) ([]sdk.Config, error) {
	return []sdk.Config{maps.Clone(raw)}, nil
}

func (connector) NewSource() sdk.Source { return &source{} }

type source struct {
	cfg  config
	env  sdk.SourceEnv
	part *sdk.SourcePartition
	next int64
}

type position struct {
	N int64 `json:"n"`
}

func (s *source) Open(_ context.Context, env sdk.SourceEnv) error {
	s.env = env
	if errs := env.Config.Decode(&s.cfg); len(errs) > 0 {
		return errs[0]
	}
	s.part = sdk.NewSourcePartition(`{"outside":1}`)
	for _, o := range env.Offsets {
		var at position
		if err := json.Unmarshal(o.Offset, &at); err != nil {
			return err
		}
		s.next = at.N + 1
	}
	return nil
}

func (s *source) Read(ctx context.Context) ([]sdk.Record, error) {
	if s.next >= s.cfg.Count {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if s.cfg.Fault != "none" && s.next >= s.cfg.At && !exists(s.cfg.Once) {
		if err := os.WriteFile(s.cfg.Once, fmt.Append(nil, os.Getpid()), 0o600); err != nil {
			return nil, err
		}
		return nil, s.misbehave(ctx)
	}
	var recs []sdk.Record
	for range 10 {
		if s.next == s.cfg.Count || s.next == s.cfg.At && len(recs) > 0 {
			break
		}
		offset, err := json.Marshal(position{s.next})
		if err != nil {
			return nil, err
		}
		recs = append(recs, sdk.Record{Topic: s.cfg.Topic, Partition: sdk.AnyPartition, Key: sdk.TextValue(fmt.Sprint(s.next)),
			Value: sdk.RawBytes(make([]byte, s.cfg.Size)), Source: s.part, SourceOffset: offset})
		s.next++
	}
	return recs, nil
}

func (s *source) misbehave(ctx context.Context) error {
	switch s.cfg.Fault {
	case "wait": // for whoever kills the process
		<-ctx.Done()
		return ctx.Err()
	case "hang":
		select {} // and the context is not heeded
	case "flood":
		line := strings.Repeat("x", 1000)
		for ctx.Err() == nil {
			s.env.Log.Info(line)
		}
		return ctx.Err()
	}
	return errors.New("no such fault")
}

func (s *source) Ack(context.Context, sdk.PartitionOffset) error { return nil }

func (s *source) Close(context.Context) error { return nil }
