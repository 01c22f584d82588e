package cloud

import (
	"fmt"
	"os"
	"syscall"
)

// CheckCredentials refuses a file with credentials that others than its owner may read.
func CheckCredentials(file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return fmt.Errorf("credentials: %w: want a clouds.yaml with the cloud heddle", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("credentials: %s has mode %#o, so that others may read or change it: `chmod 600 %[1]s`", file, mode)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Geteuid() && stat.Uid != 0 {
		return fmt.Errorf("credentials: %s belongs to user %d: `chown root %[1]s`", file, stat.Uid)
	}
	return nil
}
