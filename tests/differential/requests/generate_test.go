//go:build differential

package requests

import (
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// generators make the requests of a round, by their weight.
var generators = []struct {
	weight int
	make   func(*model) kmsg.Request
}{
	{12, (*model).produce}, {12, (*model).fetch}, {4, (*model).listOffsets}, {2, (*model).leaderEpochs}, {2, (*model).deleteRecords},
	{8, (*model).join}, {5, (*model).sync}, {3, (*model).heartbeat}, {2, (*model).leave}, {5, (*model).commit}, {4, (*model).offsetFetch},
	{2, (*model).offsetDelete}, {2, (*model).findCoordinator}, {2, (*model).describeGroups}, {1, (*model).listGroups}, {1, (*model).deleteGroups},
	{5, (*model).initProducer}, {5, (*model).addPartitions}, {2, (*model).addOffsets}, {5, (*model).endTxn}, {3, (*model).txnCommit},
	{1, (*model).writeMarkers}, {1, (*model).describeTransactions}, {1, (*model).listTransactions}, {2, (*model).describeProducers},
	{4, (*model).createTopics}, {1, (*model).deleteTopics}, {2, (*model).createPartitions}, {3, (*model).metadataRequest},
	{2, (*model).describeTopicPartitions}, {2, (*model).describeConfigs}, {1, (*model).alterConfigs}, {2, (*model).incrementalConfigs},
	{1, (*model).listConfigResources}, {1, (*model).alterLogDirs}, {1, (*model).describeLogDirs}, {1, (*model).electLeaders},
	{1, (*model).reassign}, {1, (*model).listReassignments}, {1, (*model).describeQuotas}, {1, (*model).alterQuotas},
	{1, (*model).describeQuorum}, {1, (*model).updateFeatures}, {1, (*model).describeCluster}, {1, (*model).apiVersions},
	{1, (*model).describeScram}, {12, (*model).consumerHeartbeat}, {1, (*model).consumerByPattern}, {3, (*model).describeConsumers},
	{3, (*model).consumerCommit}, {2, (*model).consumerOffsets}, {2, (*model).acrossProtocols},
}

// versions is a range of versions of a key.
type versions struct{ min, max int16 }

// next makes a request of a version that both brokers tell. Keys that only one of them tells are passed over: the answer to
// ApiVersions shows them.
func (m *model) next(served map[int16]versions) kmsg.Request {
	total := 0
	for _, g := range generators {
		total += g.weight
	}
	for {
		n := m.IntN(total)
		for _, g := range generators {
			if n -= g.weight; n >= 0 {
				continue
			}
			req := g.make(m)
			v, ok := served[req.Key()]
			if !ok {
				break
			}
			req.SetVersion(v.min + int16(m.IntN(int(v.max-v.min)+1)))
			if m.chance(20) {
				m.mutate(req)
			}
			tame(req)
			m.own(req)
			return clone(req)
		}
	}
}

// mutate sets one or two fields to their bounds.
func (m *model) mutate(req kmsg.Request) {
	for range 1 + m.IntN(2) {
		var fields []reflect.Value
		var lists []reflect.Value
		walk(reflect.ValueOf(req).Elem(), "", func(_ string, v reflect.Value) { fields = append(fields, v) })
		structLists(reflect.ValueOf(req).Elem(), &lists)
		if len(lists) > 0 && m.chance(20) {
			m.mutateList(pick(m, lists...))
		} else if len(fields) > 0 {
			m.mutateField(pick(m, fields...))
		}
	}
}

func structLists(v reflect.Value, out *[]reflect.Value) {
	switch {
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			structLists(v.Field(i), out)
		}
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8 && v.CanSet():
		*out = append(*out, v)
		for i := range v.Len() {
			structLists(v.Index(i), out)
		}
	}
}

// mutateList empties a list, or names an element twice.
func (m *model) mutateList(v reflect.Value) {
	switch n := v.Len(); {
	case n == 0 || m.chance(30):
		v.Set(reflect.Zero(v.Type()))
	case m.chance(30):
		v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	default:
		v.Set(reflect.Append(v, v.Index(m.IntN(n))))
	}
}

func (m *model) mutateField(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		bits := v.Type().Bits()
		top := int64(math.MaxInt64 >> (64 - bits))
		v.SetInt(pick(m, 0, -1, -2, 1, top, -top-1, v.Int()+1, v.Int()-1, top/2))
	case reflect.Float64:
		v.SetFloat(pick(m, 0, -1, math.NaN(), math.Inf(1), math.MaxFloat64))
	case reflect.String:
		v.SetString(m.mutateString(v.String()))
	case reflect.Pointer:
		if m.chance(40) {
			v.Set(reflect.Zero(v.Type()))
		} else if v.Type().Elem().Kind() == reflect.String {
			s := "text"
			if !v.IsNil() {
				s = v.Elem().String()
			}
			s = m.mutateString(s)
			v.Set(reflect.ValueOf(&s))
		}
	case reflect.Slice:
		b := slices.Clone(v.Bytes())
		if n := len(b); n > 0 && m.chance(60) {
			b = b[:m.IntN(n)]
		} else {
			b = nil
		}
		v.SetBytes(b)
	case reflect.Array:
		if m.chance(50) {
			v.Set(reflect.Zero(v.Type()))
		} else {
			v.Index(m.IntN(v.Len())).SetUint(uint64(m.IntN(256)))
		}
	}
}

func (m *model) mutateString(s string) string {
	return pick(m, "", s+"x", strings.Repeat("l", 250), "sp ace", "grün", ".", "a\x00b", strings.ToUpper(s))
}

// own gives a request names of this round where it could make or ask for what other rounds make too.
func (m *model) own(req kmsg.Request) {
	m.key = req.Key()
	walk(reflect.ValueOf(req).Elem(), "", func(name string, v reflect.Value) {
		if v.Kind() == reflect.Pointer {
			if v.IsNil() || v.Type().Elem().Kind() != reflect.String {
				return
			}
			s := v.Elem().String()
			v.Set(reflect.ValueOf(&s))
			v = v.Elem()
		}
		if v.Kind() == reflect.String && m.owns(req, name) {
			v.SetString(m.ownName(v.String(), name))
		}
	})
	ownLogs(req)
	if q, ok := req.(*kmsg.AlterClientQuotasRequest); ok {
		for _, e := range q.Entries {
			for _, n := range e.Entity {
				q.ValidateOnly = q.ValidateOnly || n.Name == nil || *n.Name == ""
			}
		}
	}
	if q, ok := req.(*kmsg.DescribeTopicPartitionsRequest); ok && *lanes > 1 && len(q.Topics) == 0 && q.ResponsePartitionLimit > 0 {
		q.ResponsePartitionLimit = 2000 // a page of all topics would depend on the other rounds'
	}
}

// ownLogs takes the coordinators' topics, which all rounds write to, out of requests that tell what is in them.
func ownLogs(req kmsg.Request) {
	switch req.Key() {
	case 1, 2, 23, 61, 68:
	default:
		return
	}
	walk(reflect.ValueOf(req).Elem(), "", func(name string, v reflect.Value) {
		if (name == "Topic" || name == "SubscribedTopicNames") && v.Kind() == reflect.String {
			v.SetString(ours(v.String()))
		}
	})
}

// owns reports whether a field holds the name of a thing that the request may make.
func (m *model) owns(req kmsg.Request, field string) bool {
	switch field {
	case "Group", "Groups", "TransactionalID", "TransactionalIDs", "TransactionID", "CoordinatorKey", "CoordinatorKeys":
		return true
	case "Topic":
		return req.Key() == 3 || req.Key() == 19
	case "Name":
		return req.Key() == 49
	}
	return false
}

// shared are keys that make a group without a name, or tell of one.
var shared = map[int16]bool{8: true, 9: true, 15: true, 42: true, 47: true}

func (m *model) ownName(s, field string) string {
	switch {
	case s == "" && field == "Group" && shared[m.key] && *lanes > 1:
		return m.named("none")
	case s == "", field == "Topic" && (strings.HasPrefix(s, "__") || strings.HasPrefix(s, ".")):
		return s
	case field == "Name" && strings.Contains(s, "."): // an address
		return s
	case strings.HasPrefix(strings.ToLower(s), m.named("")):
		return s
	}
	return m.named(s)
}
