package xapi

import (
	"fmt"

	"github.com/google/uuid"

	"heddle/internal/store/records"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

// permitted returns an error unless the session's account may make the call (spec 4). It looks up
// the account's role at each call, so that another role counts at once.
func (c *call) permitted() *model.Error {
	if c.session.role().Includes(c.Role) {
		return nil
	}
	return model.RBACPermissionDenied(c.Name, fmt.Sprintf("the account %s has the role %s; this needs %s", c.session.account, c.session.role(), c.Role))
}

// roleTexts describe the roles for people.
func roleText(r model.Role) string {
	switch r {
	case model.PoolAdmin:
		return "may do everything"
	case model.PoolOperator:
		return "may change hosts and their networking"
	case model.VMPowerAdmin:
		return "may also choose the host of a VM"
	case model.VMAdmin:
		return "may make networks, VMs and their interfaces"
	case model.VMOperator:
		return "may start and stop VMs"
	case model.TunnelController:
		return "may read everything and write the status of tunnels"
	}
	return "may read everything"
}

// roleObject is the object of a role: the same in every pool.
func roleObject(r model.Role) *objects.Object {
	id := uuid.NewSHA1(uuid.NameSpaceOID, []byte("heddle xapi role "+string(r))).String()
	o := &objects.Object{Class: "role", Ref: refPrefix + id, Fields: model.New("role")}
	o.Fields["uuid"], o.Fields["name_label"], o.Fields["name_description"] = id, string(r), roleText(r)
	return o
}

// seedRoles puts the roles' objects that are missing.
func seedRoles(tx *records.Tx) error {
	for _, r := range model.Roles() {
		o := roleObject(r)
		if _, ok := objects.Table("role").Peek(tx, o.Ref); ok {
			continue
		}
		if err := put(tx, o); err != nil {
			return err
		}
	}
	return nil
}
