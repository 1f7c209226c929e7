package controller

import (
	"fmt"
	"log/slog"

	"go.etcd.io/raft/v3"
)

// raftLogger gives Raft's lines to slog, one level lower than Raft has them: what matters of them the loop logs itself.
type raftLogger struct{ log *slog.Logger }

var _ raft.Logger = raftLogger{}

func (l raftLogger) Debug(v ...any)                   {}
func (l raftLogger) Debugf(format string, v ...any)   {}
func (l raftLogger) Info(v ...any)                    { l.log.Debug(fmt.Sprint(v...)) }
func (l raftLogger) Infof(format string, v ...any)    { l.log.Debug(fmt.Sprintf(format, v...)) }
func (l raftLogger) Warning(v ...any)                 { l.log.Info(fmt.Sprint(v...)) }
func (l raftLogger) Warningf(format string, v ...any) { l.log.Info(fmt.Sprintf(format, v...)) }
func (l raftLogger) Error(v ...any)                   { l.log.Warn(fmt.Sprint(v...)) }
func (l raftLogger) Errorf(format string, v ...any)   { l.log.Warn(fmt.Sprintf(format, v...)) }

// Fatal and Panic mean that Raft found its own state impossible; there is no going on.
func (l raftLogger) Fatal(v ...any)                 { panic(fmt.Sprint(v...)) }
func (l raftLogger) Fatalf(format string, v ...any) { panic(fmt.Sprintf(format, v...)) }
func (l raftLogger) Panic(v ...any)                 { panic(fmt.Sprint(v...)) }
func (l raftLogger) Panicf(format string, v ...any) { panic(fmt.Sprintf(format, v...)) }
