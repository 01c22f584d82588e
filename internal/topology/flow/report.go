package flow

import "time"

// HostReport is the state of a host at one moment, which its agent reports on request.
type HostReport struct {
	Time    time.Time   `json:"time"`    // by the host's clock
	Tunnels int         `json:"tunnels"` // other hosts that it reaches
	Tables  []TableFill `json:"tables,omitempty"`
	// Failing has, by the id of each port that cannot be attached, the reason.
	Failing map[string]string `json:"failing,omitempty"`
	// CertificateEnd is the end of the certificate with which the host reads the store; the zero
	// time: it has none.
	CertificateEnd time.Time `json:"certificateEnd,omitzero"`
}

// TableFill is the fill of a table of a host.
type TableFill struct {
	Name string `json:"name"` // as in metrics: flows, connections, translations
	Used int    `json:"used"`
	Max  int    `json:"max"`
}
