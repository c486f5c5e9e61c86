package api

import (
	"net/http"

	"github.com/berthdev/berth/internal/berth"
)

// kind is what the API makes of one code: its status, and what /docs/errors says.
type kind struct {
	code    berth.Code
	status  int
	passes  bool   // the same request may succeed later
	title   string // the same for every occurrence (RFC 9457 section 3.1.3)
	meaning string
	remedy  string // what a client does
}

// problemKinds lists every code in the order of /docs/errors. This is the one mapping from codes to HTTP.
func problemKinds() []kind { return append(mistakes(), circumstances()...) }

// mistakes are refused however often they are sent.
func mistakes() []kind {
	return []kind{
		{
			berth.CodeInvalidArgument, http.StatusBadRequest, false, "The request is not valid",
			"A member of the body, a query parameter or the id in the path is unknown, missing, of the wrong type or out of range. `errors` names each field and says what would be right. Nothing was stored.",
			"Correct the request. Sending it again unchanged gives the same answer.",
		},
		{
			berth.CodeUnauthenticated, http.StatusUnauthorized, false, "No valid key",
			"The Authorization header is missing, or its key or token is wrong, expired or revoked.",
			"Send `Authorization: Bearer <key>` with a key that is in use. A rejoin takes the session's own rejoin token too, and following a topic a session token, which is good for ten minutes.",
		},
		{
			berth.CodeForbidden, http.StatusForbidden, false, "Not allowed with this key, or from here",
			"The key is good, but its role may not do this: workers are for operators, starting sessions is for tenants. Or a page of an origin that is not configured asked.",
			"Use a key of the other role, or add the origin to BERTH_ALLOWED_ORIGINS.",
		},
		{
			berth.CodeNotFound, http.StatusNotFound, false, "Not found",
			"There is nothing of that name. Sessions of other tenants look the same as none.",
			"Check the id and the path. An ended session can be read for 24 hours.",
		},
		{
			berth.CodeMethodNotAllowed, http.StatusMethodNotAllowed, false, "Method not allowed",
			"The path exists, but not with this method. The Allow header lists those that do.",
			"Use one of the methods of the Allow header.",
		},
		{
			berth.CodeConflict, http.StatusConflict, false, "Conflicts with what is stored",
			"The live session of that id is of another kind, or has as many peers as one may have. Or, with `retryable` true, a request with the same Idempotency-Key is still being worked on.",
			"Read the session and decide anew, or use another id. When `retryable` is true, send the same request again after Retry-After.",
		},
		{
			berth.CodeIdempotency, http.StatusUnprocessableEntity, false, "The Idempotency-Key was used for another body",
			"A request with this Idempotency-Key made a session within the last 24 hours, and its body said something else. Spacing, the order of members and the way a text is escaped do not matter.",
			"Use a fresh key for each new request, and the same body whenever one is repeated.",
		},
		{
			berth.CodeSessionEnded, http.StatusGone, false, "The session has ended",
			"The session is over for good; its tokens are worth nothing.",
			"Stop reconnecting. Start a new session if one is wanted; the id may be used again.",
		},
		{
			berth.CodeTooLarge, http.StatusRequestEntityTooLarge, false, "The body is too large",
			"A request body is at most 64 KiB, that of a worker's renewal 1 MiB. A message to a user is at most 60 KiB. The connection is closed.",
			"Send less. Metadata is at most 8 KiB.",
		},
		{
			berth.CodeUnsupportedMedia, http.StatusUnsupportedMediaType, false, "The body is not JSON",
			"A request body is `application/json`, in UTF-8 and without a content coding.",
			"Send `Content-Type: application/json`.",
		},
	}
}

// circumstances may be others later.
func circumstances() []kind {
	return []kind{
		{
			berth.CodeConcurrentSessions, http.StatusTooManyRequests, false, "The tenant has as many live sessions as it may",
			"The tenant's limit on concurrent sessions is reached. Waiting does not help until one of them ends, unless `retryable` is true: then sessions without a connected peer alone would clear it by Retry-After.",
			"End a session, or ask for a larger limit. Wait only when `retryable` is true.",
		},
		{
			berth.CodeStartRateLimited, http.StatusTooManyRequests, true, "The tenant starts sessions faster than it may",
			"The tenant's rate of starts is used up, and its burst too. The RateLimit fields say how many are left, and Retry-After when the next one may start.",
			"Ask again after Retry-After. Spread starts, or ask for a higher rate.",
		},
		{
			berth.CodeAtCapacity, http.StatusServiceUnavailable, true, "No free slot",
			"No worker that matches has the free slots that were asked for, and none came free while the request waited. This is never said because of a lock or a race.",
			"Ask again after Retry-After, or queue with `Prefer: wait=30`. Add workers if it lasts.",
		},
		{
			berth.CodeUnavailable, http.StatusServiceUnavailable, true, "Unavailable for the moment",
			"The database did not answer in time, this process is about to stop, or a session's owner is still in question. Whether a change happened, or a message was published, is not known.",
			"Send the same request after Retry-After. Repeating a start is safe with its id, or with an Idempotency-Key.",
		},
		{
			berth.CodeInternal, http.StatusInternalServerError, false, "Internal error",
			"A bug in Berth. Details are in its log, under the request id.",
			"Report it with the request id.",
		},
	}
}

// problemKind returns the kind of a code; codes that nobody knows are internal errors.
func problemKind(code berth.Code) kind {
	kinds := problemKinds()
	for _, k := range kinds {
		if k.code == code {
			return k
		}
	}
	return kinds[len(kinds)-1]
}
