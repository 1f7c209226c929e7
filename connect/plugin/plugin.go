// Package plugin is the worker's registry of connectors. It finds them (built in, or executables of a plugin directory),
// knows them by name and alias, and launches one process per connector, or runs a built-in one in process. It promises a
// clean environment, a private socket folder, a checked executable, and that no plugin outlives the Host. What happens
// between host and plugin is sdk/host's.
package plugin

import (
	"context"
	"errors"

	"github.com/varvehq/varve/sdk"
	"github.com/varvehq/varve/sdk/host"
)

// Plugin, its tasks and its errors are sdk/host's.
type (
	Plugin     = host.Plugin
	SourceTask = host.SourceTask
	SinkTask   = host.SinkTask
	Features   = host.Features
)

// The errors of plugins and their tasks; see sdk/host.
var (
	ErrPluginDied  = host.ErrDied
	ErrPluginHung  = host.ErrHung
	ErrProtocol    = host.ErrProtocol
	ErrUnsupported = host.ErrUnsupported
	ErrClosed      = host.ErrClosed
)

// ErrUnknownClass means that no plugin has that class, name or alias.
var ErrUnknownClass = errors.New("unknown connector class")

// Info describes a plugin that can be launched.
type Info struct {
	// Class is the name for connector.class.
	Class   string
	Type    sdk.Kind
	Version string
	Aliases []string
	Doc     string
	// Path is the executable of a plugin of the plugin directory, empty for a built-in one.
	Path string
}

// Registry is what the worker needs of a Host.
type Registry interface {
	// List returns all plugins, sorted by class.
	List() []Info
	// Lookup finds a plugin by class, alias, or the simple name of an alias (what follows its last dot).
	Lookup(class string) (Info, bool)
	// Launch starts a plugin for one connector, whose tasks share it. Close it when the connector stops.
	Launch(ctx context.Context, class string) (Plugin, error)
}

var _ Registry = (*Host)(nil)
