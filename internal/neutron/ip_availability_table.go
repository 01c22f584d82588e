package neutron

import (
	"math/big"
	"strconv"
)

// IPAvailability counts the addresses of a network. The Network is not to be modified.
type IPAvailability struct {
	*Network
	Subnets []SubnetIPAvailability
}

// SubnetIPAvailability counts the addresses of a subnet. The Subnet is not to be modified.
type SubnetIPAvailability struct {
	*Subnet
	Total *big.Int // in its allocation pools; without pools, in its range
	Used  int      // by ports, also outside of the pools
}

// total returns the number of addresses in all subnets.
func (o *IPAvailability) total() *big.Int {
	sum := new(big.Int)
	for i := range o.Subnets {
		sum.Add(sum, o.Subnets[i].Total)
	}
	return sum
}

// used returns the number of addresses that ports have in all subnets.
func (o *IPAvailability) used() int64 {
	sum := 0
	for i := range o.Subnets {
		sum += o.Subnets[i].Used
	}
	return int64(sum)
}

// ipAvailabilityTable has the attributes of the reference. The id, by which lists are ordered and
// cut into pages, is that of the network.
func ipAvailabilityTable() *Table[*IPAvailability] {
	id := textValue(func(o *IPAvailability) string { return o.ID })
	project := textValue(func(o *IPAvailability) string { return o.ProjectID })
	return newTable(IPAvailabilities, []column[*IPAvailability]{
		row(Attribute{Name: "id", Sort: true, Hidden: true, Type: "uuid", Doc: "that of the network"}, id),
		row(Attribute{Name: "network_id", Filter: true, Sort: true, Type: "uuid"}, id),
		row(Attribute{Name: "network_name", Filter: true, Type: "string"}, textValue(func(o *IPAvailability) string { return o.Name })),
		row(Attribute{Name: "tenant_id", Filter: true, Type: "string", Doc: "the older name of project_id"}, project),
		row(Attribute{Name: "project_id", Filter: true, Type: "string", Doc: "the network's"}, project),
		row(Attribute{Name: "total_ips", Type: "integer", Doc: "addresses in the allocation pools of its subnets"},
			jsonValue(func(b []byte, o *IPAvailability) []byte { return o.total().Append(b, 10) })),
		row(Attribute{Name: "used_ips", Type: "integer", Doc: "addresses of ports"}, numberValue((*IPAvailability).used)),
		row(Attribute{Name: "subnet_ip_availability", Type: "list of {subnet_id, subnet_name, cidr, ip_version, total_ips, used_ips}"},
			jsonValue(func(b []byte, o *IPAvailability) []byte { return appendList(b, o.Subnets, appendSubnetAvailability) })),
		row(Attribute{Name: "ip_version", Filter: true, Hidden: true, Type: "integer", Doc: "filter: counts subnets of this version alone"},
			value[*IPAvailability]{match: func([]string) (func(o *IPAvailability) bool, error) {
				return func(o *IPAvailability) bool { return len(o.Subnets) > 0 }, nil
			}}),
	})
}

func appendSubnetAvailability(b []byte, s SubnetIPAvailability) []byte {
	b = append(b, `{"subnet_id":`...)
	b = appendString(b, s.ID)
	b = append(b, `,"ip_version":`...)
	b = strconv.AppendInt(b, int64(s.IPVersion), 10)
	b = append(b, `,"cidr":`...)
	b = appendPrefix(b, s.CIDR)
	b = append(b, `,"subnet_name":`...)
	b = appendString(b, s.Name)
	b = append(b, `,"used_ips":`...)
	b = strconv.AppendInt(b, int64(s.Used), 10)
	b = append(b, `,"total_ips":`...)
	return append(s.Total.Append(b, 10), '}')
}
