package claim

import "testing"

func TestFilesystemIsThatOfTheNearestMount(t *testing.T) {
	t.Parallel()
	const mounts = `/dev/vda / ext4 rw 0 0
tmpfs /tmp tmpfs rw 0 0
/dev/vdb /tmp/data xfs rw 0 0
tmpfs /tmp/database tmpfs rw 0 0
broken
`
	for dir, want := range map[string]string{
		"/":              "ext4",
		"/var/lib":       "ext4",
		"/tmp":           "tmpfs",
		"/tmp/x":         "tmpfs",
		"/tmp/data/x":    "xfs",
		"/tmp/data":      "xfs",
		"/tmpx":          "ext4",
		"/tmp/data2":     "tmpfs",
		"/tmp/database/": "tmpfs",
	} {
		if got := mountOf(mounts, dir); got != want {
			t.Errorf("%s is on %q, want %q", dir, got, want)
		}
	}
	if got := mountOf("", "/tmp"); got != "" {
		t.Errorf("without a table: %q", got)
	}
}
