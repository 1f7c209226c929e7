// Package contract is the drivers' side of the contract with the compatibility suite: the commands of a driver, and records
// as lines of text.
//
//	DRIVER version
//	DRIVER produce BOOTSTRAP CODEC=TOPIC…      sends the records of standard input to each topic
//	DRIVER consume BOOTSTRAP COUNT TOPIC…      prints the first COUNT records of each topic, without a group
//	DRIVER group BOOTSTRAP GROUP TOPIC         reads as a member of a group, prints records, commits after it printed them,
//	                                           until it is killed
//
// A record in is "timestamp TAB key TAB value TAB headers", a record out has "topic TAB partition TAB offset TAB" in front. Key
// and value are base64, or "-" for null; headers are "name=base64" joined by commas, the timestamp is in milliseconds.
package contract

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Record is a record on its way in or out.
type Record struct {
	Topic             string
	Partition         int32
	Offset, Timestamp int64
	Key, Value        []byte // nil is null
	Headers           []Header
}

// Header is a header of a record.
type Header struct {
	Name  string
	Value []byte
}

// Client is what a driver does with its client library.
type Client interface {
	// Version names the library's version.
	Version() string
	// Produce returns when every record is acknowledged, in order per partition.
	Produce(bootstrap, codec, topic string, records []Record) error
	// Consume gives the first count records of a topic to out.
	Consume(bootstrap, topic string, count int, out *Printer) error
	// Group reads and commits until the process ends.
	Group(bootstrap, group, topic string, out *Printer) error
}

// Main runs a driver.
func Main(c Client) {
	if err := run(c, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(c Client, args []string) error {
	out := &Printer{w: bufio.NewWriterSize(os.Stdout, 1<<20)}
	defer out.Flush()
	switch {
	case len(args) == 1 && args[0] == "version":
		_, err := fmt.Fprintln(out.w, c.Version())
		return err
	case len(args) > 2 && args[0] == "produce":
		records, err := read()
		if err != nil {
			return err
		}
		for _, a := range args[2:] {
			codec, topic, _ := strings.Cut(a, "=")
			if err := c.Produce(args[1], codec, topic, records); err != nil {
				return fmt.Errorf("produce to %s: %w", topic, err)
			}
		}
		return nil
	case len(args) > 3 && args[0] == "consume":
		count, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		for _, topic := range args[3:] {
			if err := c.Consume(args[1], topic, count, out); err != nil {
				return fmt.Errorf("consume %s: %w", topic, err)
			}
		}
		return nil
	case len(args) == 4 && args[0] == "group":
		return c.Group(args[1], args[2], args[3], out)
	}
	return fmt.Errorf("arguments %q are no command of the contract", args)
}

func read() ([]Record, error) {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	var records []Record
	for in.Scan() {
		f := strings.Split(in.Text(), "\t")
		if len(f) != 4 {
			return nil, fmt.Errorf("%d fields in %q", len(f), in.Text())
		}
		r, err := parse(f)
		if err != nil {
			return nil, err
		}
		records = append(records, r)
	}
	return records, in.Err()
}

func parse(f []string) (r Record, err error) {
	if r.Timestamp, err = strconv.ParseInt(f[0], 10, 64); err != nil {
		return r, err
	}
	if r.Key, err = decode(f[1]); err != nil {
		return r, err
	}
	if r.Value, err = decode(f[2]); err != nil {
		return r, err
	}
	if f[3] == "" {
		return r, nil
	}
	for h := range strings.SplitSeq(f[3], ",") {
		name, value, _ := strings.Cut(h, "=")
		b, err := base64.StdEncoding.DecodeString(value)
		if err != nil {
			return r, err
		}
		r.Headers = append(r.Headers, Header{name, b})
	}
	return r, nil
}

func decode(s string) ([]byte, error) {
	if s == "-" {
		return nil, nil
	}
	b, err := base64.StdEncoding.DecodeString(s)
	if b == nil {
		b = []byte{}
	}
	return b, err
}

// Printer prints records as lines.
type Printer struct {
	w   *bufio.Writer
	buf []byte
}

// Print prints a record.
func (p *Printer) Print(r Record) {
	b := append(p.buf[:0], r.Topic...)
	for _, n := range []int64{int64(r.Partition), r.Offset, r.Timestamp} {
		b = strconv.AppendInt(append(b, '\t'), n, 10)
	}
	for _, v := range [][]byte{r.Key, r.Value} {
		b = append(b, '\t')
		if v == nil {
			b = append(b, '-')
		} else {
			b = base64.StdEncoding.AppendEncode(b, v)
		}
	}
	b = append(b, '\t')
	for i, h := range r.Headers {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, h.Name...), '=')
		b = base64.StdEncoding.AppendEncode(b, h.Value)
	}
	p.buf = append(b, '\n')
	if _, err := p.w.Write(p.buf); err != nil {
		os.Exit(1) // nobody reads any more
	}
}

// Flush hands what was printed to the reader.
func (p *Printer) Flush() {
	if err := p.w.Flush(); err != nil {
		os.Exit(1)
	}
}
