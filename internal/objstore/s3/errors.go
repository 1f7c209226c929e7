package s3

import (
	"errors"
	"fmt"
	"net/http"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"github.com/varvehq/varve/internal/objstore"
)

// wrap names the call and the key, and joins the sentinel that fits.
func wrap(op, key string, err error) error {
	if err == nil {
		return nil
	}
	if s := classify(err); s != nil {
		return fmt.Errorf("s3: %s %s: %w: %w", op, key, s, err)
	}
	return fmt.Errorf("s3: %s %s: %w", op, key, err)
}

// classify finds the sentinel of an error. Codes go first, since a missing bucket is a 404 as well and must never look
// like a missing object; statuses are for answers without a body (HEAD) and for stores with codes of their own.
// A 409 (a conditional write met another one under way) has none: it is tried again.
func classify(err error) error {
	var api smithy.APIError
	if errors.As(err, &api) {
		switch api.ErrorCode() {
		case "NoSuchKey", "NotFound":
			return objstore.ErrNotFound
		case "NoSuchBucket":
			return objstore.ErrNoBucket
		case "PreconditionFailed":
			return objstore.ErrExists
		case "InvalidRange":
			return objstore.ErrRange
		case "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "AllAccessDisabled",
			"XAdminUserNotFound": // versitygw, of an unknown access key

			return objstore.ErrForbidden
		case "BadDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch":
			return objstore.ErrChecksum
		case "NotImplemented":
			return objstore.ErrUnsupported
		}
	}
	var resp *awshttp.ResponseError
	if errors.As(err, &resp) {
		switch resp.HTTPStatusCode() {
		case http.StatusPreconditionFailed:
			return objstore.ErrExists
		case http.StatusRequestedRangeNotSatisfiable:
			return objstore.ErrRange
		case http.StatusForbidden, http.StatusUnauthorized:
			return objstore.ErrForbidden
		case http.StatusNotImplemented:
			return objstore.ErrUnsupported
		}
	}
	return nil
}
