package lab

import "testing"

func TestGivingWayIsTakenBack(t *testing.T) { //nolint:paralleltest // it is about the whole process
	end, err := GiveWay(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}
