package main

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

var (
	// tagged matches what git describe gives at a tag, or after one: v0.1.0, v0.1.0-3-g1a2b3c4.
	tagged = regexp.MustCompile(`^v([0-9]+\.[0-9]+\.[0-9]+)(?:-(rc[0-9]+))?(?:-([0-9]+)-g([0-9a-f]+))?$`)
	// untagged matches what it gives where there is no tag.
	untagged = regexp.MustCompile(`^[0-9a-f]{7,40}$`)
)

// debianVersion returns the version of a package, in whose order a release candidate comes before
// its release, and a later commit after it: 0.1.0, 0.1.0~rc1, 0.1.0+3.g1a2b3c4. A tree with changes
// that were not committed has "+dirty" behind it.
func debianVersion(described string, at time.Time) (string, error) {
	clean, dirty := strings.CutSuffix(described, "-dirty")
	version := ""
	if m := tagged.FindStringSubmatch(clean); m != nil {
		version = m[1]
		if m[2] != "" {
			version += "~" + m[2]
		}
		if m[3] != "" {
			version += "+" + m[3] + ".g" + m[4]
		}
	} else if untagged.MatchString(clean) {
		version = "0~git" + at.Format("20060102.150405") + "." + clean
	} else {
		return "", fmt.Errorf("version %q is none of git describe's: v1.2.3, v1.2.3-4-g5a6b7c8 or a commit", described)
	}
	if dirty {
		version += "+dirty"
	}
	return version, nil
}
