// Package cli is what the commands share: how they reach a cluster, print tables or JSON, and word their errors. It holds
// no behaviour of the product.
package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Client is how a command reaches a Kafka cluster.
type Client struct{ bootstrap string }

// Bind adds the flags -b and --bootstrap.
func (c *Client) Bind(cmd *cobra.Command) {
	def := os.Getenv("VARVE_BOOTSTRAP")
	if def == "" {
		def = "127.0.0.1:9092"
	}
	cmd.PersistentFlags().StringVarP(&c.bootstrap, "bootstrap", "b", def, "Kafka addresses, comma-separated (VARVE_BOOTSTRAP)")
}

// Open returns a client. It does not connect yet; use Reach before the first call for an early, clear error.
func (c *Client) Open(opts ...kgo.Opt) (*kgo.Client, error) {
	seeds := strings.Split(c.bootstrap, ",")
	base := []kgo.Opt{
		kgo.SeedBrokers(seeds...),
		kgo.ClientID("varve-cli"),
		kgo.DialTimeout(5 * time.Second),
		kgo.RetryTimeout(15 * time.Second),
		kgo.RequestRetries(5),
	}
	cl, err := kgo.NewClient(append(base, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("bootstrap %q: %w", c.bootstrap, err)
	}
	return cl, nil
}

// Admin returns an admin client after it has reached the cluster; close the second value.
func (c *Client) Admin(cmd *cobra.Command) (*kadm.Client, func(), error) {
	cl, err := c.Open()
	if err != nil {
		return nil, nil, err
	}
	if err := c.Reach(cmd, cl); err != nil {
		cl.Close()
		return nil, nil, err
	}
	return kadm.NewClient(cl), cl.Close, nil
}

// Reach fails where no broker answers, and says what to do.
func (c *Client) Reach(cmd *cobra.Command, cl *kgo.Client) error {
	if err := cl.Ping(cmd.Context()); err != nil {
		return fmt.Errorf("no broker answers at %s: %w\nstart one with `varve server`, or name another with -b HOST:PORT", c.bootstrap, cause(err))
	}
	return nil
}

func cause(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}

// KafkaError words an error of the protocol for a person: its name and its sentence.
func KafkaError(err error) error {
	var k *kerr.Error
	if errors.As(err, &k) {
		return fmt.Errorf("%s: %s", k.Message, strings.TrimSuffix(k.Description, "."))
	}
	return err
}

// Output is the form of what a command prints.
type Output struct{ format string }

// Bind adds the flag -o.
func (o *Output) Bind(cmd *cobra.Command) {
	cmd.PersistentFlags().StringVarP(&o.format, "output", "o", "table", "output: table or json")
}

// JSON reports whether machines read the output.
func (o *Output) JSON() bool { return o.format == "json" }

// Check refuses an unknown form.
func (o *Output) Check() error {
	if o.format != "table" && o.format != "json" {
		return fmt.Errorf("-o %s: the forms are table and json", o.format)
	}
	return nil
}

// Print writes v as JSON, or the rows as a table under the headings.
func (o *Output) Print(w io.Writer, v any, headings []string, rows [][]string) error {
	if err := o.Check(); err != nil {
		return err
	}
	if o.JSON() {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(v)
	}
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	lines := append([][]string{headings}, rows...)
	for _, r := range lines {
		if len(r) == 0 {
			continue
		}
		if _, err := fmt.Fprintln(tw, strings.Join(r, "\t")); err != nil {
			return err
		}
	}
	return tw.Flush()
}

// ParseConfigs reads key=value arguments.
func ParseConfigs(pairs []string) (map[string]*string, error) {
	out := make(map[string]*string, len(pairs))
	for _, p := range pairs {
		k, v, ok := strings.Cut(p, "=")
		if !ok || k == "" {
			return nil, fmt.Errorf("-c %s: want KEY=VALUE", p)
		}
		out[k] = &v
	}
	return out, nil
}
