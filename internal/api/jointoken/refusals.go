package jointoken

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"heddle/internal/api"
	"heddle/internal/api/credentials"
)

// Refusals logs and counts the joins that an API refuses.
type Refusals struct{ *credentials.Refusals }

// NewRefusals returns the Refusals of joins of hosts or servers: subject is the log's key for the
// name of one.
func NewRefusals(subject string, log *slog.Logger, now func() time.Time) Refusals {
	return Refusals{credentials.NewRefusals(credentials.RefusalOptions{
		API: subject + "s", Message: "join refused", Subject: subject,
		Reasons: []credentials.Reason{credentials.BadToken, credentials.NotAdmitted}, Log: log, Now: now,
	})}
}

// Note logs and counts a join that failed with err, if it was refused. The name is the one that the
// machine asked for.
func (r Refusals) Note(ctx context.Context, name string, err error) {
	refused := (*api.Error)(nil)
	if !errors.As(err, &refused) || refused.Status >= http.StatusInternalServerError {
		return
	}
	reason := credentials.NotAdmitted
	if refused.Status == http.StatusForbidden {
		reason = credentials.BadToken
	}
	r.Refusals.Note(name, api.ClientAddr(ctx), reason)
}
