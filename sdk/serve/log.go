package serve

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"sync"
	"time"
)

// handler writes slog records as the JSON lines that go-plugin's host understands: @level, @message, @timestamp and the
// attributes, each line in one Write.
type handler struct {
	out   *output
	attrs []slog.Attr
	group string
}

type output struct {
	sync.Mutex
	w io.Writer
}

// maxLine keeps a line within what the host reads at once.
const maxLine = 60 << 10

func newHandler(w io.Writer) *handler { return &handler{out: &output{w: w}} }

func (h *handler) Enabled(context.Context, slog.Level) bool { return true }

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	c.attrs = append([]slog.Attr{}, h.attrs...)
	for _, a := range attrs {
		a.Key = h.group + a.Key
		c.attrs = append(c.attrs, a)
	}
	return &c
}

func (h *handler) WithGroup(name string) slog.Handler {
	c := *h
	if name != "" {
		c.group += name + "."
	}
	return &c
}

func levelName(l slog.Level) string {
	switch {
	case l < slog.LevelDebug:
		return "trace"
	case l < slog.LevelInfo:
		return "debug"
	case l < slog.LevelWarn:
		return "info"
	case l < slog.LevelError:
		return "warn"
	}
	return "error"
}

func (h *handler) Handle(_ context.Context, r slog.Record) error {
	line := map[string]any{}
	for _, a := range h.attrs {
		put(line, "", a)
	}
	r.Attrs(func(a slog.Attr) bool { put(line, h.group, a); return true })
	line["@level"], line["@message"] = levelName(r.Level), r.Message
	line["@timestamp"] = r.Time.Format("2006-01-02T15:04:05.000000Z07:00")
	b, err := json.Marshal(line)
	if err != nil || len(b) > maxLine {
		text := r.Message
		if len(text) > maxLine/2 {
			text = text[:maxLine/2]
		}
		b, err = json.Marshal(map[string]any{
			"@level": line["@level"], "@timestamp": line["@timestamp"], "@message": text, "cut": true,
		})
	}
	if err != nil {
		return err
	}
	h.out.Lock()
	defer h.out.Unlock()
	_, err = h.out.w.Write(append(b, '\n'))
	return err
}

func put(line map[string]any, group string, a slog.Attr) {
	v := a.Value.Resolve()
	key := group + a.Key
	switch v.Kind() {
	case slog.KindGroup:
		for _, g := range v.Group() {
			if a.Key == "" {
				put(line, group, g)
			} else {
				put(line, key+".", g)
			}
		}
		return
	case slog.KindDuration:
		line[key] = v.Duration().String()
	case slog.KindTime:
		line[key] = v.Time().Format(time.RFC3339Nano)
	case slog.KindAny:
		if err, ok := v.Any().(error); ok {
			line[key] = err.Error()
			return
		}
		if _, err := json.Marshal(v.Any()); err != nil {
			line[key] = v.String()
			return
		}
		line[key] = v.Any()
	default:
		line[key] = v.Any()
	}
}
