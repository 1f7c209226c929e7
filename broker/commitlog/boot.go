package commitlog

import (
	"bytes"

	"github.com/varvehq/varve/internal/vfs"
)

// bootFile holds the boot id of the run that uses, or used, the directory. That it is there says, besides, that the log start
// checkpoint is kept as this package does: a directory that Kafka wrote has none.
const bootFile = "boot-id"

const bootUnknown = "unknown"

// openBoot compares the boot id of the run before with this one's, and leaves this one's.
func (d *Dir) openBoot() error {
	was, err := vfs.ReadFile(d.env.FS, d.root+"/"+bootFile)
	if err != nil && !vfs.IsNotExist(err) {
		return err
	}
	d.startSaved = err == nil
	was = bytes.TrimSpace(was)
	d.killed = d.env.BootID != "" && string(was) == d.env.BootID
	if d.killed {
		return nil
	}
	now := d.env.BootID
	if now == "" {
		now = bootUnknown
	}
	if string(was) == now {
		return nil
	}
	return d.writeBoot(now)
}

func (d *Dir) writeBoot(id string) error {
	return vfs.WriteFileAtomic(d.env.FS, d.root+"/"+bootFile, []byte(id+"\n"))
}

// failed is a log's OnFailed: after a failed sync the system may have dropped what was written, as a power loss does.
func (d *Dir) failed(tell func(error)) func(error) {
	return func(err error) {
		if werr := d.writeBoot(bootUnknown); werr != nil {
			d.env.Log.Warn("boot id not removed after a failure of the disk", "error", werr)
		}
		if tell != nil {
			tell(err)
		}
	}
}
