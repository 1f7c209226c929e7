package manifest

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/varvehq/varve/internal/kafka"
)

// Root is varve.json: it says that a bucket is Varve's and which cluster made it. It is never changed.
type Root struct {
	Format    int       `json:"format"`
	ClusterID string    `json:"cluster_id"`
	Created   time.Time `json:"created"`
}

// Catalog names the topics of a bucket. Numbers are contiguous and put only if absent. The cluster and incarnation of
// the newest catalog are the bucket's owner.
type Catalog struct {
	Format      int            `json:"format"`
	Number      int64          `json:"number"`
	ClusterID   string         `json:"cluster_id"`
	Incarnation int64          `json:"incarnation"`
	Nonce       string         `json:"nonce"`
	Time        time.Time      `json:"time"`
	Topics      []CatalogTopic `json:"topics"`
}

// CatalogTopic is one topic of a catalog.
type CatalogTopic struct {
	Name       string            `json:"name"`
	ID         kafka.UUID        `json:"id"`
	Partitions int32             `json:"partitions"`
	Configs    map[string]string `json:"configs,omitempty"`
	Deleted    bool              `json:"deleted,omitempty"`
}

// Encode gives the file's bytes.
func (r *Root) Encode() ([]byte, error) { return encode(r) }

// Encode gives the file's bytes.
func (c *Catalog) Encode() ([]byte, error) { return encode(c) }

// DecodeRoot reads and checks a root file.
func DecodeRoot(b []byte) (*Root, error) {
	r := new(Root)
	if err := decode(b, r, &r.Format, "varve.json"); err != nil {
		return nil, err
	}
	if r.ClusterID == "" {
		return nil, fmt.Errorf("%w: varve.json has no cluster_id", ErrMalformed)
	}
	return r, nil
}

// DecodeCatalog reads and checks a catalog file.
func DecodeCatalog(b []byte) (*Catalog, error) {
	c := new(Catalog)
	if err := decode(b, c, &c.Format, "catalog"); err != nil {
		return nil, err
	}
	if c.Number < 1 || c.ClusterID == "" || c.Incarnation < 0 {
		return nil, fmt.Errorf("%w: catalog has number %d, cluster_id %q, incarnation %d",
			ErrMalformed, c.Number, c.ClusterID, c.Incarnation)
	}
	for _, t := range c.Topics {
		if err := kafka.ValidateTopicName(t.Name); err != nil {
			return nil, fmt.Errorf("%w: catalog: %w", ErrMalformed, err)
		}
		if t.ID.IsZero() || t.Partitions < 0 {
			return nil, fmt.Errorf("%w: catalog: topic %s has id %s and %d partitions", ErrMalformed, t.Name, t.ID, t.Partitions)
		}
	}
	return c, nil
}

func encode(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("manifest: encode: %w", err)
	}
	return append(b, '\n'), nil
}

// decode unmarshals b and checks the format; unknown fields are skipped, since fields may be added within a format.
func decode(b []byte, v any, format *int, kind string) error {
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrMalformed, kind, err)
	}
	switch {
	case *format == Format:
		return nil
	case *format > Format:
		return fmt.Errorf("%w: %s has format %d, this version reads %d", ErrVersion, kind, *format, Format)
	default:
		return fmt.Errorf("%w: %s has format %d", ErrMalformed, kind, *format)
	}
}
