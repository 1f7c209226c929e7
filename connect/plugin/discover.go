package plugin

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/varvehq/varve/sdk/host"
)

// specTimeout bounds the start of a plugin that is only asked for its spec.
const specTimeout = 20 * time.Second

// scan finds the executables of the plugin directory and asks each for its spec.
func (h *Host) scan(ctx context.Context) ([]*entry, error) {
	if h.cfg.Dir == "" {
		return nil, nil
	}
	files, err := os.ReadDir(h.cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("plugins: %w", err)
	}
	var found []*entry
	for _, f := range files {
		path, err := filepath.Abs(filepath.Join(h.cfg.Dir, f.Name()))
		if err != nil {
			return nil, err
		}
		st, err := os.Stat(path)
		if err != nil || !st.Mode().IsRegular() || st.Mode().Perm()&0o111 == 0 {
			continue
		}
		e, err := h.inspect(ctx, path)
		if err != nil {
			h.log.Error("plugin left out", "path", path, "err", err)
			continue
		}
		found = append(found, e)
	}
	return found, nil
}

func (h *Host) inspect(ctx context.Context, path string) (*entry, error) {
	sum, err := checksum(path)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, specTimeout)
	defer cancel()
	p, err := host.Launch(ctx, host.Options{
		Path: path, Checksum: sum, Env: environment(h.cfg.PassEnv), Log: h.log.With("plugin", filepath.Base(path)),
	})
	if err != nil {
		return nil, err
	}
	spec, err := p.Spec(ctx)
	if err = errors.Join(err, p.Close()); err != nil {
		return nil, err
	}
	return &entry{Info: info(spec, path), checksum: sum}, nil
}

func checksum(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return nil, err
	}
	return sum.Sum(nil), nil
}

// builtinCommand is the command that runs a built-in as a plugin. On Linux it is the very image that runs now, so that an
// upgrade of the file on disk does not mix versions.
func (h *Host) builtinCommand(name string) (string, []string) {
	if h.cfg.Executable != "" {
		return h.cfg.Executable, append(slices.Clone(h.cfg.Args), name)
	}
	args := h.cfg.Args
	if len(args) == 0 {
		args = []string{"plugin", "run"}
	}
	path := "/proc/self/exe"
	if runtime.GOOS != "linux" {
		if exe, err := os.Executable(); err == nil {
			path = exe
		}
	}
	return path, append(slices.Clone(args), name)
}

// harmless are the variables that a plugin always gets.
var harmless = []string{
	"PATH", "HOME", "USER", "TMPDIR", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "GOMAXPROCS", "GODEBUG",
}

// environment is the whole environment of a plugin: none of the worker's credentials are in it unless the user names them.
func environment(pass []string) []string {
	var env []string
	for _, name := range append(slices.Clone(harmless), pass...) {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}
