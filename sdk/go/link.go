package berth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/pion/webrtc/v4"
)

const (
	protocol        = "berth.v1"
	maxFrameBytes   = 256 << 10 // the owner sends at most 128 KiB
	maxEvents       = 64        // when it is full, whoever enqueues waits
	maxEarly        = 64        // candidates kept until their description
	writeTimeout    = 5 * time.Second
	probeTimeout    = 3 * time.Second
	byeTimeout      = time.Second
	closeTimeout    = 5 * time.Second
	settleTime      = 500 * time.Millisecond
	defaultPingTime = 10 * time.Second
)

// link is one signaling socket with the PeerConnection negotiated over it. Conn.run owns it; its goroutines and Pion's
// callbacks only enqueue events.
type link struct {
	socket *websocket.Conn
	pc     *webrtc.PeerConnection
	events chan event
	gone   chan struct{} // closed at the end: nobody takes events any more
	wg     sync.WaitGroup

	openedAt   time.Time     // when the welcome came
	mediaAt    time.Time     // when media connected first; zero: not yet
	quiet      time.Duration // nothing from the owner for so long means that it is lost
	silence    *time.Timer   // fires after quiet
	media      *time.Timer   // fires when media took too long
	moved      *time.Timer   // fires when a planned move is due
	iceServers []ICEServer
	offers     int                       // sent so far; the last one's number is its id
	described  bool                      // a remote description is set
	early      []webrtc.ICECandidateInit // candidates that came before theirs
}

// event is one thing that happened to a link: exactly one member is set, or none when media changed its state.
type event struct {
	frame     *frame
	closed    *loss
	candidate *candidateFrame // a local one
	probe     *probe
}

// probe is the answer to a ping of the socket.
type probe struct{ err error }

// dial opens the socket and starts reading. The loss says why there is none.
func (c *Conn) dial(ctx context.Context, p Placement) (*link, *loss) {
	//nolint:bodyclose // because Dial closes the body of a failed upgrade itself, and a good one has none
	socket, resp, err := websocket.Dial(ctx, p.Owner.SignalingURL, &websocket.DialOptions{
		HTTPClient:   c.client.http,
		Subprotocols: []string{protocol, "token." + p.Token},
	})
	if err != nil {
		return nil, dialLoss(resp, err)
	}
	if socket.Subprotocol() != protocol {
		_ = socket.CloseNow()
		return nil, &loss{kind: lossDial, err: errors.New("the server does not speak " + protocol)}
	}
	socket.SetReadLimit(maxFrameBytes)
	k := &link{
		socket:  socket,
		events:  make(chan event, maxEvents),
		gone:    make(chan struct{}),
		silence: stoppedTimer(),
		media:   stoppedTimer(),
		moved:   stoppedTimer(),
	}
	// Close of the Conn must not cut the socket before its bye is written.
	reading := context.WithoutCancel(ctx)
	k.wg.Go(func() { c.read(reading, k) })
	return k, nil
}

func stoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// dialLoss maps a failed upgrade.
func dialLoss(resp *http.Response, err error) *loss {
	l := &loss{kind: lossDial, err: fmt.Errorf("connect to the owner: %w", err)}
	if resp == nil {
		return l
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		l.kind = lossRefused
		l.retryAfter, _ = parseRetryAfter(resp.Header, time.Now())
		l.retryAfter = min(l.retryAfter, maxPlannedWait)
	case http.StatusUnauthorized, http.StatusForbidden:
		l.kind = lossForbids
	}
	return l
}

// read enqueues frames until the socket fails, and delivers those about topics itself: while a callback runs nothing is read,
// so that the owner knows how fast this peer is. A frame that cannot be read is skipped: a newer owner may send frames
// that this client does not know.
func (c *Conn) read(ctx context.Context, k *link) {
	for {
		kind, data, err := k.socket.Read(ctx)
		if err != nil {
			k.enqueue(event{closed: closedLoss(err)})
			return
		}
		if kind != websocket.MessageText {
			continue
		}
		if f, err := parseFrame(data); err == nil && !c.topics.take(ctx, k, &f) {
			k.enqueue(event{frame: &f})
		}
	}
}

func (k *link) enqueue(e event) {
	select {
	case k.events <- e:
	case <-k.gone:
	}
}

// write sends a frame. It reports no error: a socket that cannot be written to cannot be read from either, and the
// reader knows the owner's close code.
func (k *link) write(ctx context.Context, frame any) {
	data, err := json.Marshal(frame)
	if err != nil {
		return // frames hold strings and numbers only
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	_ = k.socket.Write(ctx, websocket.MessageText, data)
}

// offer makes and sends an offer.
func (k *link) offer(ctx context.Context, options *webrtc.OfferOptions) error {
	offer, err := k.pc.CreateOffer(options)
	if err != nil {
		return fmt.Errorf("create offer: %w", err)
	}
	if err := k.pc.SetLocalDescription(offer); err != nil {
		return fmt.Errorf("set local description: %w", err)
	}
	k.offers++
	k.write(ctx, sdpFrame{Type: typeOffer, ID: k.offerID(), SDP: offer.SDP})
	return nil
}

func (k *link) offerID() string { return "offer-" + strconv.Itoa(k.offers) }

// ping asks the socket's other end for a pong and enqueues the result.
func (k *link) ping(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	k.wg.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		k.enqueue(event{probe: &probe{err: k.socket.Ping(ctx)}})
	})
}

// heard restarts the wait for the owner's next sign of life.
func (k *link) heard() { k.silence.Reset(k.quiet) }

// bye tells the owner that this peer leaves and waits a moment for it to close the socket.
func (k *link) bye(ctx context.Context) {
	k.write(ctx, plainFrame{Type: typeBye})
	timer := time.NewTimer(byeTimeout)
	defer timer.Stop()
	for {
		select {
		case e := <-k.events:
			if e.closed != nil {
				return
			}
		case <-timer.C:
			return
		}
	}
}

// closeLink ends a link. Its peer connection goes down beside the next link; only the end of the Conn waits for it.
func (c *Conn) closeLink(ctx context.Context, k *link) {
	if errors.Is(context.Cause(ctx), errClosed) {
		k.bye(ctx)
	}
	c.topics.end()
	close(k.gone)
	_ = k.socket.CloseNow()
	k.silence.Stop()
	k.media.Stop()
	k.moved.Stop()
	down := k.closeMedia()
	c.closing.Go(func() {
		if !awaitClose(down.all) {
			c.log.WarnContext(ctx, "media did not close", "session_id", c.Placement().ID)
		}
	})
	if ctx.Err() != nil {
		awaitClose(down.media)
	}
}

// teardown tells how far a link is down.
type teardown struct {
	media chan struct{} // no packet is sent any more
	all   chan struct{} // every goroutine of the link has ended
}

// closeMedia begins to close the PeerConnection. Closing may take for ever: Pion waits for callbacks of the user, and
// deadlocks if it is closed between DTLS and RTP. So nobody waits for it without a limit: what is not down by then is
// abandoned.
func (k *link) closeMedia() teardown {
	t := teardown{media: make(chan struct{}), all: make(chan struct{})}
	settle := k.settling()
	go func() {
		<-time.After(settle)
		if k.pc != nil {
			_ = k.pc.Close()
		}
		close(t.media)
		if k.pc != nil {
			_ = k.pc.GracefulClose()
		}
		k.wg.Wait()
		close(t.all)
	}()
	return t
}

// settling is how long it takes until Pion is surely past the instant in which it cannot be closed.
func (k *link) settling() time.Duration {
	if k.pc == nil {
		return 0
	}
	switch k.pc.ConnectionState() {
	case webrtc.PeerConnectionStateConnecting:
		return settleTime
	case webrtc.PeerConnectionStateConnected:
		if k.mediaAt.IsZero() {
			return settleTime
		}
		return max(0, settleTime-time.Since(k.mediaAt))
	default:
		return 0
	}
}

// awaitClose waits for closeTimeout at most.
func awaitClose(down <-chan struct{}) bool {
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case <-down:
		return true
	case <-timer.C:
		return false
	}
}
