"""Drives a pool with Citrix's binding: client.py URL USER PASSWORD. It makes a tunnel network over the first two hosts,
follows its events, and takes it away. Exits 0 when all was as it must be."""
import ssl
import sys

from os_xenapi.client import XenAPI

url, user, password = sys.argv[1:]
ssl._create_default_https_context = ssl._create_unverified_context
session = XenAPI.Session(url)
session.login_with_password(user, password, "1.0", "heddle test")
x = session.xenapi


def fails(code, call, *args):
    try:
        call(*args)
    except XenAPI.Failure as failure:
        assert failure.details[0] == code, failure.details
        return failure.details
    raise AssertionError("%s: no error" % code)


hosts = sorted(x.host.get_all())
assert len(hosts) >= 2
for host in hosts:
    assert x.host.get_software_version(host)["network_backend"] == "openvswitch"
pifs = [next(p for p in x.host.get_PIFs(h) if x.PIF.get_IP(p)) for h in hosts]

network = x.network.create({"name_label": "private", "name_description": "", "MTU": "1450", "other_config": {}})
assert x.network.get_MTU(network) == "1450"
token = x.event_from(["tunnel", "PIF"], "", 0.0)["token"]
tunnels = [x.tunnel.create(p, network) for p in pifs[:2]]
batch = x.event_from(["tunnel", "PIF"], token, 10.0)
changes = [(e["class"], e["operation"]) for e in batch["events"]]
assert changes.count(("tunnel", "add")) >= 1 and ("pif", "mod") in changes, changes
assert set(batch["valid_ref_counts"]) >= {"tunnel", "pif"}

for tunnel in tunnels:
    record = x.tunnel.get_record(tunnel)
    assert set(record) >= {"uuid", "access_PIF", "transport_PIF", "status", "other_config", "protocol"}, record
    access = x.PIF.get_record(record["access_PIF"])
    assert access["currently_attached"] and access["tunnel_access_PIF_of"] == [tunnel]
    assert access["ip_configuration_mode"] == "None" and access["VLAN"] == "-1" and access["IP"] == ""
assert x.tunnel.get_by_uuid(x.tunnel.get_uuid(tunnels[0])) == tunnels[0]
assert sorted(x.tunnel.get_all()) == sorted(tunnels)

x.tunnel.add_to_other_config(tunnels[0], "purpose", "test")
fails("MAP_DUPLICATE_KEY", x.tunnel.add_to_other_config, tunnels[0], "purpose", "test")
x.tunnel.remove_from_other_config(tunnels[0], "purpose")
fails("MESSAGE_METHOD_UNKNOWN", x.tunnel.set_access_PIF, tunnels[0], access)
assert fails("MESSAGE_PARAMETER_COUNT_MISMATCH", x.tunnel.create, pifs[0])[1:] == ["tunnel.create", "2", "1"]
fails("UUID_INVALID", x.tunnel.get_by_uuid, "not-there")

for tunnel in tunnels:
    x.tunnel.destroy(tunnel)
fails("HANDLE_INVALID", x.tunnel.get_record, tunnels[0])
assert x.network.get_PIFs(network) == []
x.network.destroy(network)
session.xenapi.session.logout()
