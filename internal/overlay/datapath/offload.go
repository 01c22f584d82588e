package datapath

// vnetHeader is struct virtio_net_hdr as a tap opened with IFF_VNET_HDR reads and writes it, in host byte order.
type vnetHeader struct {
	flags, gsoType              uint8
	hdrLen, gsoSize             uint16
	checksumStart, checksumOffs uint16
}

const vnetHeaderLen = 10
