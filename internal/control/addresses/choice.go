package addresses

import (
	"heddle/internal/neutron"
	"heddle/internal/topology/packet"
)

// tries bounds the guesses at a MAC address or a tunnel key: even with half of all taken, the
// chance that all fail is 2⁻⁶⁴.
const tries = 64

// MAC chooses a free address in fa:16:3e, where Neutron's are.
func MAC(networkID string, taken func(packet.MAC) (bool, error), random Random) (packet.MAC, error) {
	for range tries {
		n := random.Uint64()
		m := packet.MAC{0xfa, 0x16, 0x3e, byte(n >> 16), byte(n >> 8), byte(n)}
		if used, err := taken(m); err != nil || !used {
			return m, err
		}
	}
	return packet.MAC{}, neutron.Errorf(neutron.Unavailable, "MacAddressGenerationFailure",
		"Unable to generate unique mac on network %s.", networkID)
}

// MaxTunnelKey is the highest key of a port: bits 20 to 23 mark other keys (midonet-topology §2.3).
const MaxTunnelKey = 1<<20 - 1

// LocalnetKeys is set in the keys of localnet ports, so that none is an ordinary port's.
const LocalnetKeys = 4 << 20

// ContainerKeys is set in the keys of service containers' ports, likewise.
const ContainerKeys = 3 << 20

// TunnelKey chooses a free tunnel key from 1 to [MaxTunnelKey].
func TunnelKey(taken func(uint32) (bool, error), random Random) (uint32, error) {
	for range tries {
		key := 1 + uint32(random.Uint64N(MaxTunnelKey))
		if used, err := taken(key); err != nil || !used {
			return key, err
		}
	}
	return 0, noTunnelKey()
}

// NextTunnelKey returns the first free tunnel key above least: with the number of ports as least,
// ports that come one after another get ascending keys.
func NextTunnelKey(least int, taken func(uint32) (bool, error)) (uint32, error) {
	for key := uint32(least) + 1; key <= MaxTunnelKey; key++ {
		if used, err := taken(key); err != nil || !used {
			return key, err
		}
	}
	return 0, noTunnelKey()
}

func noTunnelKey() error {
	return neutron.Errorf(neutron.Unavailable, "NoTunnelKeyAvailable",
		"No free tunnel key: all but few of the %d are in use. Delete ports that are no longer needed.", MaxTunnelKey)
}
