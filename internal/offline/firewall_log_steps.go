package offline

import (
	"maps"

	"heddle/internal/neutron"
)

// Fields of a firewall log that name its logging resource: by its id, or as Neutron's plugin gives
// it to a driver, whole (midonet-translations §21). The API has them in the path.
const (
	loggingResource   = "logging_resource"
	loggingResourceID = "logging_resource_id"
)

// createFirewallLog makes a log, and its logging resource with it if that is not there.
func (w *world) createFirewallLog(k *kind, id string, data object) error {
	resource, err := w.loggingResource(data)
	if err != nil {
		return err
	}
	v, err := w.newValues(k, id, withoutLoggingResource(data))
	if err != nil {
		return err
	}
	v[loggingResourceID] = resource
	return k.create(v)
}

// loggingResource returns the id of the logging resource that a log names.
func (w *world) loggingResource(data object) (string, error) {
	if !data.has(loggingResource) {
		return idOf(data.get(loggingResourceID))
	}
	o, err := data.get(loggingResource).anyObject()
	if err != nil {
		return "", err
	}
	id, err := idOf(o.get("id"))
	if err != nil {
		return "", err
	}
	k := w.kinds[neutron.LoggingResources.Name()]
	if _, err := k.show(id); err == nil {
		return id, nil
	}
	return id, w.create(k, id, o)
}

// withoutLoggingResource returns the fields of a log that are attributes of the API's.
func withoutLoggingResource(data object) object {
	fields := maps.Clone(data.fields)
	delete(fields, loggingResource)
	delete(fields, loggingResourceID)
	return object{data.node, fields}
}
