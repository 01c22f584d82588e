package client

import "heddle/internal/xen/wire"

// codec encodes calls and decodes replies, to raw values or failures as *model.Error.
type codec struct {
	path, contentType string
	encode            func(method string, params ...any) []byte
	decode            func(reply []byte) (any, error)
}

// codecFor chooses between XML-RPC and JSON-RPC.
func codecFor(json bool) codec {
	if json {
		return codec{"/jsonrpc", "application/json", wire.EncodeJSONCall, wire.DecodeJSONReply}
	}
	return codec{"/", "text/xml", wire.EncodeXMLCall, wire.DecodeXMLReply}
}
