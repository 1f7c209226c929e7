// Package s3 is a bucket on Amazon S3 or any store that speaks its protocol, through aws-sdk-go-v2. It sets every
// checksum mode explicitly, leaves retries to the decorator of objstore, and maps errors to objstore's sentinels with the
// call and the key named.
package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"
)

// Config says where a bucket is. Credentials come by the SDK's usual chain: environment, shared files, roles.
type Config struct {
	Bucket    string
	Prefix    string // not used by Open; for objstore.WithPrefix
	Endpoint  string // a URL; empty: Amazon's own
	Region    string // empty: by the SDK's chain, else us-east-1
	PathStyle bool   // http://endpoint/bucket/key instead of http://bucket.endpoint/key
	// Checksums sends a CRC-32C with every upload and checks the store's on whole reads. Some stores refuse them.
	Checksums bool
	// MultipartAbove is the size above which an object is uploaded in parts of PartSize.
	MultipartAbove, PartSize int64
	// HTTPClient is for tests; nil makes one.
	HTTPClient *http.Client
}

// DefaultConfig has everything but the bucket.
func DefaultConfig() Config {
	return Config{Checksums: true, MultipartAbove: 64 << 20, PartSize: 16 << 20}
}

// minPart is the smallest part that S3 takes, but for the last.
const minPart = 5 << 20

// Validate names the field that is wrong.
func (c *Config) Validate() error {
	switch {
	case c.Bucket == "":
		return errors.New("s3: bucket: empty name; write s3://name/prefix")
	case c.PartSize < minPart:
		return fmt.Errorf("s3: part_size: %d is below 5 MiB", c.PartSize)
	case c.MultipartAbove < 0 || c.MultipartAbove > 5<<30:
		return fmt.Errorf("s3: multipart_above: %d is not within 0 and 5 GiB", c.MultipartAbove)
	}
	return nil
}

// ParseURL reads s3://name/prefix?endpoint=…&region=…&path_style=true&checksums=false.
func ParseURL(u *url.URL) (Config, error) {
	c := DefaultConfig()
	c.Bucket, c.Prefix = u.Host, strings.Trim(u.Path, "/")
	if u.User != nil {
		return c, errors.New("s3: credentials do not belong into the URL: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	}
	for k, v := range u.Query() {
		var err error
		switch value := v[len(v)-1]; k {
		case "endpoint":
			c.Endpoint, err = parseEndpoint(value)
		case "region":
			c.Region = value
		case "path_style":
			c.PathStyle, err = strconv.ParseBool(value)
		case "checksums":
			c.Checksums, err = strconv.ParseBool(value)
		default:
			err = errors.New("unknown; there are endpoint, region, path_style and checksums")
		}
		if err != nil {
			return c, fmt.Errorf("s3: URL parameter %s: %w", k, err)
		}
	}
	return c, c.Validate()
}

func parseEndpoint(s string) (string, error) {
	if !strings.Contains(s, "://") {
		s = "https://" + s
	}
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("%q is not an http or https URL", s)
	}
	return s, nil
}

// Open makes the client. It does not talk to the store.
func Open(ctx context.Context, c Config) (*Bucket, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	opts := []func(*awsconfig.LoadOptions) error{
		awsconfig.WithRetryer(func() aws.Retryer { return aws.NopRetryer{} }),
		awsconfig.WithLogger(logging.Nop{}),
	}
	if c.Region != "" {
		opts = append(opts, awsconfig.WithRegion(c.Region))
	}
	cfg, err := awsconfig.LoadDefaultConfig(ctx, opts...)
	if err != nil {
		return nil, fmt.Errorf("s3: %w", err)
	}
	if cfg.Region == "" {
		cfg.Region = "us-east-1"
	}
	b := &Bucket{cfg: c}
	b.client = s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.UsePathStyle = c.PathStyle
		if c.Endpoint != "" {
			o.BaseEndpoint = aws.String(c.Endpoint)
		}
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		if c.Checksums {
			o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenSupported
			o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenSupported
		}
		o.DisableLogOutputChecksumValidationSkipped = true
		if c.HTTPClient != nil {
			o.HTTPClient = c.HTTPClient
			return
		}
		o.HTTPClient = awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
			t.MaxIdleConns, t.MaxIdleConnsPerHost = 256, 256
			t.IdleConnTimeout = 60 * time.Second
			t.DisableCompression = true
			b.closeIdle = t.CloseIdleConnections
		})
	})
	return b, nil
}
