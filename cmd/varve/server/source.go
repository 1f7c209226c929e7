package server

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
)

// source is the file that a configuration was read from, so that an error can say where its key stands.
type source struct {
	path string
	data []byte
	// elsewhere are the keys whose value came by a flag or the environment.
	elsewhere map[string]bool
}

func (s *source) forget(key string) {
	if s.elsewhere == nil {
		s.elsewhere = map[string]bool{}
	}
	s.elsewhere[key] = true
}

// line is " (FILE, line N)" for a key that the file has, and "" otherwise.
func (s source) line(key ...string) string {
	if s.path == "" || s.elsewhere[strings.Join(key, ".")] {
		return ""
	}
	var expr strings.Builder
	expr.WriteByte('$')
	for _, k := range key {
		fmt.Fprintf(&expr, ".'%s'", k)
	}
	p, err := yaml.PathString(expr.String())
	if err != nil {
		return ""
	}
	node, err := p.ReadNode(bytes.NewReader(s.data))
	if err != nil || node == nil || node.GetToken() == nil {
		return ""
	}
	return fmt.Sprintf(" (%s, line %d)", s.path, node.GetToken().Position.Line)
}
