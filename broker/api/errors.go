package api

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
)

// errorCode maps a domain error to Kafka's code.
type errorCode struct {
	is   error
	code *kerr.Error
}

// Each room lists its own errors beside its handlers: dataErrors, controllerErrors, groupErrors, txnErrors. The first match wins.

// codeOf returns the Kafka error code for an error of the domain: 0 for nil, UNKNOWN_SERVER_ERROR for what no list names.
func codeOf(err error) int16 {
	if err == nil {
		return 0
	}
	var k *kerr.Error
	if errors.As(err, &k) {
		return k.Code
	}
	for _, list := range [...][]errorCode{dataErrors, controllerErrors, groupErrors, txnErrors} {
		for i := range list {
			if errors.Is(err, list[i].is) {
				return list[i].code.Code
			}
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return kerr.RequestTimedOut.Code
	}
	return kerr.UnknownServerError.Code
}

// messageOf is the text that goes with a code, or nil for none.
func messageOf(err error) *string {
	if err == nil {
		return nil
	}
	s := err.Error()
	return &s
}
