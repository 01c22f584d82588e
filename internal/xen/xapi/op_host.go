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
		"host.sync_tunnels":             func(c *call) (any, error) { return nil, c.syncHost() },
		"host.sync_vlans":               func(c *call) (any, error) { return nil, c.syncVLANs() },
	}
}

// managementOf is the PIF by which the host is managed; nil: no PIF has its address.
func managementOf(r records.Reader, host string) *objects.Object {
	for pif := range objects.Table("PIF").By(r, "host", host) {
		if pif.Bool("management") {
			return pif
		}
	}
	return nil
}

func hostManagement(c *call) (any, error) {
	r, err := c.view()
	if err != nil {
		return nil, err
	}
	if _, err := object(r, "host", c.text("host")); err != nil {
		return nil, err
	}
	if pif := managementOf(r, c.text("host")); pif != nil {
		return pif.Ref, nil
	}
	return model.NullRef, nil
}

// hostManagementReconfigure has another PIF of a host carry its management. Of a real host it is the one whose address the
// host's agent goes by.
func hostManagementReconfigure(c *call) (any, error) {
	return nil, c.update(func(tx *records.Tx) error {
		pif, err := object(tx, "PIF", c.text("pif"))
		if err != nil {
			return err
		}
		pool, err := thePool(tx)
		if err != nil {
			return err
		}
		switch {
		case !pif.Bool("managed"):
			return model.PIFUnmanaged(pif.Ref)
		case pool.Bool("ha_enabled"):
			return model.HAIsEnabled()
		case tunnelOf(tx, pif.Ref) != nil:
			return model.IsTunnelAccessPIF(pif.Ref)
		case isSlave(pif):
			return model.PIFAlreadyBonded(pif.Ref)
		case !configured(pif):
			return model.PIFHasNoNetworkConfiguration(pif.Ref)
		case pif.Bool("management"):
			return nil
		}
		if err := able(tx, pif.Text("host"), objects.Imagined, "its management goes by the address that its agent was started with: start heddle agent with another"); err != nil {
			return err
		}
		host, err := object(tx, "host", pif.Text("host"))
		if err != nil {
			return err
		}
		if old := managementOf(tx, host.Ref); old != nil {
			if err := put(tx, edited(old, model.Record{"management": false})); err != nil {
				return err
			}
		}
		if ip := pif.Text("IP"); ip != "" {
			if err := put(tx, edited(host, model.Record{"address": ip})); err != nil {
				return err
			}
		}
		return put(tx, edited(pif, model.Record{"management": true, "currently_attached": true}))
	})
}

// hostDestroy takes a dead host out of the pool, with all that is on it.
func hostDestroy(c *call) (any, error) {
	var id string
	err := c.update(func(tx *records.Tx) error {
		host, err := object(tx, "host", c.text("self"))
		if err != nil {
			return err
		}
		if err := removable(tx, host); err != nil {
			return err
		}
		if _, ok := objects.HostReports.Peek(tx, host.Ref); ok {
			return model.OperationNotAllowed("host " + host.Text("name_label") + " is live: eject it with pool.eject")
		}
		id = host.UUID()
		return removeHost(tx, host)
	})
	if err != nil {
		return nil, err
	}
	return nil, c.server.expel(c.ctx, id)
}

// removable refuses to take the coordinator out of its pool.
func removable(tx *records.Tx, host *objects.Object) error {
	pool, err := thePool(tx)
	if err != nil {
		return err
	}
	if pool.Text("master") == host.Ref {
		return model.OperationNotAllowed("host " + host.Text("name_label") + " is the pool's coordinator: make another so with pool.designate_new_master first")
	}
	return nil
}

// removeHost takes a host away with its PIFs, tunnels, VLANs and bonds. VMs that ran there are halted. What the host still
// reports counts no more.
func removeHost(tx *records.Tx, host *objects.Object) error {
	alone(tx, host.Ref)
	if err := dropTunnels(tx, host.Ref); err != nil {
		return err
	}
	for _, pif := range by(tx, "PIF", "host", host.Ref) {
		if v := vlanOf(tx, pif.Ref); v != nil {
			if err := remove(tx, "VLAN", v.Ref); err != nil {
				return err
			}
		}
		if b := first(tx, "Bond", "master", pif.Ref); b != nil {
			if err := remove(tx, "Bond", b.Ref); err != nil {
				return err
			}
		}
	}
	for _, pif := range by(tx, "PIF", "host", host.Ref) {
		if err := removePIF(tx, pif); err != nil {
			return err
		}
	}
	if err := haltAll(tx, host.Ref); err != nil {
		return err
	}
	for _, vm := range by(tx, "VM", "affinity", host.Ref) {
		if err := put(tx, edited(vm, model.Record{"affinity": model.NullRef})); err != nil {
			return err
		}
	}
	if err := remove(tx, "host_metrics", host.Text("metrics")); err != nil {
		return err
	}
	if err := remove(tx, "host", host.Ref); err != nil {
		return err
	}
	started, _ := time.Parse(time.RFC3339Nano, host.Map("other_config")[startedKey]) // unknown where a client has changed it
	if report, ok := objects.HostReports.Peek(tx, host.Ref); ok {
		started = report.Started
	}
	return objects.Expelled.Put(tx, &objects.Expulsion{Host: host.Ref, Started: started})
}

// dropTunnels takes all tunnels of a host away.
func dropTunnels(tx *records.Tx, host string) error {
	for _, pif := range by(tx, "PIF", "host", host) {
		if t := tunnelOf(tx, pif.Ref); t != nil {
			if err := removeTunnel(tx, t); err != nil {
				return err
			}
		}
	}
	return nil
}

func haltAll(tx *records.Tx, host string) error {
	for _, vm := range by(tx, "VM", "resident_on", host) {
		if err := halt(tx, vm); err != nil {
			return err
		}
	}
	return nil
}

// hostDeclareDead says that a host that does not report is no more: VMs that it ran are halted.
func hostDeclareDead(c *call) (any, error) {
	return nil, c.update(func(tx *records.Tx) error {
		host, err := object(tx, "host", c.text("host"))
		if err != nil {
			return err
		}
		if _, ok := objects.HostReports.Peek(tx, host.Ref); ok {
			return model.OperationNotAllowed("host " + host.Text("name_label") + " is live: its agent reports")
		}
		return haltAll(tx, host.Ref)
	})
}
