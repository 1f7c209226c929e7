package consume

import (
	"bytes"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// hook is a writer that does something at the first write.
type hook struct {
	strings.Builder
	do func()
}

func (h *hook) Write(p []byte) (int, error) {
	if h.do != nil {
		h.do()
		h.do = nil
	}
	return h.Builder.Write(p)
}

func TestMissingTopic(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	cl, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	run := func(stderr *hook, args ...string) (string, error) {
		cmd := Command()
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetErr(stderr)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(append(args, "-b", cluster.ListenAddrs()[0]))
		err := cmd.ExecuteContext(t.Context())
		return out.String(), err
	}
	for _, args := range [][]string{{"typo", "-e"}, {"typo", "--wait", "0s"}} {
		if _, err := run(&hook{}, args...); err == nil || !strings.Contains(err.Error(), "varve topic list") {
			t.Errorf("%v: %v", args, err)
		}
	}
	stderr := &hook{do: func() { // the topic comes once the command has said that it waits
		if _, err := kadm.NewClient(cl).CreateTopic(t.Context(), 1, 1, nil, "later"); err != nil {
			t.Error(err)
		}
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "later", Value: []byte("v")}).FirstErr(); err != nil {
			t.Error(err)
		}
	}}
	out, err := run(stderr, "later", "-n", "1", "--wait", "1m")
	if err != nil || out != "v\n" || !strings.Contains(stderr.String(), "topic later is not there yet") {
		t.Errorf("%q %q: %v", out, stderr.String(), err)
	}
}
