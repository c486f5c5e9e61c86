-- grant_viewer lets the role berth_viewer read everything but secrets: all views, and all tables, of four the columns
-- that are not secret. It does nothing where there is no such role. It runs after each change of the schema, since what
-- is made anew has no grants, and when the role is made.
create function berth.grant_viewer() returns boolean
language plpgsql as $$
declare
    c_secrets constant text[] := '{signing_keys.seed,server_secrets.secret,api_keys.hash,renewal_secrets.hash}';
    v_table   record;
begin
    if to_regrole('berth_viewer') is null then
        return false;
    end if;
    grant usage on schema berth to berth_viewer;
    for v_table in
        select c.relname as name, bool_or(a.secret) as secret,
               string_agg(quote_ident(a.attname), ', ') filter (where not a.secret) as columns
          from pg_class c
         cross join lateral (
               select attname, c.relname || '.' || attname = any (c_secrets) as secret from pg_attribute
                where attrelid = c.oid and attnum > 0 and not attisdropped) a
         where c.relnamespace = 'berth'::regnamespace and c.relkind in ('r', 'v', 'p')
         group by c.relname
    loop
        execute format('grant select %s on berth.%I to berth_viewer',
                       case when v_table.secret then '(' || v_table.columns || ')' end, v_table.name);
    end loop;
    return true;
end
$$;
