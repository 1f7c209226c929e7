package transform

import (
	"slices"
	"strings"

	"github.com/varvehq/varve/sdk"
)

// unwrap makes the row of a change event (Debezium's ExtractNewRecordState). What is no change event stays as it is.
type unwrap struct {
	deletes string
	add     []addedField
	prefix  string
	cache   derived
	obj     object
	sub     object
}

// addedField is a part of the envelope that is added to the row.
type addedField struct {
	path []string // one or two names
	name string
}

// How deletes are handled (delete.tombstone.handling.mode).
const (
	deletesDrop          = "drop"
	deletesTombstone     = "tombstone"
	deletesRewrite       = "rewrite"
	deletesRewriteAndTS  = "rewrite-with-tombstone"
	deletesToTombstone   = "delete-to-tombstone"
	deletedField         = "__deleted"
	defaultAddedPrefix   = "__"
	legacyDeletesSetting = "delete.handling.mode"
)

func newUnwrap(_ side, o *options) Transform {
	t := &unwrap{cache: derived{}}
	t.deletes = o.text("delete.tombstone.handling.mode", deletesTombstone)
	legacy, dropTombstones := o.text(legacyDeletesSetting, ""), o.boolean("drop.tombstones", true)
	switch {
	case legacy == "":
	case legacy == "drop" && dropTombstones:
		t.deletes = deletesDrop
	case legacy == "drop":
		t.deletes = deletesTombstone
	case legacy == "rewrite" && dropTombstones:
		t.deletes = deletesRewrite
	case legacy == "rewrite":
		t.deletes = deletesRewriteAndTS
	default:
		o.fail(legacyDeletesSetting, "Invalid value %s for configuration %s%s: drop or rewrite", legacy, o.prefix, legacyDeletesSetting)
	}
	if !slices.Contains([]string{deletesDrop, deletesTombstone, deletesRewrite, deletesRewriteAndTS, deletesToTombstone}, t.deletes) {
		o.fail("delete.tombstone.handling.mode", "Value must be one of drop, tombstone, rewrite, rewrite-with-tombstone, delete-to-tombstone")
	}
	t.prefix = o.text("add.fields.prefix", defaultAddedPrefix)
	for _, f := range list(o.text("add.fields", "")) {
		from, to, renamed := strings.Cut(f, ":")
		path := strings.SplitN(from, ".", 2)
		if !renamed {
			to = strings.ReplaceAll(from, ".", "_")
		}
		t.add = append(t.add, addedField{path, t.prefix + to})
	}
	return t
}

func (t *unwrap) rewrites() bool {
	return t.deletes == deletesRewrite || t.deletes == deletesRewriteAndTS
}

func (t *unwrap) Apply(rec *sdk.Record) (bool, error) {
	if rec.Value.IsNull() {
		return t.deletes == deletesTombstone || t.deletes == deletesRewriteAndTS, nil
	}
	if s := rec.Value.Schema; s == nil || s.Type != sdk.JSON && (s.Type != sdk.Struct || s.Field("op") < 0 || s.Field("after") < 0 || s.Field("before") < 0) {
		return true, nil
	}
	if err := split(rec.Value, &t.obj, "unwrapping a change event"); err != nil {
		return true, nil //nolint:nilerr // a document that is no object is no change event
	}
	op, after, before := t.obj.find("op"), t.obj.find("after"), t.obj.find("before")
	if op < 0 || after < 0 {
		return true, nil
	}
	row, deleted := t.obj.value(after), false
	if row.IsNull() {
		switch {
		case t.deletes == deletesToTombstone:
			rec.Value = sdk.Value{}
			return true, nil
		case !t.rewrites() || before < 0:
			return false, nil
		}
		if row, deleted = t.obj.value(before), true; row.IsNull() {
			return false, nil // a truncate has no row
		}
	}
	return true, t.setRow(rec, row, deleted)
}

// setRow makes row the value, with the fields that are added.
func (t *unwrap) setRow(rec *sdk.Record, row sdk.Value, deleted bool) error {
	if len(t.add) == 0 && !t.rewrites() {
		rec.Value = row
		return nil
	}
	if err := split(row, &t.sub, "unwrapping a change event"); err != nil {
		return err
	}
	names, raw := slices.Clone(t.sub.names), slices.Clone(t.sub.raw)
	row.Schema = t.sub.schema
	if t.rewrites() {
		text := "false"
		if deleted {
			text = "true"
		}
		names = append(names, deletedField)
		if row.Schema == nil {
			raw = append(raw, quote(text))
		} else {
			var a sdk.Appender
			a.Present()
			a.String(text)
			raw = append(raw, a.Buf)
		}
	}
	for _, f := range t.add {
		part, err := t.lookup(f.path)
		if err != nil {
			return err
		}
		names, raw = append(names, f.name), append(raw, part)
	}
	// The envelope's schema decides what the row's becomes, not what this event happens to have.
	schema := t.cache.of(t.obj.schema, func(envelope *sdk.Schema) *sdk.Schema {
		fields := slices.Clone(row.Schema.Fields)
		if t.rewrites() {
			fields = append(fields, sdk.Field{Name: deletedField, Schema: sdk.OptionalOf(sdk.String)})
		}
		for _, f := range t.add {
			fields = append(fields, sdk.Field{Name: f.name, Schema: schemaAt(envelope, f.path)})
		}
		return withFields(row.Schema, fields)
	})
	rec.Value = join(schema, names, raw)
	return nil
}

// schemaAt is the schema of a part of the envelope, made optional; text where there is no such part.
func schemaAt(s *sdk.Schema, path []string) *sdk.Schema {
	for _, name := range path {
		i := -1
		if s.Type == sdk.Struct {
			i = s.Field(name)
		}
		if i < 0 {
			return sdk.OptionalOf(sdk.String)
		}
		s = s.Fields[i].Schema
	}
	c := *s
	c.Optional, c.Default = true, nil
	return &c
}

// lookup finds a part of the envelope and gives it as a value of schemaAt, or as JSON; what is not there is null.
func (t *unwrap) lookup(path []string) ([]byte, error) {
	null := []byte("null")
	if t.obj.schema != nil {
		null = []byte{0}
	}
	obj := &t.obj
	i := obj.find(path[0])
	if len(path) == 2 && i >= 0 {
		v := obj.value(i)
		if v.IsNull() {
			return null, nil
		}
		var sub object
		if err := split(v, &sub, "adding a field of the envelope"); err != nil {
			return nil, err
		}
		obj, i = &sub, sub.find(path[1])
	}
	switch {
	case i < 0:
		return null, nil
	case obj.schema == nil || obj.schema.Fields[i].Schema.Optional:
		return obj.raw[i], nil
	}
	return append([]byte{2}, obj.raw[i]...), nil
}
