package xe

import (
	"fmt"
	"strings"
	"testing"

	"heddle/internal/xen/model"
)

// TestReport: what is said of failures, by a server that cannot be asked about objects any more.
func TestReport(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"The PIF is the access PIF of a tunnel: tunnels, VLANs and bonds go on physical, VLAN and bond PIFs.\nPIF: OpaqueRef:1\nError code: IS_TUNNEL_ACCESS_PIF\n": model.IsTunnelAccessPIF("OpaqueRef:1"),
		"The host's network backend is not Open vSwitch, which tunnels need.\nparameter: more\nError code: OPENVSWITCH_NOT_ACTIVE\n":                                &model.Error{Code: "OPENVSWITCH_NOT_ACTIVE", Params: []string{"more"}},
		"Error code: OF_TOMORROW\nError parameters: a, b\n":                                 fmt.Errorf("PIF.plug: %w", &model.Error{Code: "OF_TOMORROW", Params: []string{"a", "b"}}),
		"Authentication failed\nFor usage run: 'xe help'\n":                                 fmt.Errorf("log in: %w", model.SessionAuthenticationFailed("root", "")),
		"Required parameter not found: uuid\nFor usage run: 'xe help'\n":                    missing("uuid"),
		"The command could not be carried out.\nmessage: Failure: Unknown field 'colour'\n": unknownField("colour"),
		"cannot\n": fmt.Errorf("cannot"),
	} {
		var b strings.Builder
		report(t.Context(), &b, nil, err)
		if b.String() != want {
			t.Errorf("%v is told as %q, want %q", err, b.String(), want)
		}
	}
	for _, class := range model.Classes() {
		for _, m := range class.Messages {
			for _, code := range m.Errors {
				for n := range 4 {
					var b strings.Builder
					report(t.Context(), &b, nil, &model.Error{Code: code, Params: []string{"tunnel", "OpaqueRef:1", "x", "y"}[:n]})
					if code != "SESSION_AUTHENTICATION_FAILED" && (!strings.HasPrefix(b.String(), model.LookupError(code).Text+"\n") || !strings.HasSuffix(b.String(), "Error code: "+code+"\n")) {
						t.Errorf("%s with %d parameters is told as %q", code, n, b.String())
					}
				}
			}
		}
	}
}
