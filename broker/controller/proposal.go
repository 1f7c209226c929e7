package controller

import (
	"strconv"

	"github.com/varvehq/varve/broker/config"
)

// proposal collects the records of one entry. Its editor holds everything proposed so far, so that a call is checked against
// the calls before it, even those of the same entry.
type proposal struct {
	editor *imageEditor
	env    *Env
	data   []byte
}

// run lets one call prepare. A call that answers an error has added nothing.
func (p *proposal) run(prepare func(*proposal) error) error { return prepare(p) }

// add applies records to what is proposed and encodes them.
func (p *proposal) add(records ...Record) error {
	for _, r := range records {
		if err := p.editor.apply(r); err != nil {
			return err
		}
	}
	p.data = AppendRecords(p.data, records...)
	return nil
}

// trial is a proposal on the same state that is thrown away.
func (p *proposal) trial() *proposal {
	return &proposal{editor: p.editor.image().edit(), env: p.env}
}

// dynamic are this node's dynamic broker configs.
func (p *proposal) dynamic() config.Dynamic {
	all := p.editor.next.BrokerConfigs
	return config.Dynamic{Node: all[strconv.Itoa(int(p.env.NodeID))], Default: all[""]}
}

func (p *proposal) broker() config.Broker { return p.env.Configs.Broker(p.dynamic()) }
