package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

const (
	// auditTail bounds what is read of a log, from its end, bytes.
	auditTail = 1 << 20
	// mostDenials bounds the denials that are quoted.
	mostDenials = 3
)

var (
	// auditLogs are the files in which SELinux and AppArmor log what they deny.
	auditLogs = []string{"var/log/audit/audit.log", "var/log/kern.log"}
	denial    = regexp.MustCompile(`avc: +denied|apparmor="DENIED"`)
	// ourPrograms are those that Heddle runs, as these logs name them.
	ourPrograms = regexp.MustCompile(`comm="(heddle|dnsmasq|haproxy|calico-dhcp-ag)`)
)

// denialsCheck finds what SELinux or AppArmor has denied to Heddle's programs lately, in logs that
// can be read.
func (root kernelFiles) denialsCheck() Check {
	return Check{
		Name: "denials by SELinux or AppArmor", For: "all parts", Optional: true,
		Fix: "allow it: audit2allow for SELinux, the profile in /etc/apparmor.d for AppArmor; the log is left as it is, so look at the times",
		Run: func(context.Context) error { return root.findDenials() },
	}
}

func (root kernelFiles) findDenials() error {
	var found []string
	for _, file := range auditLogs {
		text, err := root.tail(file)
		if err != nil {
			return err
		}
		for line := range strings.Lines(text) {
			if denial.MatchString(line) && ourPrograms.MatchString(line) {
				found = append(found, "/"+file+": "+strings.TrimSpace(line))
			}
		}
	}
	if len(found) == 0 {
		return nil
	}
	last := found[max(0, len(found)-mostDenials):]
	return fmt.Errorf("%d denials, at last %s", len(found), strings.Join(last, "; "))
}

// tail returns the end of a file; "" if there is none, or this user may not read it.
func (root kernelFiles) tail(path string) (string, error) {
	f, err := os.Open(filepath.Join(string(root), path))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	raw, err := io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-auditTail), auditTail))
	return string(raw), err
}
