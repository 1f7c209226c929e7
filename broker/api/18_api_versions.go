package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ApiVersions, v0–v5.
//
// The answer is the registration table. Produce is told from version 0 although versions below 3 are refused: librdkafka
// otherwise drops gzip, snappy and lz4 without a word (KAFKA-18659). A request of an unknown version is answered with a
// body of version 0, error UNSUPPORTED_VERSION and the range of this key alone (KIP-511); the response header is always of version
// 0. From v3 on the finalized features are told (KIP-584).

// feature is one finalized feature level.
type feature struct {
	name     string
	min, max int16 // supported
	level    int16 // finalized
}

// features are those that are really served. metadata.version is what tools derive "the Kafka version" from.
var features = []feature{
	{name: "metadata.version", min: 7, max: 30, level: 30},
	{name: "transaction.version", min: 0, max: 2, level: 2},
}

func (h *Handlers) apiVersions(_ context.Context, r *Request) (kmsg.Response, error) {
	req := r.Body.(*kmsg.ApiVersionsRequest)
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.Version = req.Version
	if req.Version >= 3 {
		if !validSoftware(req.ClientSoftwareName) || !validSoftware(req.ClientSoftwareVersion) {
			resp.ErrorCode = kerr.InvalidRequest.Code
			return resp, nil
		}
		if r.Conn != nil {
			r.Conn.software.Store(&Software{Name: req.ClientSoftwareName, Version: req.ClientSoftwareVersion})
		}
	}
	for i := range h.table.entries {
		e := &h.table.entries[i]
		resp.ApiKeys = append(resp.ApiKeys, apiKey(e))
	}
	if req.Version >= 3 {
		resp.FinalizedFeaturesEpoch = 0
		for _, f := range features {
			fin := kmsg.NewApiVersionsResponseFinalizedFeature()
			fin.Name, fin.MinVersionLevel, fin.MaxVersionLevel = f.name, f.level, f.level
			resp.FinalizedFeatures = append(resp.FinalizedFeatures, fin)
			if f.min == 0 && req.Version < 4 {
				continue // clients of v3 take a lowest level of 0 for a malformed answer
			}
			s := kmsg.NewApiVersionsResponseSupportedFeature()
			s.Name, s.MinVersion, s.MaxVersion = f.name, f.min, f.max
			resp.SupportedFeatures = append(resp.SupportedFeatures, s)
		}
	}
	return resp, nil
}

// unsupportedApiVersions is the answer to an ApiVersions request of a version that is not served.
func (h *Handlers) unsupportedApiVersions() kmsg.Response {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.ErrorCode = kerr.UnsupportedVersion.Code
	resp.ApiKeys = append(resp.ApiKeys, apiKey(h.table.Lookup(18)))
	return resp
}

func apiKey(e *Entry) kmsg.ApiVersionsResponseApiKey {
	k := kmsg.NewApiVersionsResponseApiKey()
	k.ApiKey, k.MinVersion, k.MaxVersion = e.Key, e.Min, e.Max
	return k
}

// validSoftware is KIP-511's pattern: letters, digits, dots and dashes, with a letter or digit at both ends.
func validSoftware(s string) bool {
	if s == "" {
		return false
	}
	for i := range len(s) {
		c := s[i]
		alnum := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !alnum && (c != '.' && c != '-' || i == 0 || i == len(s)-1) {
			return false
		}
	}
	return true
}
