package tiering

import "github.com/varvehq/varve/tiering/manifest"

// Current gives the newest manifest known.
func (p *Partition) Current() *manifest.Manifest { return p.current().m }

// Dir is the partition's folder.
func (p *Partition) Dir() string { return p.dir }
