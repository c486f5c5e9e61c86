package fanout

import (
	"github.com/berthdev/berth/bench/lab"
	"github.com/berthdev/berth/bench/load"
)

// Report is the result of a run. As it is, with every round, it is what is kept.
type Report struct {
	Machine  lab.Host      `json:"machine"`
	Settings Settings      `json:"settings"`
	Rounds   int           `json:"rounds"`
	Medians  []Measurement `json:"medians"`
	// Berth's numbers to centrifuge's, by load; none: one was not measured.
	Ratios map[string]Ratio `json:"ratios"`
	All    []Measurement    `json:"all"`
}

// Settings is how much was asked for.
type Settings struct {
	Processes int     `json:"processes"`
	Members   int     `json:"members"`
	Rate      float64 `json:"rate"`
	Pairs     int     `json:"pairs"`
	PairRate  float64 `json:"pair_rate"`
	Size      int     `json:"message_bytes"`
	Warmup    float64 `json:"warmup_seconds"`
	Window    float64 `json:"window_seconds"`
	History   int     `json:"centrifuge_history"`
}

// Ratio is Berth's numbers divided by centrifuge's.
type Ratio struct {
	CPU          float64 `json:"cpu"`
	CPUWithStore float64 `json:"cpu_with_store"`
	P50          float64 `json:"p50"`
	P99          float64 `json:"p99"`
}

func newReport(c Config, host lab.Host) *Report {
	return &Report{Machine: host, Rounds: c.Rounds, Settings: Settings{
		Processes: c.Processes, Members: c.Members, Rate: c.Rate, Pairs: c.Pairs, PairRate: c.PairRate, Size: c.Size,
		Warmup: c.Warmup.Seconds(), Window: c.Window.Seconds(), History: c.History,
	}}
}

func (r *Report) add(m Measurement) {
	r.All = append(r.All, m)
	r.Medians, r.Ratios = nil, map[string]Ratio{}
	for _, name := range Loads() {
		var of [2]*Measurement
		for i, system := range Systems() {
			if of[i] = r.median(name, system); of[i] != nil {
				r.Medians = append(r.Medians, *of[i])
			}
		}
		if berth, other := of[0], of[1]; berth != nil && other != nil {
			r.Ratios[name] = Ratio{
				CPU: orZero(berth.CPU / other.CPU), CPUWithStore: orZero(berth.CPUWithStore / other.CPUWithStore),
				P50: orZero(berth.P50 / other.P50), P99: orZero(berth.P99 / other.P99),
			}
		}
	}
}

// median of the rounds of a load on a system; nil if there are none.
func (r *Report) median(name, system string) *Measurement {
	var rounds []Measurement
	for _, m := range r.All {
		if m.Load == name && m.System == system {
			rounds = append(rounds, m)
		}
	}
	if len(rounds) == 0 {
		return nil
	}
	m := Measurement{Load: name, System: system}
	for i, number := range m.numbers() {
		var values []float64
		for k := range rounds {
			values = append(values, *rounds[k].numbers()[i])
		}
		*number = load.Median(values)
	}
	for _, round := range rounds {
		m.Missing += round.Missing // a message that is missing once is missing
		m.Lost += round.Lost
	}
	return &m
}

// numbers are all that has a median.
func (m *Measurement) numbers() []*float64 {
	return []*float64{
		&m.Published, &m.Writes, &m.P50, &m.P99, &m.Max, &m.AnswerP50, &m.AnswerP99,
		&m.Received, &m.Delivered, &m.Needed, &m.Broadcast, &m.ProcessesPerTopic, &m.Ratio, &m.BroadcastRatio,
		&m.CPU, &m.CPUWithStore, &m.AboveQuiet, &m.ServersPercent, &m.StorePercent, &m.ClientsPercent, &m.QuietPercent, &m.QuietStore,
		&m.StoreWakes, &m.ListenerWakes,
	}
}

// Short is the medians by system.
type Short struct {
	Fanout map[string]ShortSystem `json:"fanout"`
}

// ShortSystem is the large topic, and the pairs beside it.
type ShortSystem struct {
	ShortMeasurement

	Pairs *ShortMeasurement `json:"two_member_topics,omitempty"`
}

// ShortMeasurement is one load on one system.
type ShortMeasurement struct {
	Writes       float64 `json:"writes_per_s"`
	CPU          float64 `json:"cpu_us_per_write"`
	CPUWithStore float64 `json:"cpu_with_store_us_per_write"`
	P50          float64 `json:"p50_ms"`
	P99          float64 `json:"p99_ms"`
	Received     float64 `json:"received"`  // a second, by all processes
	Delivered    float64 `json:"delivered"` // as received
	Broadcast    float64 `json:"broadcast"` // as received, if each message went to each process
	Wakes        float64 `json:"wakeups_per_s"`
	Missing      int64   `json:"missing"`
}

// Short leaves out rounds and machine: the form of --json.
func (r *Report) Short() any {
	short := Short{Fanout: map[string]ShortSystem{}}
	for _, system := range Systems() {
		var s ShortSystem
		large, pairs := r.median(Large, system), r.median(Pairs, system)
		if pairs != nil {
			of := pairs.short()
			s.Pairs = &of
		}
		if large != nil {
			s.ShortMeasurement = large.short()
		}
		if large != nil || pairs != nil {
			short.Fanout[system] = s
		}
	}
	return short
}

func (m *Measurement) short() ShortMeasurement {
	return ShortMeasurement{
		Writes: m.Writes, CPU: m.CPU, CPUWithStore: m.CPUWithStore, P50: m.P50, P99: m.P99,
		Received: m.Received, Delivered: m.Delivered, Broadcast: m.Broadcast, Wakes: m.StoreWakes, Missing: m.Missing,
	}
}
