package xapi

import (
	"testing"

	"heddle/internal/xen/model"
)

// TestPIFDeprecatedVLAN: the PIF's own calls for VLANs do what VLAN's do.
func TestPIFDeprecatedVLAN(t *testing.T) {
	t.Parallel()
	u := lab(t)
	host, eth1, network := u.named("host", "h1"), u.pif("h1", "eth1"), u.network("vlan 5")
	u.fails("INVALID_VALUE device eth9", "PIF.create_VLAN", "eth9", network, host, int64(5))
	u.fails("VLAN_TAG_INVALID 4095", "PIF.create_VLAN", "eth1", network, host, int64(4095))
	pif := u.ref("PIF.create_VLAN", "eth1", network, host, int64(5))
	if u.get("PIF", pif, "VLAN") != int64(5) || u.get("PIF", pif, "currently_attached") != true {
		t.Errorf("PIF %v", u.records("PIF")[pif])
	}
	u.fails("PIF_IS_PHYSICAL "+eth1, "PIF.destroy", eth1)
	u.must("PIF.destroy", pif)
	if left := u.records("VLAN"); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	tunnel := u.ref("tunnel.create", eth1, network)
	access := u.get("tunnel", tunnel, "access_PIF").(string)
	u.fails("IS_TUNNEL_ACCESS_PIF "+access, "PIF.destroy", access)
}

// TestPIFRecords: a record comes and goes by itself, and only where there is room for it.
func TestPIFRecords(t *testing.T) {
	t.Parallel()
	u := lab(t)
	host, network := u.named("host", "h1"), u.network("new")
	given := func(device, network, mac string) []any {
		return []any{device, network, host, mac, int64(9000), int64(-1), true, "Static", "192.0.2.9", "255.255.255.0", "", "", model.NullRef, model.NullRef, false}
	}
	const mac = "02:00:00:00:00:09"
	u.fails("MAC_INVALID nine", "PIF.db_introduce", given("eth9", network, "nine")...)
	u.fails("INVALID_VALUE device *", "PIF.db_introduce", given("", network, mac)...)
	u.fails("DUPLICATE_PIF_DEVICE_NAME eth1", "PIF.db_introduce", given("eth1", network, mac)...)
	u.fails("NETWORK_ALREADY_CONNECTED "+host+" *", "PIF.db_introduce", given("eth9", u.named("network", "data"), mac)...)
	u.fails("HANDLE_INVALID network nothing", "PIF.db_introduce", given("eth9", "nothing", mac)...)
	pif := u.ref("PIF.db_introduce", given("eth9", network, mac)...)
	for field, want := range map[string]any{"device": "eth9", "MTU": int64(9000), "IP": "192.0.2.9", "managed": true, "ipv6_configuration_mode": "None", "currently_attached": false} {
		if got := u.get("PIF", pif, field); got != want {
			t.Errorf("%s is %v, want %v", field, got, want)
		}
	}
	if metrics := u.get("PIF", pif, "metrics").(string); u.get("PIF_metrics", metrics, "carrier") != false {
		t.Errorf("metrics %s", metrics)
	}
	u.must("PIF.db_forget", pif)
	u.fails("HANDLE_INVALID PIF "+pif, "PIF.get_record", pif)
}
