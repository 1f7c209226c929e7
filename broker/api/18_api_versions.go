package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvehq/varve/broker/controller"
)

// ApiVersions, v0–v5.
//
// The answer is the registration table. Produce is told from version 0 although versions below 3 are refused: librdkafka
// otherwise drops gzip, snappy and lz4 without a word (KAFKA-18659). A request of an unknown version is answered with a
// body of version 0, error UNSUPPORTED_VERSION and the range of this key alone (KIP-511); the response header is always of version
// 0. From v3 on the features are told: what this build
// supports, and the levels that the metadata finalizes, with its version as their epoch (KIP-584). Features that are not served
// are not told. From v5 on a client says which broker of which cluster it means (KIP-1242), and is told when it is another.

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
	if resp.ErrorCode = h.misrouted(req); resp.ErrorCode != 0 {
		return resp, nil
	}
	for i := range h.table.entries {
		e := &h.table.entries[i]
		resp.ApiKeys = append(resp.ApiKeys, apiKey(e))
	}
	if req.Version >= 3 {
		h.tellFeatures(resp)
	}
	return resp, nil
}

// misrouted is the error of a client that takes this broker for another (KIP-1242): it looks for the cluster again.
func (h *Handlers) misrouted(req *kmsg.ApiVersionsRequest) int16 {
	switch {
	case req.Version < 5 || req.ClusterID == nil && req.NodeID == -1 || h.Controller == nil:
		return 0
	case req.ClusterID == nil || req.NodeID == -1:
		return kerr.InvalidRequest.Code
	case *req.ClusterID != h.Controller.Image().ClusterID || req.NodeID != h.NodeID:
		return kerr.RebootstrapRequired.Code
	}
	return 0
}

// tellFeatures tells the features that are supported and those that the metadata finalizes. Before v4 a feature that can be off
// is told as finalized only, since older clients choke on a lowest level of 0.
func (h *Handlers) tellFeatures(resp *kmsg.ApiVersionsResponse) {
	for _, f := range controller.Features() {
		if f.Min < 1 && resp.Version < 4 {
			continue
		}
		s := kmsg.NewApiVersionsResponseSupportedFeature()
		s.Name, s.MinVersion, s.MaxVersion = f.Name, f.Min, f.Max
		resp.SupportedFeatures = append(resp.SupportedFeatures, s)
	}
	if h.Controller == nil {
		return
	}
	im := h.Controller.Image()
	resp.FinalizedFeaturesEpoch = im.Version
	for _, name := range sortedKeys(im.Features) {
		f := kmsg.NewApiVersionsResponseFinalizedFeature()
		f.Name, f.MinVersionLevel, f.MaxVersionLevel = name, im.Features[name], im.Features[name]
		resp.FinalizedFeatures = append(resp.FinalizedFeatures, f)
	}
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
