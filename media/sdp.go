package media

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/pion/dtls/v3/pkg/crypto/fingerprint"
	"github.com/pion/ice/v4"
	"github.com/pion/sdp/v3"
)

// description is a session description of the client that passed every check which Pion makes only
// after it has changed state.
type description struct {
	raw      string
	sections []section
	ufrags   map[string]bool
}

// section is one audio or video line of a description.
type section struct {
	mid      string
	kind     Kind
	receives bool // the client wants to receive on it
	sends    bool
}

// parseDescription checks raw. The returned error says what is wrong and never quotes raw.
func parseDescription(raw string) (*description, error) {
	if len(raw) > maxSDPBytes {
		return nil, badSDP("longer than %d bytes", maxSDPBytes)
	}
	parsed := &sdp.SessionDescription{}
	if err := parsed.UnmarshalString(raw); err != nil {
		return nil, badSDP("not readable as SDP (RFC 8866)")
	}
	switch n := len(parsed.MediaDescriptions); {
	case n == 0:
		return nil, badSDP("no media section; add audio, video or a data channel before offering")
	case n > maxSections:
		return nil, badSDP("more than %d media sections", maxSections)
	}
	d := &description{raw: raw, ufrags: make(map[string]bool)}
	if err := d.addSections(parsed); err != nil {
		return nil, err
	}
	if err := d.checkTransport(parsed); err != nil {
		return nil, err
	}
	return d, nil
}

func badSDP(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrBadSDP, fmt.Sprintf(format, args...))
}

// addSections collects the audio and video lines. Pion needs an a=mid everywhere.
func (d *description) addSections(parsed *sdp.SessionDescription) error {
	seen := make(map[string]bool)
	for i, m := range parsed.MediaDescriptions {
		mid, _ := m.Attribute(sdp.AttrKeyMID)
		if mid == "" {
			return badSDP("media section %d has no a=mid", i)
		}
		if seen[mid] {
			return badSDP("media section %d repeats an a=mid", i)
		}
		seen[mid] = true
		kind := Kind(m.MediaName.Media)
		if kind != KindAudio && kind != KindVideo {
			continue
		}
		s := section{mid: mid, kind: kind}
		if _, bundleOnly := m.Attribute("bundle-only"); m.MediaName.Port.Value != 0 || bundleOnly {
			s.sends, s.receives = directions(parsed, m)
		}
		d.sections = append(d.sections, s)
	}
	return nil
}

// directions returns whether the client sends and receives on a line; both by default (RFC 8866 6.7).
func directions(parsed *sdp.SessionDescription, m *sdp.MediaDescription) (sends, receives bool) {
	for _, attributes := range [][]sdp.Attribute{m.Attributes, parsed.Attributes} {
		for _, a := range attributes {
			switch a.Key {
			case sdp.AttrKeySendRecv:
				return true, true
			case sdp.AttrKeySendOnly:
				return true, false
			case sdp.AttrKeyRecvOnly:
				return false, true
			case sdp.AttrKeyInactive:
				return false, false
			}
		}
	}
	return true, true
}

// checkTransport checks ICE credentials, fingerprint and candidates where Pion looks for them: at the
// session, or at the section that carries the bundle.
func (d *description) checkTransport(parsed *sdp.SessionDescription) error {
	carrier, err := bundleCarrier(parsed)
	if err != nil {
		return err
	}
	ufrag, pwd := attribute(parsed, carrier, "ice-ufrag"), attribute(parsed, carrier, "ice-pwd")
	// RFC 8839 section 5.4: 4 to 256 and 22 to 256 characters.
	if len(ufrag) < 4 || len(ufrag) > 256 || len(pwd) < 22 || len(pwd) > 256 {
		return badSDP("a=ice-ufrag or a=ice-pwd is missing or of the wrong length (RFC 8839 section 5.4)")
	}
	d.ufrags[ufrag] = true
	candidates := 0
	for _, m := range parsed.MediaDescriptions {
		if u, ok := m.Attribute("ice-ufrag"); ok {
			d.ufrags[u] = true
		}
		for _, a := range m.Attributes {
			if !a.IsICECandidate() {
				continue
			}
			candidates++
			if _, err := ice.UnmarshalCandidate(a.Value); err != nil && !ignorable(err) {
				return badSDP("a malformed a=candidate")
			}
		}
	}
	if candidates > maxRemoteCandidates {
		return badSDP("more than %d candidates", maxRemoteCandidates)
	}
	return checkFingerprint(attribute(parsed, carrier, "fingerprint"))
}

// ignorable reports whether Pion skips a candidate with that error.
func ignorable(err error) bool {
	return errors.Is(err, ice.ErrUnknownCandidateTyp) || errors.Is(err, ice.ErrDetermineNetworkType)
}

// bundleCarrier returns the section whose attributes count for the whole transport.
func bundleCarrier(parsed *sdp.SessionDescription) (*sdp.MediaDescription, error) {
	group, _ := parsed.Attribute(sdp.AttrKeyGroup)
	fields := strings.Fields(group)
	if len(fields) < 2 || fields[0] != "BUNDLE" {
		return parsed.MediaDescriptions[0], nil
	}
	for _, m := range parsed.MediaDescriptions {
		if mid, _ := m.Attribute(sdp.AttrKeyMID); mid == fields[1] {
			return m, nil
		}
	}
	return nil, badSDP("a=group:BUNDLE names a section that does not exist")
}

func attribute(parsed *sdp.SessionDescription, m *sdp.MediaDescription, key string) string {
	if v, ok := parsed.Attribute(key); ok && v != "" {
		return v
	}
	v, _ := m.Attribute(key)
	return v
}

// checkFingerprint accepts "sha-256 AB:CD:..." (RFC 8122 section 5).
func checkFingerprint(value string) error {
	algorithm, digest, ok := strings.Cut(value, " ")
	if !ok {
		return badSDP("a=fingerprint is missing or empty")
	}
	hash, err := fingerprint.HashFromString(algorithm)
	if err != nil {
		return badSDP("a=fingerprint names an unknown hash function")
	}
	sum, err := hex.DecodeString(strings.ReplaceAll(digest, ":", ""))
	if err != nil || len(sum) != hash.Size() {
		return badSDP("a=fingerprint has a malformed digest")
	}
	return nil
}
