package cni

import (
	"slices"
	"strings"
	"testing"
)

const minimal = `{"cniVersion":"1.0.0","name":"blue","type":"heddle-cni"}`

// TestReadConfig: settings come from the configuration, the runtime and CNI_ARGS, the last one
// first, and mistakes are named.
func TestReadConfig(t *testing.T) {
	t.Parallel()
	c, err := readConfig([]byte(minimal), "")
	if err != nil || c.Network != "blue" || c.Credentials != defaultCredentials || c.State != defaultState || c.IPs != nil {
		t.Errorf("%+v, %v, want the defaults", c, err)
	}
	c, err = readConfig([]byte(`{"cniVersion":"1.0.0","name":"n","type":"heddle-cni","network":"blue","ips":["10.0.0.1"],"securityGroups":["a"],
		"runtimeConfig":{"ips":["10.0.0.2/24","2001:db8::2"],"mac":"02:00:00:00:00:01","portMappings":[]},"args":{"cni":{}},"capabilities":{"ips":true}}`),
		"IgnoreUnknown=1;K8S_POD_NAME=web;K8S_POD_UID=1;MAC=02:00:00:00:00:02;HEDDLE_SECURITY_GROUPS=b,c")
	if err != nil || c.Network != "blue" || !slices.Equal(c.IPs, []string{"10.0.0.2", "2001:db8::2"}) || c.MAC != "02:00:00:00:00:02" ||
		!slices.Equal(c.SecurityGroups, []string{"b", "c"}) || c.podName != "web" {
		t.Errorf("%+v, %v", c, err)
	}
	for _, bad := range []struct {
		code       uint
		words      string
		text, args string
	}{
		{7, "subnets", `{"name":"blue","type":"heddle-cni","subnets":[]}`, ""},
		{7, "ips[0]", `{"name":"blue","type":"heddle-cni","ips":["x"]}`, ""},
		{7, `mac: "x" is no MAC address`, `{"name":"blue","type":"heddle-cni","mac":"x"}`, ""},
		{7, "securityGroups: a name is empty", minimal, "HEDDLE_SECURITY_GROUPS=a,"},
		{7, "leave out ips, mac and securityGroups", minimal, "HEDDLE_PORT=p;IP=10.0.0.1"},
		{7, "runtimeConfig", `{"name":"blue","type":"heddle-cni","runtimeConfig":{"ips":"10.0.0.1"}}`, ""},
		{4, `"x": want KEY=VALUE`, minimal, "x"},
		{4, "unknown x", minimal, "x=1"},
		{4, `IgnoreUnknown="maybe"`, minimal, "IgnoreUnknown=maybe"},
	} {
		if _, err := readConfig([]byte(bad.text), bad.args); err == nil || err.Code != bad.code || !strings.Contains(err.Msg, bad.words) {
			t.Errorf("%s with %q: %v, want the code %d and %q", bad.text, bad.args, err, bad.code, bad.words)
		}
	}
}

// FuzzReadConfig: whatever a runtime hands over, the configuration is complete or refused with a
// code of CNI.
func FuzzReadConfig(f *testing.F) {
	f.Add([]byte(minimal), "IP=10.0.0.1;MAC=02:00:00:00:00:01")
	f.Add([]byte(`{"name":"n","network":"blue","ips":["::1/64"],"runtimeConfig":{"mac":""},"prevResult":{},"cni.dev/valid-attachments":[{"containerID":"c","ifname":"eth0"}]}`), "IgnoreUnknown=1;;a=b=c")
	f.Fuzz(func(t *testing.T, text []byte, args string) {
		c, err := readConfig(text, args)
		switch {
		case err != nil && err.Code != 4 && err.Code != 7:
			t.Errorf("code %d: %v", err.Code, err)
		case err == nil && (c.Credentials == "" || c.State == "" || slices.Contains(c.SecurityGroups, "")):
			t.Errorf("incomplete: %+v", c)
		}
	})
}
