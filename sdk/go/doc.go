// Package berth is the Go client of Berth, the placement control plane for stateful real-time sessions.
//
// A backend places sessions and hands placements out; a device or agent connects to the placement it was given:
//
//	client, err := berth.New(berth.Config{URL: "https://api.example.com", APIKey: key})
//	placement, err := client.CreateSession(ctx, berth.CreateSession{Handler: "echo"})
//	conn, err := client.Connect(ctx, placement, berth.ConnectConfig{Tracks: tracks, OnTrack: show})
//	defer conn.Close()
//
// # Calls
//
// Every call may be repeated: ids and keys that the caller leaves empty are drawn once, before the first attempt, so
// that a retry after a lost answer finds the session that the first attempt placed. A call is tried again after
// connection errors, 408, 425, 502, 503, 504 and session_start_rate_limited, at most Config.MaxRetries times, never
// earlier than the server's Retry-After and never into the caller's deadline: if the wait would be longer than
// Config.MaxRetryWait or the time that is left, the call returns at once with an *Error that says how long.
//
// While the API works on an earlier attempt (409 with retryable true), the call asks again for its answer, which is no
// retry, for as long as the API may take for that attempt. A start with CreateSession.Wait is not tried again at capacity after it
// waited; what interrupted the wait is tried again for what is left of it, at the end of the line.
//
// # Connections
//
// The placement says who owns the session; the owner is the authority on its media. A Conn is one peer's standing
// wish to be connected to whoever that is. Its states:
//
//	connecting --welcome and media flow--> connected --loss--> reconnecting --welcome and media flow--> connected
//	any of these --bye, final close code, gave up--> closed
//
// What ends a link decides what follows:
//
//	1000, 4404      the session ended               closed, ErrSessionEnded
//	4409            a newer connection took over    closed, ErrReplaced
//	4400 1002       the owner refused a message     closed, ErrRejected
//	1007 1009
//	4401            token refused                   one fresh token through rejoin, then closed, ErrUnauthorized
//	4410            moved, or a stale generation    rejoin now
//	1012, 1013      planned move, overload          the same URL, after the wait that the owner named
//	anything else   lost, silent, or media failed   the same URL once, then rejoin, saying that the owner is lost
//
// An owner that refuses a handshake twice without a welcome (1012, 1013, or HTTP 503 and 429) is asked about by a
// rejoin; 401 and 403 to the handshake are final.
//
// Waits have full jitter: uniform between zero and 500 ms, doubling up to 30 s, counted anew only after a link was
// stable for 30 s. A planned move leaves a media session's window at 500 ms, since it is silent until it is back, and
// a signaling-only one's at 8 s. A rejoin that the API refuses for good (410, 404, 401, 403) closes the connection,
// and so does ConnectConfig.GiveUpAfter without success.
//
// # Topics
//
// With ConnectConfig.Topics a connection listens, and after each loss goes on behind the last message that it heard:
// OnSubscribed says whether anything is missing. Offsets of a topic are dense, so nothing is missing that is not said.
// With ConnectConfig.SignalingOnly there is no media, and a connection costs a socket and three goroutines.
//
// # Links
//
// Each link has its own PeerConnection: after a loss the same tracks are added to a new one, and OnTrack is called
// again for what the new owner sends. The generation of Conn.Placement grows with every move.
//
// # What is not promised
//
// Media and messages of data channels sent during a loss are gone. OnState may skip states that were over before they could be
// delivered, but never the last one.
//
// # Concurrency
//
// One goroutine owns a connection's state; callbacks of Pion and the socket only enqueue. What topics bring is delivered by
// the goroutine that reads. Client and Conn are safe for
// concurrent use. Callbacks may call Conn's methods, Close included.
package berth
