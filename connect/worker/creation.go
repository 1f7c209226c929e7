package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// topicCreation is topic.creation.*: how a source's topics are made (KIP-158). Without any such key they are made with the
// brokers' defaults.
type topicCreation struct {
	groups []topicGroup // in the order of topic.creation.groups, then default
}

type topicGroup struct {
	name             string
	include, exclude []*regexp.Regexp
	partitions       int32
	rf               int16
	configs          map[string]*string
}

func parseTopicCreation(r *reader) topicCreation {
	var tc topicCreation
	any := false
	for k := range r.raw {
		any = any || strings.HasPrefix(k, "topic.creation.") && k != "topic.creation.enable"
	}
	if !any {
		return topicCreation{groups: []topicGroup{{name: "default", partitions: -1, rf: -1}}}
	}
	for name := range strings.SplitSeq(r.raw["topic.creation.groups"], ",") {
		if name = strings.TrimSpace(name); name != "" && name != "default" {
			tc.groups = append(tc.groups, parseTopicGroup(r, name))
		}
	}
	tc.groups = append(tc.groups, parseTopicGroup(r, "default"))
	return tc
}

func parseTopicGroup(r *reader, name string) topicGroup {
	prefix := "topic.creation." + name + "."
	g := topicGroup{name: name, configs: map[string]*string{}}
	if name == "default" {
		r.required(prefix + "partitions")
		r.required(prefix + "replication.factor")
	}
	g.partitions = int32(r.integer(prefix+"partitions", -1, -1))
	g.rf = int16(r.integer(prefix+"replication.factor", -1, -1))
	g.include = r.regexes(prefix + "include")
	g.exclude = r.regexes(prefix + "exclude")
	if name != "default" && len(g.include) == 0 {
		r.required(prefix + "include")
	}
	for k, v := range withPrefix(r.raw, prefix) {
		switch k {
		case "partitions", "replication.factor", "include", "exclude":
		default:
			g.configs[k] = &v
		}
	}
	return g
}

func (r *reader) regexes(key string) []*regexp.Regexp {
	var out []*regexp.Regexp
	for p := range strings.SplitSeq(r.raw[key], ",") {
		if p = strings.TrimSpace(p); p == "" {
			continue
		}
		re, err := regexp.Compile("^(?:" + p + ")$")
		if err != nil {
			r.fail(key, "Invalid value %s for configuration %s: Invalid regular expression", p, key)
			continue
		}
		out = append(out, re)
	}
	return out
}

// group returns the first group that takes the topic.
func (tc topicCreation) group(topic string) topicGroup {
	for _, g := range tc.groups {
		if g.name == "default" || matches(g.include, topic) && !matches(g.exclude, topic) {
			return g
		}
	}
	return topicGroup{name: "default", partitions: -1, rf: -1}
}

func matches(res []*regexp.Regexp, s string) bool {
	for _, re := range res {
		if re.MatchString(s) {
			return true
		}
	}
	return false
}

// ensureTopic makes the topic where it is missing. Where the brokers do not let us look or create, what they create by
// themselves has to do.
func ensureTopic(ctx context.Context, adm *kadm.Client, log *slog.Logger, tc topicCreation, topic string) error {
	found, err := adm.ListTopics(ctx, topic)
	if err != nil {
		return fmt.Errorf("look for topic %s: %w", topic, err)
	}
	switch err := found[topic].Err; {
	case err == nil && len(found[topic].Partitions) > 0:
		return nil
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return nil // the produce request will say
	}
	g := tc.group(topic)
	_, err = adm.CreateTopic(ctx, g.partitions, g.rf, g.configs, topic)
	switch {
	case err == nil:
		log.Info("created topic", "topic", topic, "group", g.name)
		return nil
	case errors.Is(err, kerr.TopicAlreadyExists):
		return nil
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed), errors.Is(err, kerr.UnsupportedVersion):
		log.Warn("not allowed to create a topic; relying on the brokers to create it", "topic", topic, "err", err)
		return nil
	}
	return fmt.Errorf("create topic %s: %w", topic, err)
}
