package hosts

import (
	"testing"

	"heddle/internal/store/storetest"
)

func TestUnknownMembers(t *testing.T) {
	storetest.UnknownMembers{Tables: Tables()}.Test(t)
}
