package migrations_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// base is one valid row of each table, for statements that break one rule each.
const base = `
insert into berth.regions (id) values ('eu');
insert into berth.tenants (id) values ('t1');
insert into berth.workers (id, instance, region, capacity, signaling_url, control_url) values ('w1', 1, 'eu', 2, 'ws://', 'http://');
insert into berth.slots (worker_id, ordinal, instance, region, capacity) values ('w1', 1, 1, 'eu', 2), ('w1', 2, 1, 'eu', 2);
insert into berth.sessions (key, tenant_id, id, state, worker_id, instance, generation, handler, ttl_seconds,
        idle_timeout_seconds, created_at, placed_at, connect_by, expires_at)
    values (1, 't1', 'a', 'assigned', 'w1', 1, 1, 'echo', 60, 60, now(), now(), now(), now()),
           (2, 't1', 'b', 'assigned', 'w1', 1, 2, 'echo', 60, 60, now(), now(), now(), now());
insert into berth.peers (session, peer_id, role) values (1, 'p1', 'offer');
insert into berth.api_keys (id, role, tenant_id, slot, prefix, hash)
    values ('k1', 'tenant', 't1', 1, 'x', sha256('1')), ('k2', 'tenant', 't1', 2, 'x', sha256('2'));
update berth.slots set session = 1 where ordinal = 1;
insert into berth.gaps (worker_id, instance, evidence) values ('w1', 1, 'test');`

func TestSchemaRefuses(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	for name, test := range map[string]struct{ statement, constraint string }{
		"region with capitals":              {`insert into berth.regions (id) values ('EU')`, "regions_id_valid"},
		"region that spills to itself":      {`update berth.regions set spill = '{eu}'`, "regions_spill_elsewhere"},
		"tenant with a slash":               {`insert into berth.tenants (id) values ('a/b')`, "tenants_id_valid"},
		"negative quota":                    {`update berth.tenants set max_concurrent_sessions = -1`, "tenants_quota_not_negative"},
		"start rate of nothing":             {`update berth.tenants set start_rate = 0, start_burst = 1`, "tenants_start_rate_positive"},
		"start rate without a burst":        {`update berth.tenants set start_rate = 1`, "tenants_start_rate_with_burst"},
		"strategy that is not":              {`update berth.tenants set strategy = 'random'`, "tenants_strategy_known"},
		"ninth lane":                        {`insert into berth.tenant_lanes values ('t1', 8, 0)`, "tenant_lanes_lane_known"},
		"session of 65 slots":               {`update berth.sessions set slots = 65`, "sessions_slots_range"},
		"session that packs oddly":          {`update berth.sessions set strategy = 'random'`, "sessions_strategy_known"},
		"selector that is no object":        {`update berth.sessions set selector = '[]'`, "sessions_selector_object"},
		"labels that are no object":         {`update berth.workers set labels = '1'`, "workers_labels_object"},
		"negative handicap":                 {`update berth.slots set handicap = -1`, "slots_handicap_not_negative"},
		"short idempotency hash":            {`insert into berth.idempotency_keys values ('t1', 'k', 'x', 1, now())`, "idempotency_keys_hash_is_sha256"},
		"default region that is not":        {`update berth.tenants set default_region = 'mars'`, "tenants_default_region_fkey"},
		"third live key":                    {`insert into berth.api_keys values ('k3', 'tenant', 't1', 1, 'x', sha256('3'))`, "api_keys_two_live"},
		"third key's slot":                  {`insert into berth.api_keys values ('k3', 'tenant', 't1', 3, 'x', sha256('3'))`, "api_keys_slot_known"},
		"tenant key without tenant":         {`update berth.api_keys set tenant_id = null`, "api_keys_tenant_by_role"},
		"operator key of a tenant":          {`update berth.api_keys set role = 'operator'`, "api_keys_tenant_by_role"},
		"role that is not":                  {`insert into berth.api_keys values ('k4', 'root', 't1', 1, 'x', sha256('4'))`, "api_keys_role_known"},
		"key in clear":                      {`update berth.api_keys set hash = 'secret'`, "api_keys_hash_is_sha256"},
		"short signing seed":                {`insert into berth.signing_keys values ('k', 'x', sha256('1'))`, "signing_keys_seed_length"},
		"second secret of one purpose":      {`insert into berth.server_secrets (purpose, secret) values ('rejoin', sha256('a')), ('rejoin', sha256('b'))`, "server_secrets_one_each"},
		"short secret":                      {`insert into berth.server_secrets (purpose, secret) values ('rejoin', 'x')`, "server_secrets_long_enough"},
		"worker state that is not":          {`update berth.workers set state = 'happy'`, "workers_state_known"},
		"negative capacity":                 {`update berth.workers set capacity = -1`, "workers_capacity_range"},
		"capacity without bound":            {`update berth.workers set capacity = 2147483647`, "workers_capacity_range"},
		"drain without deadline":            {`update berth.workers set state = 'draining'`, "workers_drain_complete"},
		"deadline without drain":            {`update berth.workers set drain_deadline = now(), drain_started_at = now()`, "workers_drain_complete"},
		"drain without a start":             {`update berth.workers set state = 'draining', drain_deadline = now()`, "workers_drain_started"},
		"worker in no region":               {`update berth.workers set region = 'mars'`, "workers_region_fkey"},
		"slot zero":                         {`update berth.slots set ordinal = 0 where ordinal = 2`, "slots_ordinal_positive"},
		"slot twice":                        {`insert into berth.slots (worker_id, ordinal, instance, region, capacity) values ('w1', 1, 1, 'eu', 2)`, "slots_pkey"},
		"session in two slots":              {`update berth.slots set session = 1`, "slots_session"},
		"owner while awaiting":              {`update berth.sessions set state = 'awaiting_rejoin', connect_by = null, rejoin_by = now()`, "sessions_owner_by_state"},
		"no owner while active":             {`update berth.sessions set state = 'active', connect_by = null, worker_id = null, instance = null`, "sessions_owner_by_state"},
		"owner without instance":            {`update berth.sessions set instance = null`, "sessions_instance_with_owner"},
		"assigned without deadline":         {`update berth.sessions set connect_by = null`, "sessions_connect_by_assigned"},
		"awaiting without deadline":         {`update berth.sessions set state = 'awaiting_rejoin', connect_by = null, worker_id = null, instance = null`, "sessions_rejoin_by_awaiting"},
		"ended without reason":              {`update berth.sessions set state = 'ended', connect_by = null, worker_id = null, instance = null, ended_at = now()`, "sessions_reason_with_end"},
		"ended without time":                {`update berth.sessions set state = 'ended', connect_by = null, worker_id = null, instance = null`, "sessions_ended_complete"},
		"reason that is not":                {`update berth.sessions set state = 'ended', connect_by = null, worker_id = null, instance = null, ended_at = now(), ended_reason = 'bored'`, "sessions_reason_known"},
		"same live id twice":                {`update berth.sessions set id = 'a' where key = 2`, "sessions_live_id"},
		"kind that is not":                  {`update berth.sessions set kind = 'party'`, "sessions_kind_known"},
		"ttl under ten seconds":             {`update berth.sessions set ttl_seconds = 9`, "sessions_ttl_range"},
		"ttl over a day":                    {`update berth.sessions set ttl_seconds = 86401`, "sessions_ttl_range"},
		"idle timeout of nothing":           {`update berth.sessions set idle_timeout_seconds = 0`, "sessions_idle_range"},
		"tenant with sessions goes":         {`delete from berth.tenants`, "api_keys_tenant_fkey"},
		"peer half connected":               {`update berth.peers set connection_id = 'c'`, "peers_connected_complete"},
		"peer twice":                        {`insert into berth.peers (session, peer_id, role) values (1, 'p1', 'offer')`, "peers_pkey"},
		"second open gap of a worker":       {`insert into berth.gaps (worker_id, instance, evidence) values ('w1', 2, 'x')`, "gaps_open"},
		"gap both cleared and confirmed":    {`update berth.gaps set cleared_at = now(), confirmed_at = now()`, "gaps_one_end"},
		"second row of the reaper's memory": {`insert into berth.reaper_state (singleton) values (false)`, "reaper_state_single"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			withTx(t, db.Pool, func(tx pgx.Tx) {
				if _, err := tx.Exec(t.Context(), base); err != nil {
					t.Fatalf("base: %v", err)
				}
				_, err := tx.Exec(t.Context(), test.statement)
				var pgErr *pgconn.PgError
				if !errors.As(err, &pgErr) || pgErr.ConstraintName != test.constraint {
					t.Errorf("got %v, want %s", err, test.constraint)
				}
			})
		})
	}
}

func TestEndedIDMayBeUsedAgain(t *testing.T) {
	t.Parallel()
	db := databases.Database(t)
	withTx(t, db.Pool, func(tx pgx.Tx) {
		_, err := tx.Exec(t.Context(), base+`
			update berth.slots set session = null;
			update berth.sessions set state = 'ended', connect_by = null, worker_id = null, instance = null,
				ended_at = now(), ended_reason = 'left' where key = 1;
			update berth.sessions set id = 'a' where key = 2;`)
		if err != nil {
			t.Error(err)
		}
	})
}
