//go:build differential

package requests

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"reflect"
	"slices"
	"sort"
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

// compare lists the differences of two answers to a request. Varve's has Kafka's ids already. Both are changed.
func compare(req kmsg.Request, kafka, varve kmsg.Response) []difference {
	k, v := normal(kafka), normal(varve)
	out := differ("", "", k, v)
	for i := range out {
		out[i].Request, out[i].Version = kmsg.NameForKey(req.Key()), req.GetVersion()
	}
	return out
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
		return m
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		if signs[name] {
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
			list = merged(list)
			sort.SliceStable(list, func(i, j int) bool { return text(list[i]) < text(list[j]) })
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
		all := append(first["Partitions"].([]any), parts...)
		sort.SliceStable(all, func(i, j int) bool { return text(all[i]) < text(all[j]) })
		first["Partitions"] = all
	}
	return out
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

func differ(path, where string, k, v any) []difference {
	if text(k) == text(v) {
		return nil
	}
	km, ok1 := k.(map[string]any)
	vm, ok2 := v.(map[string]any)
	if ok1 && ok2 {
		var out []difference
		for _, name := range sortedNames(km) {
			out = append(out, differ(strings.TrimPrefix(path+"."+name, "."), where, km[name], vm[name])...)
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
