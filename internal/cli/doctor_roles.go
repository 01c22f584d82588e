package cli

import (
	"context"
	"errors"
	"strings"

	"heddle/internal/admin"
)

// rolesCheck finds roles that run on this machine and are not ready, or no longer are.
func rolesCheck(s *sockets) Check {
	return Check{
		Name: "roles at work", For: "all roles that run here",
		Fix: "do what it says; the role's log has more: journalctl -u 'heddle*'; docs/guides/operating.md",
		Run: func(ctx context.Context) error {
			roles, err := admin.Roles(s.dir)
			if err != nil {
				return undecided{err.Error()}
			}
			var waiting, unasked []string
			for _, role := range roles {
				switch status, err := admin.Dial(s.dir, role).Status(ctx); {
				case errors.Is(err, admin.ErrNotRunning):
				case err != nil:
					unasked = append(unasked, err.Error())
				case len(status.Waiting) > 0:
					waiting = append(waiting, "heddle "+role+" is not ready: "+strings.Join(status.Waiting, ", "))
				}
			}
			switch {
			case len(waiting) > 0:
				return errors.New(strings.Join(waiting, "; "))
			case len(unasked) > 0:
				return undecided{strings.Join(unasked, "; ")}
			}
			return nil
		},
	}
}
