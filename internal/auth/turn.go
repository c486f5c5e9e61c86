package auth

import (
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // TURN REST fixes HMAC-SHA1, which is not broken as a MAC
	"encoding/base64"
	"log/slog"
	"strconv"
	"strings"
	"time"
)

// TURN says which STUN and TURN servers clients get.
type TURN struct {
	URLs    []string      // stun:, stuns:, turn: and turns: URLs (RFC 7064, 7065)
	Secrets []string      // shared with the TURN servers; the first signs
	TTL     time.Duration // life of a credential
}

// ICEServer is an entry of RTCConfiguration.iceServers, ready for a browser. It prints without its
// credential.
type ICEServer struct {
	URLs       []string `json:"urls"`
	Username   string   `json:"username,omitempty"`
	Credential string   `json:"credential,omitempty"`
}

// LogValue leaves the credential out.
func (s ICEServer) LogValue() slog.Value { return slog.StringValue(strings.Join(s.URLs, " ")) }

// ICEServers returns one entry for the STUN servers and one, with a credential for user, for the TURN
// servers. TURN servers are left out without a secret. user must be an id: it may hold no ":".
func (t TURN) ICEServers(user string, now time.Time) []ICEServer {
	servers := []ICEServer{} // an empty list in JSON, not null
	stun, turn := splitURLs(t.URLs)
	if len(stun) > 0 {
		servers = append(servers, ICEServer{URLs: stun})
	}
	if len(turn) > 0 && len(t.Secrets) > 0 {
		username, credential := TURNCredentials(t.Secrets[0], user, now.Add(t.TTL))
		servers = append(servers, ICEServer{URLs: turn, Username: username, Credential: credential})
	}
	return servers
}

// splitURLs tells STUN from TURN servers.
func splitURLs(urls []string) (stun, turn []string) {
	for _, u := range urls {
		if strings.HasPrefix(u, "turn") {
			turn = append(turn, u)
		} else {
			stun = append(stun, u)
		}
	}
	return stun, turn
}

// TURNCredentials makes a time-limited credential (draft-uberti-behave-turn-rest-00): the username is
// "<unix time of expiry>:<user>", the password its HMAC-SHA1 in base64. coturn (use-auth-secret) and pion/turn
// check it.
func TURNCredentials(secret, user string, expiry time.Time) (username, credential string) {
	username = strconv.FormatInt(expiry.Unix(), 10) + ":" + user
	h := hmac.New(sha1.New, []byte(secret))
	h.Write([]byte(username))
	return username, base64.StdEncoding.EncodeToString(h.Sum(nil))
}
