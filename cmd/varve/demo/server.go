package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// server is the product's own binary, run as a user would run it.
type server struct {
	cmd                   *exec.Cmd
	exited                chan error
	exe, dir, bucket      string
	kafka, connect, admin string
	took                  time.Duration
}

// config makes a small table seal segments and retention act within the minute that the demo takes.
const config = `broker:
  properties:
    log.retention.check.interval.ms: "1000"
    remote.log.manager.task.interval.ms: "1000"
    group.initial.rebalance.delay.ms: "0"
`

func startServer(ctx context.Context, exe, dir, bucket string) (*server, error) {
	s := &server{exe: exe, dir: dir, bucket: bucket}
	for _, at := range []*string{&s.kafka, &s.connect, &s.admin} {
		addr, err := freeAddr()
		if err != nil {
			return nil, err
		}
		*at = addr
	}
	if err := os.WriteFile(filepath.Join(dir, "varve.yaml"), []byte(config), 0o644); err != nil {
		return nil, err
	}
	return s, s.start(ctx)
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	addr := l.Addr().String()
	return addr, l.Close()
}

// start runs the binary and waits until it is healthy.
func (s *server) start(ctx context.Context) error {
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	began := time.Now()
	s.cmd = exec.Command(s.exe, "server", "--config", filepath.Join(s.dir, "varve.yaml"), "--data-dir", filepath.Join(s.dir, "data"),
		"--bucket", s.bucket, "--listen", s.kafka, "--connect-listen", s.connect, "--admin-listen", s.admin)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.SysProcAttr = childAttr()
	if err := s.cmd.Start(); err != nil {
		return err
	}
	s.exited = make(chan error, 1)
	go func() { s.exited <- s.cmd.Wait() }()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), s.stop())
		case err := <-s.exited:
			s.exited <- err
			return fmt.Errorf("the server ended at its start (%w); its log ends with:\n%s", err, s.tail())
		case <-tick.C:
		}
		if s.healthy(ctx) {
			s.took = time.Since(began)
			return nil
		}
		if time.Since(began) > time.Minute {
			return fmt.Errorf("the server is not ready after a minute; its log ends with:\n%s", s.tail())
		}
	}
}

func (s *server) healthy(ctx context.Context) bool {
	for _, url := range []string{"http://" + s.admin + "/ready", "http://" + s.connect + "/health"} {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return false
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return false
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return false
		}
	}
	return true
}

func (s *server) logFile() string { return filepath.Join(s.dir, "server.log") }

func (s *server) tail() string {
	data, err := os.ReadFile(s.logFile())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}

// stop ends the server as a service manager would.
func (s *server) stop() error {
	if s.cmd == nil || s.cmd.Process == nil {
		return nil
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return nil //nolint:nilerr // it has ended
	}
	select {
	case err := <-s.exited:
		s.cmd = nil
		if err != nil {
			return fmt.Errorf("the server ended badly: %w; its log ends with:\n%s", err, s.tail())
		}
		return nil
	case <-time.After(30 * time.Second):
		_ = s.cmd.Process.Kill()
		<-s.exited //nolint:errcheck // killed
		s.cmd = nil
		return errors.New("the server did not stop within 30 s and was killed")
	}
}

// metric sums the samples of a metric over its labels; match is a part of the label set, or empty.
func (s *server) metric(ctx context.Context, name, match string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.admin+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = res.Body.Close() }()
	sum, seen := 0.0, false
	for sc := bufio.NewScanner(res.Body); sc.Scan(); {
		line := sc.Text()
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' || !strings.Contains(rest, match) {
			continue
		}
		v, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			return 0, err
		}
		sum += v
		seen = true
	}
	if !seen {
		return 0, fmt.Errorf("the server has no metric %s{%s}", name, match)
	}
	return sum, nil
}
