package postgres

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

// cache is a folder of programs and of an initialised data folder, made once and shared by all processes of a user:
//
//	<version>/bin …       the programs
//	<version>/template    the data folder that every new server starts from
//	lock                  held while either is made
type cache struct {
	root     string
	bin      string
	template string
}

// openCache fills the cache where it is empty.
func openCache() (*cache, error) {
	root, err := cacheRoot()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(root, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	defer func() { _ = lock.Close() }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return nil, fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	home := filepath.Join(root, Version)
	c := &cache{root: root, bin: filepath.Join(home, "bin"), template: filepath.Join(home, "template")}
	if _, err := os.Stat(filepath.Join(c.bin, "postgres")); errors.Is(err, os.ErrNotExist) {
		if err := c.fetch(home); err != nil {
			return nil, err
		}
	}
	if _, err := os.Stat(c.template); errors.Is(err, os.ErrNotExist) {
		if err := c.initTemplate(home); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// cacheRoot is the user's cache folder; root's own is closed to the user that runs the server.
func cacheRoot() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/cache/varve/postgres", nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "varve", "postgres"), nil
}

// fetch unpacks the programs into home.
func (c *cache) fetch(home string) error {
	tmp, err := os.MkdirTemp(c.root, "fetch-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	port, err := freePort()
	if err != nil {
		return err
	}
	bin := filepath.Join(tmp, "programs")
	defer http.DefaultClient.CloseIdleConnections() // it is what the library fetches with, and tests look for goroutines left over
	// The library has no call that only unpacks. A data path that no file system takes makes Start end right after.
	err = embeddedpostgres.NewDatabase(embeddedpostgres.DefaultConfig().
		Version(Version).Port(uint32(port)).Logger(io.Discard).
		CachePath(filepath.Join(tmp, "download")).RuntimePath(filepath.Join(tmp, "run")).
		BinariesPath(bin).DataPath("\x00")).Start()
	if _, missing := os.Stat(filepath.Join(bin, "bin", "postgres")); missing != nil {
		return fmt.Errorf("fetch PostgreSQL %s: %w", Version, err)
	}
	if err := os.Chmod(bin, 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(home); err != nil {
		return err
	}
	return os.Rename(bin, home)
}

func (c *cache) initTemplate(home string) error {
	tmp := filepath.Join(home, "template.new")
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	if err := makeDataDir(tmp); err != nil {
		return err
	}
	secret := filepath.Join(home, "password")
	if err := os.WriteFile(secret, []byte(Password), 0o644); err != nil {
		return err
	}
	cmd := exec.Command(filepath.Join(c.bin, "initdb"), "-D", tmp, "-U", User, "-A", "scram-sha-256",
		"--pwfile", secret, "-E", "UTF8", "--locale", "C", "--no-sync", "--no-instructions")
	cmd.Dir = tmp
	cmd.Env = append(os.Environ(), "LC_ALL=C", "TZ=UTC")
	setServerUser(cmd)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	conf, err := os.OpenFile(filepath.Join(tmp, "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = conf.WriteString("include_if_exists 'varve.conf'\n")
	if err := errors.Join(err, conf.Close()); err != nil {
		return err
	}
	return os.Rename(tmp, c.template)
}

// copyTemplate makes dir a new data folder.
func (c *cache) copyTemplate(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := makeDataDir(dir); err != nil {
		return err
	}
	if out, err := exec.Command("cp", "-Rp", c.template+"/.", dir).CombinedOutput(); err != nil {
		return fmt.Errorf("copy the data folder: %w\n%s", err, out)
	}
	return nil
}

// makeDataDir makes a folder as the server wants it: its own, closed to others.
func makeDataDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if id := serverUser(); id != nil {
		return os.Chown(dir, int(id.Uid), int(id.Gid))
	}
	return nil
}

// serverUser is who the server runs as, nil for the calling user.
func serverUser() *syscall.Credential {
	if os.Geteuid() != 0 {
		return nil
	}
	id := &syscall.Credential{Uid: 65534, Gid: 65534}
	if u, err := user.Lookup("nobody"); err == nil {
		if n, err := strconv.ParseUint(u.Uid, 10, 32); err == nil {
			id.Uid = uint32(n)
		}
		if n, err := strconv.ParseUint(u.Gid, 10, 32); err == nil {
			id.Gid = uint32(n)
		}
	}
	return id
}
