package packet

// VXLAN's addition to a packet's IP length, in bytes: outer IP, UDP, VXLAN, inner Ethernet.
const (
	VXLANOverheadV4 = 20 + 8 + 8 + 14
	VXLANOverheadV6 = 40 + 8 + 8 + 14
)
