//go:build differential

package requests

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// difference is a field in which two answers differ.
type difference struct {
	Request string // the name of its key
	Version int16
	Path    string // fields from the answer down; lists add no index
	At      string // the keys of the elements on the way
	Kafka   string
	Varve   string
	beside  map[string]any // the fields of Kafka's element that it is in
}

func (d difference) String() string {
	return fmt.Sprintf("%s v%d %s at %s: Kafka %.600s, Varve %.600s", d.Request, d.Version, d.Path, d.At, d.Kafka, d.Varve)
}

// signs are fields of which only their sign, or that they are set, is compared: clocks, sizes of files, ports, versions of
// metadata, texts for people, folders.
var signs = map[string]bool{
	"ThrottleMillis": true, "Port": true, "FinalizedFeaturesEpoch": true, "Dir": true, "TotalBytes": true, "UsableBytes": true,
	"LogAppendTime": true, "LastTimestamp": true, "StartTimestamp": true, "ErrorMessage": true, "LastFetchTimestamp": true,
	"LastCaughtUpTimestamp": true, "ReplicaDirectoryID": true, "Documentation": true,
}

// compare lists the differences of two answers to a request of a round. Varve's has Kafka's ids already.
func compare(req kmsg.Request, kafka, varve kmsg.Response, round int) []difference {
	if bytes.Equal(kafka.AppendTo(nil), varve.AppendTo(nil)) {
		return nil
	}
	if failed(kafka) && !failed(varve) {
		return []difference{{Request: kmsg.NameForKey(req.Key()), Version: req.GetVersion(), Path: "ErrorCode", Kafka: text(internal), Varve: "other"}}
	}
	if c, ok := req.(*kmsg.CreateTopicsRequest); ok && c.ValidateOnly { // Kafka tells an id that no topic will have
		for _, r := range []kmsg.Response{kafka, varve} {
			for i := range r.(*kmsg.CreateTopicsResponse).Topics {
				r.(*kmsg.CreateTopicsResponse).Topics[i].TopicID = [16]byte{}
			}
		}
	}
	k, v := normal(kafka), normal(varve)
	if tellsAll[req.Key()] {
		k, v = ofRound(k, round), ofRound(v, round)
	}
	out := differ("", "", k, v)
	for i := range out {
		out[i].Request, out[i].Version = kmsg.NameForKey(req.Key()), req.GetVersion()
	}
	return out
}

// failed reports whether an answer tells an error of the broker itself.
func failed(resp kmsg.Response) bool {
	found := false
	walkCodes(resp, func(code int16) { found = found || code == -1 })
	return found
}

// normal makes an answer a tree of plain values without what may always differ: signs of the fields above, records as their
// batches, lists of structs in one order.
func normal(resp kmsg.Response) any {
	return tree(reflect.ValueOf(resp).Elem(), "")
}

func tree(v reflect.Value, name string) any {
	switch v.Kind() {
	case reflect.Struct:
		m := map[string]any{}
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if f.Name != "Version" && f.Type != reflect.TypeFor[kmsg.Tags]() {
				m[f.Name] = tree(v.Field(i), f.Name)
			}
		}
		if code, ok := m["ErrorCode"]; ok && m["BaseOffset"] != nil && code != "0" { // nothing was written
			delete(m, "LogStartOffset")
		}
		if topic, ok := m["Topic"].(string); ok && strings.HasPrefix(topic, "__") && m["Partitions"] != nil {
			dropSizes(m["Partitions"])
		}
		return m
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		if signs[name] {
			if v.Elem().Kind() == reflect.String && v.Elem().Len() == 0 {
				return nil
			}
			return "set"
		}
		return tree(v.Elem(), name)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			if name == "RecordBatches" {
				return batches(v.Bytes())
			}
			if v.IsNil() {
				return nil
			}
			return fmt.Sprintf("%q", v.Bytes())
		}
		list := make([]any, v.Len())
		for i := range list {
			list[i] = tree(v.Index(i), name)
		}
		if v.Type().Elem().Kind() == reflect.Struct {
			list = inOrder(merged(list))
		}
		return list
	case reflect.String:
		if signs[name] {
			return v.Len() > 0
		}
		return v.String()
	case reflect.Array:
		if signs[name] {
			return !v.IsZero()
		}
		return fmt.Sprintf("%x", v.Interface())
	default:
		if signs[name] && name != "ThrottleMillis" {
			return sign(v)
		} else if signs[name] {
			return nil
		}
		return fmt.Sprint(v.Interface())
	}
}

// dropSizes leaves out the sizes of partitions of internal topics, whose records are each broker's own.
func dropSizes(partitions any) {
	list, _ := partitions.([]any)
	for _, p := range list {
		if m, ok := p.(map[string]any); ok {
			delete(m, "Size")
		}
	}
}

// merged joins elements of the same keys that have partitions: Kafka tells a topic twice where some of its partitions fail.
func merged(list []any) []any {
	var out []any
	at := map[string]int{}
	for _, e := range list {
		m := e.(map[string]any)
		parts, ok := m["Partitions"].([]any)
		i, seen := at[keyOf(e)]
		if !ok || !seen {
			at[keyOf(e)] = len(out)
			out = append(out, e)
			continue
		}
		first := out[i].(map[string]any)
		first["Partitions"] = inOrder(append(first["Partitions"].([]any), parts...))
	}
	return out
}

// inOrder sorts the elements by their texts.
func inOrder(list []any) []any {
	type told struct {
		text string
		v    any
	}
	all := make([]told, len(list))
	for i, v := range list {
		all[i] = told{text(v), v}
	}
	slices.SortStableFunc(all, func(a, b told) int { return strings.Compare(a.text, b.text) })
	out := make([]any, len(list))
	for i, a := range all {
		out[i] = a.v
	}
	return out
}

// tellsAll are keys whose answers may tell what other rounds are about.
var tellsAll = map[int16]bool{3: true, 16: true, 35: true, 46: true, 48: true, 66: true, 74: true, 75: true}

// ofRound leaves out what names another round.
func ofRound(v any, round int) any {
	switch v := v.(type) {
	case map[string]any:
		for name, x := range v {
			v[name] = ofRound(x, round)
		}
	case []any:
		own := []any{}
		for _, e := range v {
			if !foreign(text(e), round) {
				own = append(own, ofRound(e, round))
			} else if m, ok := e.(map[string]any); ok && m["Dir"] != nil { // a list of its own
				own = append(own, ofRound(e, round))
			}
		}
		return own
	}
	return v
}

var roundNames = regexp.MustCompile(`(?i)"r(-settle|\d+-)`)

func foreign(text string, round int) bool {
	for _, name := range roundNames.FindAllStringSubmatch(text, -1) {
		if name[1] != fmt.Sprintf("%d-", round) {
			return true
		}
	}
	return false
}

func sign(v reflect.Value) string {
	if v.CanInt() && v.Int() < 0 {
		return fmt.Sprint(v.Int())
	}
	if v.IsZero() {
		return "0"
	}
	return "positive"
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // a tree has plain values only
	}
	return string(b)
}

// keys tell elements of a list apart, in the order in which they are looked for.
var keys = []string{"Topic", "TopicID", "Partition", "Group", "Name", "ApiKey", "ResourceName", "ResourceType", "TransactionalID",
	"MemberID", "ProducerID", "NodeID", "Dir", "Feature", "CoordinatorKey", "Key"}

func keyOf(v any) string {
	m, ok := v.(map[string]any)
	if !ok {
		return text(v)
	}
	var parts []string
	for _, k := range keys {
		if x, ok := m[k]; ok {
			parts = append(parts, text(x))
		}
	}
	return strings.Join(parts, "/")
}

// internal is the code of an error of the broker itself.
const internal = "-1"

func differ(path, where string, k, v any) []difference {
	if text(k) == text(v) {
		return nil
	}
	km, ok1 := k.(map[string]any)
	vm, ok2 := v.(map[string]any)
	if ok1 && ok2 {
		var out []difference
		if code := km["ErrorCode"]; code != nil && vm["ErrorCode"] != code { // the rest follows from it
			return []difference{{Path: strings.TrimPrefix(path+".ErrorCode", "."), At: where, Kafka: text(code), Varve: text(vm["ErrorCode"]), beside: km}}
		}
		for _, name := range sortedNames(km) {
			below := differ(strings.TrimPrefix(path+"."+name, "."), where, km[name], vm[name])
			for i := range below {
				if below[i].beside == nil {
					below[i].beside = km
				}
			}
			out = append(out, below...)
		}
		return out
	}
	kl, ok1 := k.([]any)
	vl, ok2 := v.([]any)
	if ok1 && ok2 {
		return differLists(path, where, kl, vl)
	}
	return []difference{{Path: path, At: where, Kafka: text(k), Varve: text(v)}}
}

// differLists pairs the elements by their keys. What is left over on one side is a difference of the list itself.
func differLists(path, where string, kl, vl []any) []difference {
	var out []difference
	left := slices.Clone(vl)
	for _, k := range kl {
		at := slices.IndexFunc(left, func(v any) bool { return text(v) == text(k) })
		if at < 0 {
			at = slices.IndexFunc(left, func(v any) bool { return keyOf(v) == keyOf(k) })
		}
		if at < 0 {
			out = append(out, difference{Path: path + "[]", At: where, Kafka: text(k), Varve: "absent"})
			continue
		}
		out = append(out, differ(path, where+" "+keyOf(k), k, left[at])...)
		left = slices.Delete(left, at, at+1)
	}
	for _, v := range left {
		out = append(out, difference{Path: path + "[]", At: where, Kafka: "absent", Varve: text(v)})
	}
	return out
}

func sortedNames(m map[string]any) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// batches are the whole batches of a fetch: Kafka may cut the last one off, which clients drop. Clocks of the broker are left
// out: those of control batches and the timestamps that LogAppendTime gives.
func batches(b []byte) any {
	out := []any{}
	for len(b) >= 61 {
		n := int(int32(binary.BigEndian.Uint32(b[8:]))) + 12
		if n < 61 || n > len(b) {
			break
		}
		var r kmsg.RecordBatch
		if err := r.ReadFrom(b[:n]); err != nil {
			return fmt.Sprintf("%x: %v", b[:n], err)
		}
		if r.Attributes&0x28 != 0 {
			r.MaxTimestamp = 0
		}
		if r.Attributes&0x20 != 0 {
			r.FirstTimestamp = 0
		}
		out = append(out, fmt.Sprintf("%s: %x", told(r), crc32.ChecksumIEEE(r.Records)))
		b = b[n:]
	}
	return out
}

func told(r kmsg.RecordBatch) string {
	return fmt.Sprintf("offset %d+%d epoch %d attributes %x time %d-%d producer epoch %d sequence %d records %d",
		r.FirstOffset, r.LastOffsetDelta, r.PartitionLeaderEpoch, r.Attributes, r.FirstTimestamp, r.MaxTimestamp,
		r.ProducerEpoch, r.FirstSequence, r.NumRecords)
}
