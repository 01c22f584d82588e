package neutronv2_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"heddle/internal/control"
)

const bgpNowhere = "99999999-1111-1111-1111-111111111111"

// TestBGPRefusals holds what is refused of speakers and peers against the reference's words.
func TestBGPRefusals(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	speaker := s.create(t, "admin", "bgp-speakers", `{"bgp_speaker":{"local_as":"4294967295","ip_version":4}}`)["id"].(string)
	plain := s.create(t, "admin", "bgp-peers", `{"bgp_peer":{"peer_ip":"192.0.2.1","remote_as":1,"auth_type":"none","password":"x"}}`)["id"].(string)
	md5 := s.create(t, "admin", "bgp-peers", `{"bgp_peer":{"peer_ip":"2001:db8::1","remote_as":1,"auth_type":"md5","password":"secret"}}`)["id"].(string)
	network := s.create(t, "admin", "networks", `{"network":{}}`)["id"].(string)
	out := s.create(t, "admin", "networks", `{"network":{"router:external":true}}`)["id"].(string)
	router := s.create(t, "admin", "routers", `{"router":{}}`)["id"].(string)
	unused := s.create(t, "admin", "bgp-speakers", `{"bgp_speaker":{"local_as":1,"ip_version":4}}`)["id"].(string)
	inside := s.create(t, "admin", "bgp-speakers", `{"bgp_speaker":{"local_as":1,"ip_version":4,"router_id":"`+router+`"}}`)["id"].(string)
	of, within := "/bgp-speakers/"+speaker, "/bgp-speakers/"+inside
	const speakers, peers = "/bgp-speakers", "/bgp-peers"
	for _, tt := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", speakers, `{"bgp_speaker":{"ip_version":4}}`, 400, "Invalid input for local_as. Reason: 'None' is not an integer."},
		{"POST", speakers, `{"bgp_speaker":{"ip_version":4,"local_as":"x"}}`, 400, "Invalid input for local_as. Reason: 'x' is not an integer."},
		{"POST", speakers, `{"bgp_speaker":{"ip_version":4,"local_as":4294967296}}`, 400, "Reason: '4294967296' is too large - must be no larger than '4294967295'."},
		{"POST", speakers, `{"bgp_speaker":{"local_as":1}}`, 400, "Invalid input for ip_version. Reason: None is not in valid_values."},
		{"POST", speakers, `{"bgp_speaker":{"local_as":1,"ip_version":"4"}}`, 400, "Invalid input for ip_version. Reason: 4 is not in valid_values."},
		{"POST", speakers, `{"bgp_speaker":{"local_as":1,"ip_version":4,"peers":[]}}`, 400, "Attribute 'peers' not allowed in POST"},
		{"PUT", of, `{"bgp_speaker":{"local_as":"4321"}}`, 400, "Cannot update read-only attribute local_as"},
		{"PUT", of, `{"bgp_speaker":{"networks":[]}}`, 400, "Cannot update read-only attribute networks"},
		{"POST", peers, `{"bgp_peer":{"remote_as":1,"auth_type":"none"}}`, 400, "Required attribute 'peer_ip' not specified"},
		{"POST", peers, `{"bgp_peer":{"peer_ip":"192.0.2.300","remote_as":1,"auth_type":"none"}}`, 400, "Invalid input for peer_ip. Reason: '192.0.2.300' is not a valid IP address."},
		{"POST", peers, `{"bgp_peer":{"peer_ip":"192.0.2.3","auth_type":"none"}}`, 400, "Invalid input for remote_as. Reason: 'None' is not an integer."},
		{"POST", peers, `{"bgp_peer":{"peer_ip":"192.0.2.3","remote_as":1,"auth_type":"sha1"}}`, 400, "Invalid input for auth_type. Reason: sha1 is not in valid_values."},
		{"POST", peers, `{"bgp_peer":{"peer_ip":"192.0.2.3","remote_as":1,"auth_type":"md5","password":""}}`, 400, "InvalidBgpPeerMd5Authentication"},
		{"PUT", peers + "/" + plain, `{"bgp_peer":{"password":"x"}}`, 404, "BGP peer " + plain + " not authenticated."},
		{"PUT", peers + "/" + plain, `{"bgp_peer":{"password":null,"name":"x"}}`, 200, `"name":"x"`},
		{"PUT", peers + "/" + md5, `{"bgp_peer":{"password":null}}`, 400, "InvalidBgpPeerMd5Authentication"},
		{"PUT", peers + "/" + md5, `{"bgp_peer":{"password":"` + strings.Repeat("é", 40) + `"}}`, 200, `"auth_type":"md5"`},
		{"PUT", peers + "/" + md5, `{"bgp_peer":{"password":"` + strings.Repeat("é", 40) + `x"}}`, 400, "Invalid input for password. Reason: the password has 81 bytes; TCP MD5 takes at most 80."},
		{"PUT", peers + "/" + md5, `{"bgp_peer":{"password":"a\nb"}}`, 400, "Invalid input for password. Reason: the password has a control character; use printable ones."},
		{"POST", peers, `{"bgp_peer":{"peer_ip":"192.0.2.3","remote_as":1,"auth_type":"md5","password":"` + strings.Repeat("x", 81) + `"}}`, 400, "Invalid input for password. Reason: the password has 81 bytes; TCP MD5 takes at most 80."},
		{"POST", peers, `{"bgp_peer":{"peer_ip":"192.0.2.3","remote_as":1,"auth_type":"md5","password":"a\u0000"}}`, 400, "Invalid input for password. Reason: the password has a control character; use printable ones."},
		{"PUT", peers + "/" + md5, `{"bgp_peer":{"peer_ip":"192.0.2.9"}}`, 400, "Cannot update read-only attribute peer_ip"},

		{"PUT", of + "/add_bgp_peer", `{}`, 400, "Bad bgp-speaker request: bgp_peer_id must be specified."},
		{"PUT", of + "/add_bgp_peer", `{"bgp_peer_id":"x"}`, 400, "Bad bgp-speaker request: 'x' is not a valid UUID."},
		{"PUT", of + "/add_bgp_peer", `{"bgp_peer_id":"` + bgpNowhere + `"}`, 404, "BGP peer " + bgpNowhere + " could not be found."},
		{"PUT", speakers + "/x/add_bgp_peer", `{"bgp_peer_id":"` + plain + `"}`, 404, "BGP speaker x could not be found."},
		{"PUT", of + "/remove_bgp_peer", `{"bgp_peer_id":"` + plain + `"}`, 404, "BGP peer " + plain + " is not associated with BGP speaker " + speaker + "."},
		{"PUT", of + "/add_gateway_network", `{}`, 400, "Bad bgp-speaker request: network_id must be specified."},
		{"PUT", of + "/add_gateway_network", `{"network_id":"` + bgpNowhere + `"}`, 404, "Network " + bgpNowhere + " could not be found."},
		{"PUT", of + "/remove_gateway_network", `{"network_id":"` + network + `"}`, 404, "Network " + network + " is not associated with BGP speaker " + speaker + "."},
		{"PUT", of + "/add_gateway_network", `{"network_id":"` + network + `"}`, 400, "Only external network can be specified."},
		{"PUT", of + "/add_gateway_network", `{"network_id":"` + out + `"}`, 400, "No subnets in the network: " + out + "."},
		{"PUT", within + "/add_gateway_network", `{"network_id":"` + out + `"}`, 409, "BGP Speaker " + inside + " is already associated with router."},
		{"PUT", within + "/add_bgp_peer", `{"bgp_peer_id":"` + md5 + `"}`, 501, "BGP peers with IPv6 addresses, such as 2001:db8::1"},
		{"PUT", within + "/add_bgp_peer", `{"bgp_peer_id":"` + plain + `"}`, 200, `{"bgp_peer_id":"` + plain + `"}`},
		{"PUT", within + "/add_bgp_peer", `{"bgp_peer_id":"` + plain + `"}`, 409, "DuplicateBgpPeerIpException"},
		{"PUT", of + "/add_bgp_peer", `{"bgp_peer_id":"` + plain + `"}`, 409, "BGP peer " + plain + " is already associated with BGP speaker " + inside + "."},
		{"GET", within, "", 200, `"peers":["` + plain + `"]`},
		{"GET", within, "", 200, `"logical_router":"` + router + `"`},
		{"GET", speakers + "?logical_router=" + router + "&fields=id", "", 200, `{"bgp_speakers":[{"id":"` + inside + `"}]}`},
		{"POST", speakers, `{"bgp_speaker":{"local_as":1,"ip_version":4,"logical_router":"` + router + `"}}`, 409, "Router " + router + " is already associated with bgp speaker " + inside + "."},
		{"POST", speakers, `{"bgp_speaker":{"local_as":1,"ip_version":4,"logical_router":"` + bgpNowhere + `"}}`, 404, "Router " + bgpNowhere + " could not be found"},
		{"POST", speakers, `{"bgp_speaker":{"local_as":1,"ip_version":4,"logical_router":"` + router + `","router_id":"` + bgpNowhere + `"}}`, 400, "give one of them"},
		{"POST", speakers, `{"bgp_speaker":{"local_as":1,"ip_version":6}}`, 501, "BGP speakers with ip_version 6 are not supported"},
		{"PUT", within, `{"bgp_speaker":{"logical_router":null}}`, 400, "Cannot update read-only attribute logical_router"},
		{"DELETE", "/routers/" + router, "", 409, "Router " + router + " is associated with bgp speaker " + inside + "."},
		{"PUT", within + "/remove_bgp_peer", `{"bgp_peer_id":"` + plain + `"}`, 200, "null"},
		{"DELETE", within, "", 204, ""},
		{"DELETE", "/routers/" + router, "", 204, ""},
		{"DELETE", speakers + "/" + unused, "", 204, ""},
		{"DELETE", speakers + "/" + bgpNowhere, "", 404, "BGP speaker " + bgpNowhere + " could not be found."},
		{"GET", speakers + "/" + bgpNowhere + "/get_advertised_routes", "", 404, "BGP speaker " + bgpNowhere + " could not be found."},
		{"PUT", of, `{"bgp_speaker":{"name":"n","advertise_tenant_networks":"no"}}`, 200, `"advertise_tenant_networks":false`},
		{"GET", speakers + "?name=n&fields=name&fields=local_as", "", 200, `{"bgp_speakers":[{"name":"n","local_as":4294967295}]}`},
	} {
		s.refused(t, tt.status, "admin", tt.method, tt.path, tt.body, tt.want)
	}
}

// TestBGPPasswords: no answer has the password of a peer, whatever is asked for, and no list finds
// a peer by it.
func TestBGPPasswords(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	const secret, next = "dont-tell-1", "dont-tell-2"
	answers := []answer{s.must(t, http.StatusCreated, "admin", http.MethodPost, "/bgp-peers",
		`{"bgp_peer":{"peer_ip":"192.0.2.1","remote_as":1,"auth_type":"md5","password":"`+secret+`"}}`)}
	path := "/bgp-peers/" + first(answers[0].doc()["bgp_peer"])["id"].(string)
	answers = append(answers,
		s.must(t, http.StatusOK, "admin", http.MethodPut, path, `{"bgp_peer":{"password":"`+next+`"}}`),
		s.must(t, http.StatusOK, "admin", http.MethodGet, path+"?fields=password", nil),
		s.must(t, http.StatusOK, "admin", http.MethodGet, path, nil),
		s.must(t, http.StatusOK, "admin", http.MethodGet, "/bgp-peers?fields=password", nil))
	for _, a := range answers {
		if strings.Contains(string(a.body), "dont-tell") || strings.Contains(string(a.body), "password") {
			t.Errorf("an answer has the password: %s", a.body)
		}
	}
	s.refused(t, http.StatusOK, "admin", http.MethodGet, "/bgp-peers?password=wrong", "", `"peer_ip":"192.0.2.1"`)
	s.refused(t, http.StatusOK, "admin", http.MethodGet, path, "", `"auth_type":"md5"`)
}

// TestBGPIsForAdmins: others find no speakers and peers, not even of their project, and make none.
func TestBGPIsForAdmins(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	speaker := s.create(t, "admin", "bgp-speakers", `{"bgp_speaker":{"local_as":1,"ip_version":4,"project_id":"`+memberProject+`"}}`)
	if speaker["project_id"] != adminProject {
		t.Errorf("the speaker is of project %v, want that of its maker", speaker["project_id"])
	}
	peer := s.create(t, "admin", "bgp-peers", `{"bgp_peer":{"peer_ip":"192.0.2.1","remote_as":1,"auth_type":"none","project_id":"`+memberProject+`"}}`)
	if peer["project_id"] != memberProject {
		t.Errorf("the peer is of project %v, want that of the request", peer["project_id"])
	}
	of, at := fmt.Sprint("/bgp-speakers/", speaker["id"]), fmt.Sprint("/bgp-peers/", peer["id"])
	for _, who := range []string{"member", "reader", "none"} {
		s.refused(t, http.StatusForbidden, who, "POST", "/bgp-speakers", `{"bgp_speaker":{"local_as":1,"ip_version":4}}`, "rule:create_bgp_speaker is disallowed by policy")
		s.refused(t, http.StatusForbidden, who, "POST", "/bgp-peers", `{"bgp_peer":{"peer_ip":"192.0.2.2","remote_as":1,"auth_type":"none"}}`, "rule:create_bgp_peer is disallowed by policy")
		s.refused(t, http.StatusOK, who, "GET", "/bgp-peers", "", `{"bgp_peers":[]}`)
		for _, path := range []string{of, at, of + "/get_advertised_routes"} {
			s.refused(t, http.StatusNotFound, who, "GET", path, "", "could not be found")
		}
		for _, path := range []string{of, at} {
			s.refused(t, http.StatusNotFound, who, "DELETE", path, "", "could not be found")
		}
		s.refused(t, http.StatusNotFound, who, "PUT", at, `{"bgp_peer":{"name":"x"}}`, "could not be found")
		s.refused(t, http.StatusNotFound, who, "PUT", of+"/add_bgp_peer", fmt.Sprintf(`{"bgp_peer_id":%q}`, peer["id"]), "could not be found")
	}
}

// TestBGPSchedule: a speaker without a container is on no agent, and clients give it to none.
func TestBGPSchedule(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	const agent = "99999999-0000-0000-0000-000000000000"
	s.addHost(t, agent, "host-0")
	speaker := s.create(t, "admin", "bgp-speakers", `{"bgp_speaker":{"local_as":1,"ip_version":4}}`)["id"].(string)
	on, of := "/agents/"+agent+"/bgp-drinstances", "/bgp-speakers/"+speaker+"/bgp-dragents"
	body := `{"bgp_speaker_id":"` + speaker + `"}`
	s.refused(t, http.StatusOK, "admin", "GET", of, "", `{"agents":[]}`)
	s.refused(t, http.StatusOK, "admin", "GET", on, "", `{"bgp_speakers":[]}`)
	const byServer = "BGP speakers are given to hosts by the server"
	s.refused(t, http.StatusConflict, "admin", "POST", on, body, byServer)
	s.refused(t, http.StatusConflict, "admin", "DELETE", on+"/"+speaker, "", byServer)
	s.refused(t, http.StatusNotFound, "admin", "POST", "/agents/x/bgp-drinstances", body, "Agent x could not be found")
	s.refused(t, http.StatusNotFound, "admin", "GET", "/agents/x/bgp-drinstances", "", "Agent x could not be found")
	for rule, request := range map[string][2]string{
		"list_dragent_hosting_bgp_speaker": {"GET", of}, "list_bgp_speaker_on_dragent": {"GET", on},
		"add_bgp_speaker_to_dragent": {"POST", on}, "remove_bgp_speaker_from_dragent": {"DELETE", on + "/" + speaker},
	} {
		s.refused(t, http.StatusForbidden, "member", request[0], request[1], body, "rule:"+rule+" is disallowed by policy")
	}
}

// TestBGPRoutesAnswer: a route is answered with its destination and the address to send to.
func TestBGPRoutesAnswer(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{Ordered: true})
	id := func(collection, body string) string { return s.create(t, "admin", collection, body)["id"].(string) }
	external := id("networks", `{"network":{"router:external":true}}`)
	id("subnets", `{"subnet":{"network_id":"`+external+`","ip_version":4,"cidr":"203.0.113.0/24"}}`)
	lan := id("networks", `{"network":{}}`)
	subnet := id("subnets", `{"subnet":{"network_id":"`+lan+`","ip_version":4,"cidr":"10.0.0.0/24"}}`)
	router := id("routers", `{"router":{"external_gateway_info":{"network_id":"`+external+`","external_fixed_ips":[{"ip_address":"203.0.113.5"}]}}}`)
	s.must(t, http.StatusOK, "admin", http.MethodPut, "/routers/"+router+"/add_router_interface", `{"subnet_id":"`+subnet+`"}`)
	port := id("ports", `{"port":{"network_id":"`+lan+`"}}`)
	id("floatingips", `{"floatingip":{"floating_network_id":"`+external+`","floating_ip_address":"203.0.113.9","port_id":"`+port+`"}}`)
	speaker := "/bgp-speakers/" + id("bgp-speakers", `{"bgp_speaker":{"local_as":1,"ip_version":4}}`)
	s.refused(t, http.StatusOK, "admin", "GET", speaker+"/get_advertised_routes", "", `{"advertised_routes":[]}`)
	s.must(t, http.StatusOK, "admin", http.MethodPut, speaker+"/add_gateway_network", `{"network_id":"`+external+`"}`)
	s.refused(t, http.StatusOK, "admin", "GET", speaker+"/get_advertised_routes", "",
		`{"advertised_routes":[{"destination":"203.0.113.9/32","next_hop":"203.0.113.5"}]}`)
}
