package metadata

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"io"
	"net/http"
	"strconv"
	"time"
)

// Headers of version 2 of EC2's service, whose clients first get a token: a proxy in a machine that
// forwards what strangers send can hardly be made to do that.
const (
	tokenPath   = "/latest/api/token"
	tokenHeader = "X-Aws-Ec2-Metadata-Token"
	lifeHeader  = "X-Aws-Ec2-Metadata-Token-Ttl-Seconds"

	mostTokenLife = 6 * time.Hour
)

// tokens makes tokens for ports and verifies them. Those of an agent end with it; clients get
// others then.
type tokens struct {
	key []byte
	now func() time.Time
}

func newTokens() *tokens {
	t := &tokens{key: make([]byte, sha256.Size), now: time.Now}
	rand.Read(t.key)
	return t
}

// put answers a PUT, which is for a token or for nothing.
func (t *tokens) put(w http.ResponseWriter, r *http.Request, c Client, at string) error {
	if at != tokenPath {
		return refuse(http.StatusNotFound, "only %s can be put", tokenPath)
	}
	if len(r.Header.Values("X-Forwarded-For")) > 0 {
		return refuse(http.StatusForbidden, "a request for a token was forwarded, by its header X-Forwarded-For")
	}
	seconds, err := strconv.Atoi(r.Header.Get(lifeHeader))
	life := time.Duration(seconds) * time.Second
	if err != nil || seconds < 1 || seconds > int(mostTokenLife/time.Second) {
		return refuse(http.StatusBadRequest, "%s: want 1 to %d seconds", lifeHeader, int(mostTokenLife/time.Second))
	}
	w.Header().Set(lifeHeader, strconv.Itoa(seconds))
	w.Header().Set("Content-Type", "text/plain")
	_, _ = io.WriteString(w, t.token(c.Port, t.now().Add(life))) // a client that has gone needs no answer
	return nil
}

// token returns the token of a port until a moment: that in seconds, and an HMAC.
func (t *tokens) token(port string, until time.Time) string {
	end := binary.BigEndian.AppendUint64(nil, uint64(until.Unix()))
	return base64.URLEncoding.EncodeToString(append(end, t.sign(port, end)...))
}

func (t *tokens) sign(port string, end []byte) []byte {
	h := hmac.New(sha256.New, t.key)
	h.Write(end)
	h.Write([]byte(port))
	return h.Sum(nil)
}

// check rejects a request with a token that is not good. Without one the request is of version 1.
func (t *tokens) check(r *http.Request, c Client) error {
	given := r.Header.Values(tokenHeader)
	if len(given) == 0 {
		return nil
	}
	raw, err := base64.URLEncoding.DecodeString(given[0])
	const endSize = 8
	if err != nil || len(raw) != endSize+sha256.Size || !hmac.Equal(raw[endSize:], t.sign(c.Port, raw[:endSize])) ||
		int64(binary.BigEndian.Uint64(raw)) <= t.now().Unix() {
		return refuse(http.StatusUnauthorized, "%s: the token is not known or has expired: get one by PUT of %s", tokenHeader, tokenPath)
	}
	return nil
}
