package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varvehq/varve/broker/controller"
)

// AdminEnv is what the handlers of cluster administration need besides ControllerEnv. A *controller.Controller is one.
type AdminEnv interface {
	AlterQuotas(ctx context.Context, alterations []controller.QuotaAlteration, validateOnly bool) ([]error, error)
	UpdateFeatures(ctx context.Context, updates []controller.FeatureUpdate, validateOnly bool) error
	Quorum() controller.Quorum
}

// LogDir is the data folder as tools see it.
type LogDir struct {
	Path string // absolute
	// Free tells the bytes that can still be written and the total of the file system.
	Free func() (free, total uint64, err error)
}

// adminAPIs lists the keys of cluster administration. GetTelemetrySubscriptions and PushTelemetry (71, 72) are not among them:
// Kafka tells them only where a plugin takes the metrics, and clients then send none.
func (h *Handlers) adminAPIs() []Entry {
	return []Entry{
		{Key: 29, Name: "DescribeAcls", Min: 1, Max: 3, Handle: h.describeACLs, Note: "There is no authorizer: SECURITY_DISABLED."},
		{Key: 30, Name: "CreateAcls", Min: 1, Max: 3, Handle: h.createACLs, Note: "There is no authorizer: SECURITY_DISABLED."},
		{Key: 31, Name: "DeleteAcls", Min: 1, Max: 3, Handle: h.deleteACLs, Note: "There is no authorizer: SECURITY_DISABLED."},
		{Key: 34, Name: "AlterReplicaLogDirs", Min: 1, Max: 2, Handle: h.alterReplicaLogDirs, Note: "There is one data folder, so nothing ever moves."},
		{Key: 35, Name: "DescribeLogDirs", Min: 1, Max: 5, Handle: h.describeLogDirs, Note: "Sizes are of the local log; what only the bucket holds is not counted."},
		{Key: 43, Name: "ElectLeaders", Min: 0, Max: 2, Handle: h.electLeaders},
		{Key: 45, Name: "AlterPartitionReassignments", Min: 0, Max: 1, Handle: h.alterReassignments, Note: "An assignment to the brokers that have the partition already is accepted, any other is refused."},
		{Key: 46, Name: "ListPartitionReassignments", Min: 0, Max: 0, Handle: h.listReassignments},
		{Key: 48, Name: "DescribeClientQuotas", Min: 0, Max: 1, Handle: h.describeClientQuotas},
		{Key: 49, Name: "AlterClientQuotas", Min: 0, Max: 1, Handle: h.alterClientQuotas, Note: "Host names other than localhost are not looked up for ip quotas; connection_creation_rate is stored, not enforced."},
		{Key: 50, Name: "DescribeUserScramCredentials", Min: 0, Max: 0, Handle: h.describeScramCredentials, Note: "No user has credentials."},
		{Key: 55, Name: "DescribeQuorum", Min: 0, Max: 2, Handle: h.describeQuorum},
		{Key: 57, Name: "UpdateFeatures", Min: 0, Max: 2, Handle: h.updateFeatures},
		{Key: 74, Name: "ListConfigResources", Min: 0, Max: 1, Handle: h.listConfigResources},
	}
}

// explained is an error that has a code of its own and a text, or Kafka's text for the code where there is none.
type explained struct {
	code *kerr.Error
	text string
}

func (e *explained) Error() string {
	if e.text == "" {
		return e.code.Description
	}
	return e.text
}
func (e *explained) Unwrap() error { return e.code }

// setError fills an error field pair.
func setError(code *int16, msg **string, err error) {
	*code, *msg = codeOf(err), reasonOf(err)
}

// partitionIndexes are all partition numbers of a topic.
func partitionIndexes(t *controller.Topic) []int32 {
	all := make([]int32, len(t.Partitions))
	for i := range all {
		all[i] = int32(i)
	}
	return all
}
