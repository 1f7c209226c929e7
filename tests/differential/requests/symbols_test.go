//go:build differential

package requests

import (
	"encoding/binary"
	"hash/crc32"
	"reflect"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// symbols pairs the ids that the brokers choose themselves. The generator speaks in Kafka's.
type symbols struct {
	toVarve, toKafka map[symbol]any
}

type symbol struct {
	kind string
	id   any
}

func newSymbols() *symbols {
	return &symbols{toVarve: map[symbol]any{}, toKafka: map[symbol]any{}}
}

func (s *symbols) pair(kind string, kafka, varve any) {
	if reflect.ValueOf(kafka).IsZero() || reflect.ValueOf(varve).IsZero() {
		return
	}
	s.toVarve[symbol{kind, kafka}] = varve
	s.toKafka[symbol{kind, varve}] = kafka
}

// pairLast pairs the only member of a group that is not known yet: the answer that tells its id has still to come.
func (s *symbols) pairLast(kafka, varve []string) {
	kafka = slices.DeleteFunc(kafka, func(id string) bool { return s.toVarve[symbol{"member", id}] != nil })
	varve = slices.DeleteFunc(varve, func(id string) bool { return s.toKafka[symbol{"member", id}] != nil })
	if len(kafka) == 1 && len(varve) == 1 {
		s.pair("member", kafka[0], varve[0])
	}
}

// idKinds are the fields that hold an id of the broker's own.
var idKinds = map[string]string{
	"TopicID": "topic", "MemberID": "member", "LeaderID": "member", "ProducerID": "producer", "ProducerIDFilters": "producer",
	"SessionID": "session", "ClusterID": "cluster",
}

// translate replaces all ids in a message by the other broker's. Ids that have no pair stay.
func translate(msg any, to map[symbol]any) {
	walk(reflect.ValueOf(msg).Elem(), "", func(name string, v reflect.Value) {
		if name == "Records" {
			v.SetBytes(translateBatch(v.Bytes(), to))
			return
		}
		kind := idKinds[name]
		if kind == "" {
			return
		}
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return
			}
			if id, ok := to[symbol{kind, v.Elem().Interface()}]; ok {
				p := reflect.New(v.Type().Elem())
				p.Elem().Set(reflect.ValueOf(id))
				v.Set(p)
			}
			return
		}
		if id, ok := to[symbol{kind, v.Interface()}]; ok && reflect.TypeOf(id) == v.Type() {
			v.Set(reflect.ValueOf(id))
		}
	})
}

// translateBatch replaces the producer id of a batch. A checksum that held holds after it.
func translateBatch(b []byte, to map[symbol]any) []byte {
	if len(b) < 61 {
		return b
	}
	id, ok := to[symbol{"producer", int64(binary.BigEndian.Uint64(b[43:]))}]
	if !ok {
		return b
	}
	table := crc32.MakeTable(crc32.Castagnoli)
	held := crc32.Checksum(b[21:], table) == binary.BigEndian.Uint32(b[17:])
	out := slices.Clone(b)
	binary.BigEndian.PutUint64(out[43:], uint64(id.(int64)))
	if held {
		binary.BigEndian.PutUint32(out[17:], crc32.Checksum(out[21:], table))
	}
	return out
}

// walk calls f for every field of a message that is no struct and no list of structs, and for every element of a list of
// plain values.
func walk(v reflect.Value, name string, f func(name string, v reflect.Value)) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			if field.Name != "Version" && field.Type != reflect.TypeFor[kmsg.Tags]() {
				walk(v.Field(i), field.Name, f)
			}
		}
	case reflect.Pointer:
		if v.Type().Elem().Kind() == reflect.Struct {
			if !v.IsNil() {
				walk(v.Elem(), name, f)
			}
			return
		}
		f(name, v)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			f(name, v)
			return
		}
		for i := range v.Len() {
			walk(v.Index(i), name, f)
		}
	default:
		f(name, v)
	}
}

// clone copies a request by its own encoding, at its version.
func clone(req kmsg.Request) kmsg.Request {
	c := kmsg.RequestForKey(req.Key())
	c.SetVersion(req.GetVersion())
	if err := c.ReadFrom(req.AppendTo(nil)); err != nil {
		panic(err) // what the generator made does not survive its own codec
	}
	return c
}

// learn pairs the ids of two answers that agree.
func (s *symbols) learn(kafka, varve kmsg.Response) {
	switch k := kafka.(type) {
	case *kmsg.CreateTopicsResponse:
		ids := map[string][16]byte{}
		for _, t := range varve.(*kmsg.CreateTopicsResponse).Topics {
			ids[t.Topic] = t.TopicID
		}
		for _, t := range k.Topics {
			s.pair("topic", t.TopicID, ids[t.Topic])
		}
	case *kmsg.MetadataResponse:
		v := varve.(*kmsg.MetadataResponse)
		if k.ClusterID != nil && v.ClusterID != nil {
			s.pair("cluster", *k.ClusterID, *v.ClusterID)
		}
		ids := map[string][16]byte{}
		for _, t := range v.Topics {
			if t.Topic != nil {
				ids[*t.Topic] = t.TopicID
			}
		}
		for _, t := range k.Topics {
			if t.Topic != nil {
				s.pair("topic", t.TopicID, ids[*t.Topic])
			}
		}
	case *kmsg.InitProducerIDResponse:
		if v := varve.(*kmsg.InitProducerIDResponse); k.ProducerID >= 0 && v.ProducerID >= 0 {
			s.pair("producer", k.ProducerID, v.ProducerID)
		}
	case *kmsg.JoinGroupResponse:
		v := varve.(*kmsg.JoinGroupResponse)
		s.pair("member", k.MemberID, v.MemberID)
		var ks, vs []string
		for _, m := range k.Members {
			ks = append(ks, m.MemberID)
		}
		for _, m := range v.Members {
			vs = append(vs, m.MemberID)
		}
		s.pairLast(ks, vs)
	case *kmsg.DescribeGroupsResponse:
		for i, g := range varve.(*kmsg.DescribeGroupsResponse).Groups {
			if i >= len(k.Groups) || k.Groups[i].Group != g.Group {
				continue
			}
			var ks, vs []string
			for _, m := range k.Groups[i].Members {
				ks = append(ks, m.MemberID)
			}
			for _, m := range g.Members {
				vs = append(vs, m.MemberID)
			}
			s.pairLast(ks, vs)
		}
	case *kmsg.ConsumerGroupHeartbeatResponse:
		if v := varve.(*kmsg.ConsumerGroupHeartbeatResponse); k.MemberID != nil && v.MemberID != nil {
			s.pair("member", *k.MemberID, *v.MemberID)
		}
	case *kmsg.FetchResponse:
		s.pair("session", k.SessionID, varve.(*kmsg.FetchResponse).SessionID)
	}
}
