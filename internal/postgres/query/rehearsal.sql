-- name: rehearsal_stage
select berth.stage_rehearsal($1::text);

-- name: rehearsal_strike
select berth.strike_rehearsal($1::text);
