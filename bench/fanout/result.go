package fanout

import "time"

// Measurement is one load on one system, measured once. Rates are for a second and for all processes together.
type Measurement struct {
	Load   string `json:"load"`
	System string `json:"system"`

	Published float64 `json:"published_per_s"`
	Writes    float64 `json:"writes_per_s"`
	Missing   int64   `json:"missing"` // messages that did not come to a member
	P50       float64 `json:"p50_ms"`
	P99       float64 `json:"p99_ms"`
	Max       float64 `json:"max_ms"`
	Lost      int     `json:"lost"` // connections; what they miss is missing
	// AnswerP50 and AnswerP99 are how long publishers waited for an answer: the part of the way that the store is on.
	AnswerP50 float64 `json:"answer_p50_ms"`
	AnswerP99 float64 `json:"answer_p99_ms"`

	Received  float64 `json:"received_per_s"`
	Delivered float64 `json:"delivered_per_s"`
	Needed    float64 `json:"needed_per_s"` // by where the members are
	Broadcast float64 `json:"broadcast_per_s"`
	// ProcessesPerTopic is how many processes have members of a topic.
	ProcessesPerTopic float64 `json:"processes_per_topic"`
	// Ratio is received to delivered, and BroadcastRatio what it would be if each message went to each process.
	Ratio          float64 `json:"received_to_delivered"`
	BroadcastRatio float64 `json:"broadcast_to_delivered"`

	// CPU for each write, in microseconds: of the servers, and with their store's.
	CPU          float64 `json:"cpu_us_per_write"`
	CPUWithStore float64 `json:"cpu_with_store_us_per_write"`
	// AboveQuiet is that of servers and store, without what they use while no message flows.
	AboveQuiet float64 `json:"cpu_with_store_above_quiet_us_per_write"`
	// Shares of one core, in percent: while messages flow, and of the servers while none do.
	ServersPercent float64 `json:"servers_cpu_percent"`
	StorePercent   float64 `json:"store_cpu_percent"`
	ClientsPercent float64 `json:"clients_cpu_percent"`
	QuietPercent   float64 `json:"quiet_servers_cpu_percent"`
	QuietStore     float64 `json:"quiet_store_cpu_percent"`

	StoreWakes    float64 `json:"store_wakeups_per_s"`
	ListenerWakes float64 `json:"listener_wakeups_per_s"`
}

func newMeasurement(s shape, system string, processes int, a *audience, o observation) Measurement {
	published, needed, holders := 0.0, 0.0, 0.0
	for topic, n := range o.counts {
		published += float64(n)
		needed += float64(n) * float64(len(a.holders[topic]))
		holders += float64(len(a.holders[topic]))
	}
	seconds := o.publishing.Seconds()
	writes := float64(a.heard())
	m := Measurement{
		Load: s.name, System: system,
		Published: published / seconds, Writes: writes / seconds,
		Missing:           int64(published)*int64(s.members/s.topics) - a.heard(),
		Received:          (o.to.received - o.from.received) / seconds,
		Delivered:         (o.to.delivered - o.from.delivered) / seconds,
		Needed:            needed / seconds,
		Broadcast:         published * float64(processes) / seconds,
		ProcessesPerTopic: holders / float64(s.topics),
		StoreWakes:        float64(o.to.wakes-o.from.wakes) / seconds,
		ListenerWakes:     float64(o.to.listening-o.from.listening) / seconds,
	}
	if o.to.delivered < 0 { // nobody counted it
		m.Delivered = m.Needed
	}
	m.Ratio, m.BroadcastRatio = orZero(m.Received/m.Delivered), orZero(m.Broadcast/m.Delivered)
	m.P50, m.P99, m.Max = a.percentiles()
	m.AnswerP50, m.AnswerP99, _ = percentiles(o.answers)
	m.Lost = o.lost
	m.spend(o, writes)
	return m
}

// spend adds what CPU was used.
func (m *Measurement) spend(o observation, writes float64) {
	servers, store := o.to.servers-o.from.servers, o.to.store-o.from.store
	perWrite := func(d time.Duration) float64 { return orZero(float64(d) / float64(time.Microsecond) / writes) }
	m.CPU, m.CPUWithStore = perWrite(servers), perWrite(servers+store)
	percent := func(d time.Duration, from, to reading) float64 {
		return orZero(100 * float64(d) / float64(to.at.Sub(from.at)))
	}
	m.ServersPercent, m.StorePercent = percent(servers, o.from, o.to), percent(store, o.from, o.to)
	m.ClientsPercent = percent(o.to.own-o.from.own, o.from, o.to)
	m.QuietPercent = percent(o.quiet[1].servers-o.quiet[0].servers, o.quiet[0], o.quiet[1])
	m.QuietStore = percent(o.quiet[1].store-o.quiet[0].store, o.quiet[0], o.quiet[1])
	share := (m.ServersPercent + m.StorePercent - m.QuietPercent - m.QuietStore) / 100
	m.AboveQuiet = perWrite(time.Duration(share * float64(o.to.at.Sub(o.from.at))))
}
