package commitlog

import (
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/varvehq/varve/internal/kafka"
	"github.com/varvehq/varve/internal/vfs"
)

// metaProperties is meta.properties, version 1: cluster.id, node.id, directory.id. Keys that we do not know are kept.
type metaProperties struct {
	known map[string]string
}

func parseMeta(b []byte) metaProperties {
	m := metaProperties{known: map[string]string{}}
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		key, value, _ := strings.Cut(line, "=")
		m.known[strings.TrimSpace(key)] = strings.TrimSpace(value)
	}
	return m
}

func (m metaProperties) encode() []byte {
	keys := make([]string, 0, len(m.known))
	for k := range m.known {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	var b strings.Builder
	for _, k := range keys {
		fmt.Fprintf(&b, "%s=%s\n", k, m.known[k])
	}
	return []byte(b.String())
}

// openMeta reads meta.properties, compares it with the environment, and writes a new one where needed.
func (d *Dir) openMeta() error {
	b, err := vfs.ReadFile(d.env.FS, d.root+"/"+metaFile)
	if err != nil && !vfs.IsNotExist(err) {
		return err
	}
	d.meta = parseMeta(b)
	node := strconv.Itoa(int(d.env.NodeID))
	for key, want := range map[string]string{"cluster.id": d.env.ClusterID, "node.id": node, "version": "1"} {
		if have := d.meta.known[key]; have != "" && want != "" && have != want {
			return fmt.Errorf("%w: %s is %s, expected %s", ErrMeta, key, have, want)
		}
	}
	id := d.meta.known["directory.id"]
	if _, err := kafka.ParseUUID(id); err != nil {
		if id != "" {
			return fmt.Errorf("%w: directory.id %q", ErrMeta, id)
		}
		d.meta.known["directory.id"] = kafka.NewUUID().String()
	}
	d.meta.known["version"], d.meta.known["node.id"] = "1", node
	if d.env.ClusterID != "" {
		d.meta.known["cluster.id"] = d.env.ClusterID
	}
	if string(d.meta.encode()) == string(b) {
		return nil
	}
	return vfs.WriteFileAtomic(d.env.FS, d.root+"/"+metaFile, d.meta.encode())
}

// ClusterID is the cluster that the directory belongs to, "" where it does not know yet.
func (d *Dir) ClusterID() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.meta.known["cluster.id"]
}

// DirectoryID identifies the directory.
func (d *Dir) DirectoryID() kafka.UUID {
	d.mu.Lock()
	defer d.mu.Unlock()
	id, _ := kafka.ParseUUID(d.meta.known["directory.id"]) // checked when it was opened
	return id
}

// SetClusterID records the cluster in a directory that does not know it yet; ErrMeta where it knows another.
func (d *Dir) SetClusterID(id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch d.meta.known["cluster.id"] {
	case id:
		return nil
	case "":
		d.meta.known["cluster.id"] = id
		return vfs.WriteFileAtomic(d.env.FS, d.root+"/"+metaFile, d.meta.encode())
	}
	return fmt.Errorf("%w: cluster.id is %s, not %s", ErrMeta, d.meta.known["cluster.id"], id)
}
