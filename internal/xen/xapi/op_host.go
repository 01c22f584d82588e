package xapi

import (
	"time"

	"heddle/internal/store/records"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

func hostMessages() map[string]handler {
	return map[string]handler{
		"host.enable": func(c *call) (any, error) {
			return nil, c.edit("host", c.text("host"), model.Record{"enabled": true})
		},
		"host.disable": func(c *call) (any, error) {
			return nil, c.edit("host", c.text("host"), model.Record{"enabled": false})
		},
		"host.get_management_interface": hostManagement,
		"host.management_reconfigure":   hostManagementReconfigure,
		"host.destroy":                  hostDestroy,
		"host.declare_dead":             hostDeclareDead,
		"host.sync_tunnels":             syncTunnels,
		"host.sync_vlans":               syncVLANs,
	}
}

// managementOf returns the PIF by which the host is managed, nil if no PIF has its address.
func managementOf(r records.Reader, host string) *objects.Object {
	for pif := range objects.Table("PIF").By(r, "host", host) {
		if pif.Bool("management") {
			return pif
		}
	}
	return nil
}

func hostManagement(c *call) (any, error) {
	p := c.look()
	p.needs("host", c.text("host"))
	if p.err != nil {
		return nil, p.err
	}
	if pif := managementOf(p, c.text("host")); pif != nil {
		return pif.Ref, nil
	}
	return model.NullRef, nil
}

// hostManagementReconfigure has another PIF of a host carry its management. A real host's
// management is on the PIF with the address of its agent.
func hostManagementReconfigure(c *call) (any, error) {
	return nil, c.change(func(p *pool) {
		pif := p.get("PIF", c.text("pif"))
		own := p.own()
		switch {
		case !pif.Bool("managed"):
			p.fail(model.PIFUnmanaged(pif.Ref))
		case own.Bool("ha_enabled"):
			p.fail(model.HAIsEnabled())
		case tunnelOf(p, pif.Ref) != nil:
			p.fail(model.IsTunnelAccessPIF(pif.Ref))
		case isSlave(pif):
			p.fail(model.PIFAlreadyBonded(pif.Ref))
		case !configured(pif):
			p.fail(model.PIFHasNoNetworkConfiguration(pif.Ref))
		case pif.Bool("management"):
			return
		}
		p.able(pif.Text("host"), objects.Imagined, "its management goes by the address that its agent was started with: start heddle agent with another")
		host := p.get("host", pif.Text("host"))
		if old := managementOf(p, host.Ref); old != nil {
			p.edit(old, model.Record{"management": false})
		}
		if ip := pif.Text("IP"); ip != "" {
			p.edit(host, model.Record{"address": ip})
		}
		p.edit(pif, model.Record{"management": true, "currently_attached": true})
	})
}

// hostDestroy removes a dead host from the pool, with all that is on it.
func hostDestroy(c *call) (any, error) {
	return nil, c.leave(c.text("self"), func(p *pool, host *objects.Object) {
		if reports(p, host.Ref) {
			p.fail(model.OperationNotAllowed("host " + host.Text("name_label") + " is live: eject it with pool.eject"))
		}
	})
}

// leave removes a host from the pool, and ends what it may do in the store. It fails for the
// coordinator, and if check does.
func (c *call) leave(ref string, check func(p *pool, host *objects.Object)) error {
	var id string
	err := c.change(func(p *pool) {
		host := p.get("host", ref)
		if p.own().Text("master") == host.Ref {
			p.fail(model.OperationNotAllowed("host " + host.Text("name_label") + " is the pool's coordinator: make another so with pool.designate_new_master first"))
		}
		check(p, host)
		p.removeHost(host)
		id = host.UUID()
	})
	if expel := c.server.opts.Hosts.Expel; err == nil && expel != nil {
		return expel(c.ctx, id)
	}
	return err
}

// removeHost removes a host with its PIFs, tunnels, VLANs and bonds. VMs that ran there are halted.
// From now on the pool ignores the host's reports.
func (p *pool) removeHost(host *objects.Object) {
	p.alone(host.Ref)
	p.dropTunnels(host.Ref)
	pifs := by(p, "PIF", "host", host.Ref)
	for _, pif := range pifs {
		p.removeAll(by(p, "VLAN", "untagged_PIF", pif.Ref))
		p.removeAll(by(p, "Bond", "master", pif.Ref))
	}
	for _, pif := range pifs {
		p.removePIF(pif)
	}
	p.halt(by(p, "VM", "resident_on", host.Ref)...)
	for _, vm := range by(p, "VM", "affinity", host.Ref) {
		p.edit(vm, model.Record{"affinity": model.NullRef})
	}
	p.remove("host_metrics", host.Text("metrics"))
	p.remove("host", host.Ref)
	started, _ := time.Parse(time.RFC3339Nano, host.Map("other_config")[startedKey]) // unknown where a client has changed it
	if report, ok := objects.HostReports.Peek(p, host.Ref); ok {
		started = report.Started
	}
	putRecord(p, objects.Expelled, &objects.Expulsion{Host: host.Ref, Started: started})
}

// dropTunnels removes all tunnels of a host.
func (p *pool) dropTunnels(host string) {
	for _, pif := range by(p, "PIF", "host", host) {
		if t := tunnelOf(p, pif.Ref); t != nil {
			p.removeTunnel(t)
		}
	}
}

// hostDeclareDead notes that a host that does not report is no more: VMs that it ran are halted.
func hostDeclareDead(c *call) (any, error) {
	return nil, c.change(func(p *pool) {
		host := p.get("host", c.text("host"))
		if reports(p, host.Ref) {
			p.fail(model.OperationNotAllowed("host " + host.Text("name_label") + " is live: its agent reports"))
		}
		p.halt(by(p, "VM", "resident_on", host.Ref)...)
	})
}
