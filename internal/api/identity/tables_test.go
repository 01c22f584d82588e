package identity

import (
	"testing"

	"heddle/internal/store/storetest"
)

func TestUnknownMembers(t *testing.T) {
	storetest.UnknownMembers{Tables: newTables().all()}.Test(t)
}
