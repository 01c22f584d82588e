package hosts

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"

	"heddle/internal/api"
	"heddle/internal/store/backend"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// renewRequest asks for another certificate. The request for it is signed by the host's key, which
// proves that it comes from the host; a copy of the request yields a certificate that is of no use
// without the key.
type renewRequest struct {
	HostID      string `json:"host_id"`
	Certificate string `json:"certificate"` // the present one, PEM: looked at only for hosts that joined under an earlier version
	CSR         string `json:"csr"`         // PEM
}

// renewAnswer also says where servers and store are now: a host that cannot reach the store has no
// other way to learn it.
type renewAnswer struct {
	Certificate string `json:"certificate"` // PEM
	locations
}

// renew gives a host that has joined and was not removed another certificate for its key, and its
// rights in a store that was moved a moment ago. The etcd user in the certificate stays the same:
// agents of earlier versions refuse another.
func (s *service) renew(w http.ResponseWriter, r *http.Request) error {
	var ask renewRequest
	if err := api.ReadJSON(r, &ask); err != nil {
		return err
	}
	ctx := r.Context()
	snap, err := s.DB.View(ctx)
	if err != nil {
		return err
	}
	key, err := keyOf(ask.CSR)
	if err != nil {
		return err
	}
	known, err := s.renewable(snap, ask, key)
	if err != nil {
		return err
	}
	host, err := schema.Hosts.Get(snap, ask.HostID)
	if err != nil {
		return err
	}
	certificate, made, err := s.issue(ask.HostID, known.rightsOf(), ask.CSR)
	if err != nil {
		return err
	}
	_, err = s.DB.Update(ctx, func(tx *records.Tx) error {
		j, err := s.renewable(tx, ask, key)
		if err != nil {
			return err
		}
		renewed := *j
		renewed.Key, renewed.Until, renewed.Signer = key, made.until, made.signer
		return joined.Put(tx, &renewed)
	})
	if err != nil {
		return err
	}
	if err := s.allowLastJoin(ctx, host.ID, host.Name); err != nil {
		return err
	}
	s.Log.Info("renewed certificate of host", "id", ask.HostID, "until", made.until, "from", api.ClientAddr(ctx))
	api.WriteJSON(w, http.StatusOK, renewAnswer{string(certificate), s.locations(snap, r)})
	return nil
}

// renewable refuses a host that was removed, has another key, or was away for too long.
func (s *service) renewable(r records.Reader, ask renewRequest, key string) (*Joined, error) {
	const joinAgain = "let it join again with a token for its name: `heddle host token %s`"
	j, err := joined.Get(r, ask.HostID)
	h, hostErr := schema.Hosts.Get(r, ask.HostID)
	if err != nil || hostErr != nil {
		return nil, api.Errorf(http.StatusForbidden, "Host %s was removed or never joined: "+joinAgain+".", ask.HostID, "NAME")
	}
	again := fmt.Sprintf(joinAgain, h.Name)
	if j.Key == "" {
		if err := s.vouches(ask.Certificate, ask.HostID, key); err != nil {
			return nil, api.Errorf(http.StatusForbidden, "Host %s: its certificate does not prove who it is (%v): %s.", ask.HostID, err, again)
		}
		return j, nil
	}
	if j.Key != key {
		return nil, api.Errorf(http.StatusForbidden, "Host %s is known by another key, with which it joined later: %s.", ask.HostID, again)
	}
	if end := j.Until.Add(renewalGrace); !j.Until.IsZero() && s.Now().After(end) {
		return nil, api.Errorf(http.StatusForbidden, "Host %s: its certificate ended on %s, more than %d days ago: %s.",
			ask.HostID, j.Until.Format("2006-01-02"), int(renewalGrace.Hours()/24), again)
	}
	return j, nil
}

// vouches returns an error unless a certificate of the host, signed by our authority and still
// good, is for this key.
func (s *service) vouches(certificate, hostID, key string) error {
	cert, err := parseLeaf([]byte(certificate))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.HostsCA())
	if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: s.Now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		return err
	}
	if cert.Subject.CommonName != backend.CertificateName(hostID) {
		return errors.New("it is another host's")
	}
	if api.Fingerprint(cert.RawSubjectPublicKeyInfo) != key {
		return errors.New("it is for another key")
	}
	return nil
}
