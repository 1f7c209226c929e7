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

// codeOf returns the Kafka error code for an error of the domain: 0 for nil, UNKNOWN_SERVER_ERROR for what no list names. Where
// an error wraps several, the lists named come first.
func codeOf(err error, first ...[]errorCode) int16 {
	if err == nil {
		return 0
	}
	if code, ok := lookUp(err, first); ok {
		return code
	}
	var k *kerr.Error
	if errors.As(err, &k) {
		return k.Code
	}
	if code, ok := lookUp(err, [][]errorCode{dataErrors, controllerErrors, coordinatorErrors, groupErrors, txnErrors}); ok {
		return code
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return kerr.RequestTimedOut.Code
	}
	return kerr.UnknownServerError.Code
}

func lookUp(err error, lists [][]errorCode) (code int16, ok bool) {
	for _, list := range lists {
		for i := range list {
			if errors.Is(err, list[i].is) {
				return list[i].code.Code, true
			}
		}
	}
	return 0, false
}

// messageOf is the text that goes with a code, or nil for none.
func messageOf(err error) *string {
	if err == nil {
		return nil
	}
	s := err.Error()
	return &s
}
