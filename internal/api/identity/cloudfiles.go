package identity

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"heddle/internal/api"
)

const cloudName = "heddle"

// cloudFiles are clouds.yaml and openrc, the two forms in which OpenStack's clients read
// credentials.
type cloudFiles struct {
	BootstrapOptions
	region string
}

func (f cloudFiles) names() (clouds, openrc string) {
	return filepath.Join(f.Dir, "clouds.yaml"), filepath.Join(f.Dir, "openrc")
}

func (f cloudFiles) remove() error {
	clouds, openrc := f.names()
	return errors.Join(os.Remove(clouds), os.Remove(openrc))
}

// write writes both files with the administrator's password.
func (f cloudFiles) write(password string) error {
	text, err := f.clouds(password)
	if err != nil {
		return err
	}
	clouds, openrc := f.names()
	if err := api.WriteFile(clouds, text); err != nil {
		return err
	}
	return api.WriteFile(openrc, f.openrc(password))
}

// refresh writes the files again when the server's address or authority has changed. Files that
// differ from what a server wrote stay, since the operator has changed them.
func (f cloudFiles) refresh(log *slog.Logger) error {
	name, _ := f.names()
	found, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	var file struct {
		Clouds map[string]struct {
			Auth struct {
				URL      string `json:"auth_url"`
				Password string `json:"password"`
			} `json:"auth"`
			CAFile string `json:"cacert"`
		} `json:"clouds"`
	}
	if yaml.Unmarshal(found, &file) != nil {
		return nil
	}
	then := file.Clouds[cloudName]
	was := f
	was.URL, was.CAFile = then.Auth.URL, then.CAFile
	written, err := was.clouds(then.Auth.Password)
	if err != nil || was == f || !bytes.Equal(written, found) {
		return err
	}
	log.Info("wrote clouds.yaml and openrc again, since the server's address has changed", "url", f.URL, "authority", f.CAFile)
	return f.write(then.Auth.Password)
}

// clouds returns the text of clouds.yaml.
func (f cloudFiles) clouds(password string) ([]byte, error) {
	type m = map[string]any
	cloud := m{
		"auth": m{"auth_url": f.URL, "username": adminName, "password": password, "project_name": adminName,
			"user_domain_id": DefaultDomainID, "project_domain_id": DefaultDomainID},
		"region_name": f.region, "identity_api_version": 3,
	}
	if f.CAFile != "" {
		cloud["cacert"] = f.CAFile
	}
	return yaml.Marshal(m{"clouds": m{cloudName: cloud}})
}

// openrc returns the text of openrc.
func (f cloudFiles) openrc(password string) []byte {
	env := [][2]string{{"OS_AUTH_URL", f.URL}, {"OS_USERNAME", adminName}, {"OS_PASSWORD", password}, {"OS_PROJECT_NAME", adminName},
		{"OS_USER_DOMAIN_ID", DefaultDomainID}, {"OS_PROJECT_DOMAIN_ID", DefaultDomainID}, {"OS_REGION_NAME", f.region},
		{"OS_IDENTITY_API_VERSION", "3"}}
	if f.CAFile != "" {
		env = append(env, [2]string{"OS_CACERT", f.CAFile})
	}
	var rc strings.Builder
	for _, v := range env {
		fmt.Fprintf(&rc, "export %s=%s\n", v[0], shellQuote(v[1]))
	}
	return []byte(rc.String())
}

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
