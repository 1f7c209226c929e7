package postgrescdc

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// catalog returns the connection for queries.
func (s *stream) catalog(ctx context.Context) (*pgx.Conn, error) {
	if s.sql != nil && !s.sql.IsClosed() {
		return s.sql, nil
	}
	conn, err := s.srv.sql(ctx)
	s.sql = conn
	return conn, err
}

func (s *stream) closeSQL() {
	if s.sql == nil {
		return
	}
	hangUp(s.sql)
	s.sql = nil
}

// relation takes note of a table as the coming changes have it.
func (s *stream) relation(ctx context.Context, body []byte) error {
	m, err := parseRelation(body)
	if err != nil {
		return err
	}
	if !s.cfg.captures(m.schema, m.name) {
		s.tables[m.id] = nil
		return nil
	}
	conn, err := s.catalog(ctx)
	if err != nil {
		return err
	}
	found, err := relations(ctx, conn, []uint32{m.id}, nil)
	if err != nil {
		return fmt.Errorf("look up table %s.%s: %w", m.schema, m.name, err)
	}
	r := m.relation()
	if len(found) > 0 {
		r.describe(found[0])
	} else {
		s.log.Warn("the table of a change no longer exists: its columns are taken for optional", "table", r.fullName())
	}
	if err := typesOf(ctx, conn, s.types, r); err != nil {
		return err
	}
	t := newTable(s.cfg, s.types, r)
	t.wire = m.columns
	t.adopt(s.known[r.fullName()])
	s.tables[m.id], s.known[r.fullName()] = t, t
	return nil
}

// relation is what the message alone says about its table.
func (m *relationMessage) relation() *relation {
	r := &relation{oid: m.id, schema: m.schema, name: m.name, identity: m.identity}
	for _, c := range m.columns {
		r.columns = append(r.columns, attribute{name: c.name, typ: c.typ, typmod: c.typmod, identity: c.identity})
		if c.identity && m.identity != 'f' {
			r.key = append(r.key, c.name)
		}
	}
	return r
}

// describe adds what only the catalog knows.
func (r *relation) describe(catalog *relation) {
	r.key = catalog.key
	r.kind, r.partition = catalog.kind, catalog.partition
	for i := range r.columns {
		for _, a := range catalog.columns {
			if a.name == r.columns[i].name {
				r.columns[i].notNull, r.columns[i].def = a.notNull, a.def
			}
		}
	}
}
