package hosts

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// clockTimeout bounds the answer of one server.
const clockTimeout = 5 * time.Second

// ClockSkew returns by how much this host's clock is ahead of that of the first of its servers that
// answers, to the second, and that server's URL.
func (c Credentials) ClockSkew(ctx context.Context) (skew time.Duration, server string, err error) {
	var failed []error
	for _, server := range c.Servers {
		skew, err := c.skew(ctx, server)
		if err == nil {
			return skew, server, nil
		}
		failed = append(failed, err)
	}
	return 0, "", errors.Join(failed...)
}

func (c Credentials) skew(ctx context.Context, server string) (time.Duration, error) {
	trust, err := c.trust(server)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, server, nil)
	if err != nil {
		return 0, err
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: trust, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }} // that answer has the time too
	res, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	date, err := http.ParseTime(res.Header.Get("Date"))
	if err != nil {
		return 0, fmt.Errorf("%s: time in its answer: %w", server, err)
	}
	return time.Since(date).Round(time.Second), nil
}
