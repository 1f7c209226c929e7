// The driver of kcat, which is a program: what it takes and prints is translated. It has one timestamp and one list of
// headers for all records of a run, so they are left out, and an empty value is null.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/varvehq/varve/tests/compat/clients/golang/contract"
)

func main() { contract.Main(client{}) }

type client struct{}

func (client) Version() string {
	out, err := exec.Command("kcat", "-V").CombinedOutput()
	m := regexp.MustCompile(`Version (\S+) .*librdkafka (\S+)`).FindSubmatch(out)
	if err != nil || m == nil {
		return "unknown"
	}
	return fmt.Sprintf("%s (librdkafka %s)", m[1], m[2])
}

// Between key and value, and behind a record.
const keyEnd, recordEnd = "\x01k\x02", "\x01r\x02"

func (client) Produce(bootstrap, codec, topic string, records []contract.Record) error {
	var in bytes.Buffer
	for _, r := range records {
		in.Write(r.Key)
		in.WriteString(keyEnd)
		in.Write(r.Value)
		in.WriteString(recordEnd)
	}
	cmd := exec.Command("kcat", "-P", "-b", bootstrap, "-t", topic, "-z", codec, "-K", keyEnd, "-D", recordEnd, "-Z",
		"-X", "enable.idempotence=true")
	cmd.Stdin, cmd.Stderr = &in, os.Stderr
	return cmd.Run()
}

// format gives the lengths first, since what has a length may hold any byte.
const format = `%t %p %o %T %K %S\n%k%s\n%h\n`

func (client) Consume(bootstrap, topic string, count int, out *contract.Printer) error {
	return read(out, "-C", "-b", bootstrap, "-t", topic, "-o", "beginning", "-c", strconv.Itoa(count))
}

func (client) Group(bootstrap, group, topic string, out *contract.Printer) error {
	return read(out, "-b", bootstrap, "-u", "-X", "auto.offset.reset=earliest", "-X", "session.timeout.ms=6000",
		"-X", "heartbeat.interval.ms=1000", "-X", "auto.commit.interval.ms=300", "-G", group, topic)
}

func read(out *contract.Printer, args ...string) error {
	cmd := exec.Command("kcat", append([]string{"-q", "-f", format}, args...)...)
	cmd.Stderr = os.Stderr
	runtime.LockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // kcat dies as its driver does
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	in := bufio.NewReaderSize(pipe, 1<<20)
	for {
		r, err := next(in)
		if errors.Is(err, io.EOF) {
			return cmd.Wait()
		}
		if err != nil {
			return err
		}
		out.Print(r)
		if in.Buffered() == 0 {
			out.Flush()
		}
	}
}

func next(in *bufio.Reader) (r contract.Record, err error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return r, err
	}
	var keyLen, valueLen int
	if _, err := fmt.Sscanf(line, "%s %d %d %d %d %d\n", &r.Topic, &r.Partition, &r.Offset, &r.Timestamp, &keyLen, &valueLen); err != nil {
		return r, fmt.Errorf("%q: %w", line, err)
	}
	if r.Key, err = take(in, keyLen); err != nil {
		return r, err
	}
	if r.Value, err = take(in, valueLen); err != nil {
		return r, err
	}
	if _, err := in.Discard(1); err != nil {
		return r, err
	}
	headers, err := in.ReadString('\n')
	for h := range strings.SplitSeq(strings.TrimSuffix(headers, "\n"), ",") {
		if name, value, ok := strings.Cut(h, "="); ok {
			r.Headers = append(r.Headers, contract.Header{Name: name, Value: []byte(value)})
		}
	}
	return r, err
}

// take reads n bytes; kcat prints null as NULL or not at all, and its length as -1.
func take(in *bufio.Reader, n int) ([]byte, error) {
	if n < 0 {
		return nil, nil
	}
	b := make([]byte, n)
	_, err := io.ReadFull(in, b)
	return b, err
}
