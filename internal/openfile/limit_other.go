//go:build !unix

package openfile

func raise() (Limit, error) { return Limit{}, ErrUnknown }

func used() (int, bool) { return 0, false }
