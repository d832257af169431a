/* snowid--0.1.sql: the SQL surface of snowid 0.1; frozen once released */

\echo Use "CREATE EXTENSION snowid" to load this file. \quit

-- Does the server run a library that has what follows?

CREATE FUNCTION snowid_require_library(version text) RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE C STRICT;
SELECT snowid_require_library('0.1'::pg_catalog.text);
DROP FUNCTION snowid_require_library(text);

-- Making keys

CREATE FUNCTION snowid_next() RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION snowid_next() IS
    'the next key: 64 bits, positive, greater than every key this server made before; waits up to snowid.max_wait, then an error that says why';

CREATE FUNCTION snowid_next_batch_support(internal) RETURNS internal
    AS 'MODULE_PATHNAME' LANGUAGE C STRICT;
COMMENT ON FUNCTION snowid_next_batch_support(internal) IS
    'tells the planner how many rows snowid_next_batch() returns';

CREATE FUNCTION snowid_next_batch(count bigint) RETURNS SETOF bigint
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
    ROWS 1000 SUPPORT snowid_next_batch_support;
COMMENT ON FUNCTION snowid_next_batch(bigint) IS
    'the next count keys (0 or more), increasing, in blocks of consecutive numbers; errors as snowid_next()';

CREATE FUNCTION snowid_advance(id bigint) RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION snowid_advance(bigint) FROM PUBLIC;
COMMENT ON FUNCTION snowid_advance(bigint) IS
    'makes every later key greater than id, a key by this server''s layout that leads the clock by snowid.max_jump at most; keys wait until the clock is within snowid.max_lead of it';

CREATE FUNCTION snowid_accept_clock() RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION snowid_accept_clock() FROM PUBLIC;
COMMENT ON FUNCTION snowid_accept_clock() IS
    'takes the clock as right after it jumped ahead by more than snowid.max_jump, so that keys go on from there';

CREATE FUNCTION snowid_accept_layout() RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION snowid_accept_layout() FROM PUBLIC;
COMMENT ON FUNCTION snowid_accept_layout() IS
    'consents to the layout in the settings where it is not the one that made this server''s last keys';

-- Keys taken apart and put together, by this server's layout ...

CREATE FUNCTION snowid_decode(id bigint, OUT created_at timestamptz,
        OUT datacenter_id int, OUT worker_id int, OUT sequence int)
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_decode(bigint) IS
    'the parts of a key by this server''s layout, the time in ms; a field of no width is null';

CREATE FUNCTION snowid_timestamp(id bigint) RETURNS timestamptz
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_timestamp(bigint) IS
    'the time of a key by this server''s layout, in ms';

CREATE FUNCTION snowid_min(ts timestamptz) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_min(timestamptz) IS
    'the least key of the millisecond of ts by this server''s layout; an error outside its range';

CREATE FUNCTION snowid_max(ts timestamptz) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_max(timestamptz) IS
    'the greatest key of the millisecond of ts by this server''s layout; an error outside its range';

CREATE FUNCTION snowid_encode(created_at timestamptz, datacenter_id int,
        worker_id int, sequence int) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_encode(timestamptz, int, int, int) IS
    'the key with these parts by this server''s layout; 0 for a field of no width; an error where one does not fit';

CREATE FUNCTION snowid_bits(id bigint) RETURNS text
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_bits(bigint) IS
    'the 64 bits, this server''s fields apart: sign, timestamp, datacenter, worker, sequence';

-- ... and by a layout that is named or spelled out

CREATE FUNCTION snowid_decode(id bigint, layout text,
        OUT created_at timestamptz, OUT datacenter_id int, OUT worker_id int,
        OUT sequence int)
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_decode(bigint, text) IS
    'the parts of a key by a layout: a name that snowid_layouts() lists, or such as ''epoch=2020-01-01T00:00:00Z datacenter=5 worker=5 sequence=12''';

CREATE FUNCTION snowid_timestamp(id bigint, layout text) RETURNS timestamptz
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_timestamp(bigint, text) IS
    'the time of a key by a layout, in ms';

CREATE FUNCTION snowid_min(ts timestamptz, layout text) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_min(timestamptz, text) IS
    'the least key of the millisecond of ts by a layout';

CREATE FUNCTION snowid_max(ts timestamptz, layout text) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_max(timestamptz, text) IS
    'the greatest key of the millisecond of ts by a layout';

CREATE FUNCTION snowid_encode(created_at timestamptz, datacenter_id int,
        worker_id int, sequence int, layout text) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_encode(timestamptz, int, int, int, text) IS
    'the key with these parts by a layout';

CREATE FUNCTION snowid_bits(id bigint, layout text) RETURNS text
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_bits(bigint, text) IS
    'the 64 bits, the fields of a layout apart';

CREATE FUNCTION snowid_layouts(OUT name text, OUT epoch timestamptz,
        OUT tick_ms int, OUT timestamp_bits int, OUT datacenter_bits int,
        OUT worker_bits int, OUT sequence_bits int, OUT last_day date)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE ROWS 6;
COMMENT ON FUNCTION snowid_layouts() IS
    'the layouts that have a name: epoch, length of a timestamp step in ms, widths in bits, last day (UTC)';

-- This server

CREATE FUNCTION snowid_status(OUT datacenter_id int, OUT worker_id int,
        OUT worker_id_source text, OUT is_open boolean, OUT reason text,
        OUT layout text, OUT epoch timestamptz, OUT timestamp_bits int,
        OUT datacenter_bits int, OUT worker_bits int, OUT sequence_bits int,
        OUT sequence_start text, OUT last_day date, OUT last_key bigint,
        OUT last_key_time timestamptz, OUT lead_ms float8,
        OUT ceiling timestamptz, OUT keys bigint, OUT waits bigint,
        OUT wait_ms float8, OUT clock_steps_back bigint, OUT errors bigint,
        OUT registry text, OUT registry_error text,
        OUT registry_ok_at timestamptz, OUT lease_ceiling timestamptz,
        OUT spare_worker_id int, OUT spare_uses bigint)
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL SAFE;
COMMENT ON FUNCTION snowid_status() IS
    'the state of this server''s generator: its pair, whether it makes keys or why not, layout, last key, its lead over the clock in ms, the time up to which keys are reserved, counters since the start; where the worker ID comes from Redis, the claim''s state, the last error and when Redis last answered; and the spare worker ID, with how often it came into use';
REVOKE ALL ON FUNCTION snowid_status() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION snowid_status() TO pg_monitor;

-- The registry in Redis

CREATE FUNCTION snowid_claims(OUT worker_id int, OUT node_name text,
        OUT since timestamptz, OUT last_seen timestamptz,
        OUT ceiling timestamptz, OUT lease_left_ms bigint, OUT state text,
        OUT is_me boolean)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 32;
REVOKE ALL ON FUNCTION snowid_claims() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION snowid_claims() TO pg_monitor;
COMMENT ON FUNCTION snowid_claims() IS
    'the claims of this server''s datacenter in Redis: times by Redis'' clock, the ceiling by the owner''s; state is live, silent (not heard of for two intervals), ended (a lease), lapsed (a lease that ended a lease ago: anyone may get the ID) or revoked; waits up to snowid.redis_timeout';

CREATE FUNCTION snowid_release(datacenter_id int, worker_id int,
        force boolean DEFAULT false) RETURNS text
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION snowid_release(int, int, boolean) FROM PUBLIC;
COMMENT ON FUNCTION snowid_release(int, int, boolean) IS
    'gives a worker ID back whose server is gone for good: ''released''; of a live server only by force, and then ''revoked'': it is free when that server has let go of it, or was not heard of for two intervals';

CREATE FUNCTION snowid_reclaim() RETURNS int
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION snowid_reclaim() FROM PUBLIC;
COMMENT ON FUNCTION snowid_reclaim() IS
    'claims another worker ID for this server and gives the present one back, without a restart; returns the new one, with which keys go on after snowid.max_lead';

-- Many keys as one value

CREATE FUNCTION snowid_next_array(count bigint) RETURNS bigint[]
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION snowid_next_array(bigint) IS
    'the next count keys (0 to 134217724), increasing, in one array: 8 bytes a key; otherwise as snowid_next_batch()';

CREATE FUNCTION snowid_next_block(count bigint) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION snowid_next_block(bigint) IS
    'the first of count keys that are consecutive integers, all of one millisecond and all the caller''s; count from 1 to the keys of a millisecond, 4096 by the default layout; waits as snowid_next()';

-- Keys as text

CREATE FUNCTION snowid_to_base32(id bigint) RETURNS text
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_to_base32(bigint) IS
    'a key as 13 digits of base32 (Douglas Crockford''s: 0 to 9, A to Z without I, L, O, U), as TSIDs are written; sorts as keys do under COLLATE "C" and those of most languages (not Czech''s, which has CH behind H)';

CREATE FUNCTION snowid_from_base32(base32 text) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_from_base32(text) IS
    'the key of 13 digits of base32, 7ZZZZZZZZZZZZ at most: in either case, O as 0, I and L as 1, hyphens left out';

CREATE FUNCTION snowid_to_base62(id bigint) RETURNS text
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_to_base62(bigint) IS
    'a key as 11 digits of base62 (0 to 9, A to Z, a to z); sorts as keys do under COLLATE "C" only';

CREATE FUNCTION snowid_from_base62(base62 text) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_from_base62(text) IS
    'the key of 11 digits of base62, AzL8n0Y58m7 at most';

-- Keys as serial numbers, by this server's layout ...

CREATE FUNCTION snowid_serial(code text, id bigint, utc_offset text DEFAULT 'Z',
        check_digits boolean DEFAULT false) RETURNS text
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_serial(text, bigint, text, boolean) IS
    'a key as a serial number: code (up to 8 characters 0 to 9, A to Z), time at a fixed offset from UTC (yyyymmddhhmissms), datacenter, worker and sequence with leading zeros; two check digits (ISO 7064 MOD 97-10) on request; sorts as keys do under every collation';

CREATE FUNCTION snowid_serial_id(serial text, code text, utc_offset text DEFAULT 'Z',
        check_digits boolean DEFAULT false) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_serial_id(text, text, text, boolean) IS
    'the key of a serial number that snowid_serial() wrote with the same code, offset and check digits';

CREATE FUNCTION snowid_next_serial(code text, utc_offset text DEFAULT 'Z',
        check_digits boolean DEFAULT false) RETURNS text
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION snowid_next_serial(text, text, boolean) IS
    'the next key as a serial number, as snowid_serial() writes it; waits as snowid_next()';

-- ... and by a layout that is named or spelled out

CREATE FUNCTION snowid_serial(code text, id bigint, utc_offset text, layout text,
        check_digits boolean DEFAULT false) RETURNS text
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_serial(text, bigint, text, text, boolean) IS
    'a key as a serial number by a layout';

CREATE FUNCTION snowid_serial_id(serial text, code text, utc_offset text, layout text,
        check_digits boolean DEFAULT false) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_serial_id(text, text, text, text, boolean) IS
    'the key of a serial number by a layout';

-- The type: a bigint that is written in base32

CREATE TYPE snowid;

CREATE FUNCTION snowid_in(cstring) RETURNS snowid
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_in(cstring) IS
    '13 digits of base32 as snowid_from_base32() reads them, but all 64 bits, FZZZZZZZZZZZZ at most';

CREATE FUNCTION snowid_out(snowid) RETURNS cstring
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_out(snowid) IS '13 digits of base32';

CREATE FUNCTION snowid_recv(internal) RETURNS snowid
    AS 'int8recv' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_recv(internal) IS 'the 8 bytes of a bigint';

CREATE FUNCTION snowid_send(snowid) RETURNS bytea
    AS 'int8send' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_send(snowid) IS 'the 8 bytes of a bigint';

-- Of the category of numbers, so that it and a bigint make a bigint in
-- COALESCE, CASE and UNION.
CREATE TYPE snowid (
    INPUT = snowid_in, OUTPUT = snowid_out,
    RECEIVE = snowid_recv, SEND = snowid_send,
    LIKE = bigint, CATEGORY = 'N');
COMMENT ON TYPE snowid IS
    'a key: stored as a bigint, written as 13 digits of base32, such as 0ARYZVZXW377R, which JSON quotes';

CREATE CAST (snowid AS bigint) WITHOUT FUNCTION AS IMPLICIT;
CREATE CAST (bigint AS snowid) WITHOUT FUNCTION AS ASSIGNMENT;

-- All that compares is core's, under new names.  Across types = may hash, but
-- not merge: it would then be a part of equivalence classes, which look for
-- indexes of this family alone, and a join would not find a bigint's.
CREATE FUNCTION snowid_compare_support(internal) RETURNS internal
    AS 'MODULE_PATHNAME' LANGUAGE C STRICT;
COMMENT ON FUNCTION snowid_compare_support(internal) IS
    'lets an index of a bigint column answer its comparison with a snowid';

DO $do$
DECLARE
    types record;
    op record;
BEGIN
    FOR types IN
        SELECT * FROM (VALUES
            ('snowid', 'snowid', '8', ', HASHES, MERGES'),
            ('snowid', 'bigint', '8', ', HASHES'), ('bigint', 'snowid', '8', ', HASHES'),
            ('snowid', 'int', '84', ''), ('int', 'snowid', '48', ''),
            ('snowid', 'smallint', '82', ''), ('smallint', 'snowid', '28', '')) v (l, r, suffix, joins)
    LOOP
        FOR op IN
            SELECT * FROM (VALUES
                ('=', 'eq', '=', '<>', 'eq'), ('<>', 'ne', '<>', '=', 'neq'),
                ('<', 'lt', '>', '>=', 'scalarlt'), ('>', 'gt', '<', '<=', 'scalargt'),
                ('<=', 'le', '>=', '>', 'scalarle'), ('>=', 'ge', '<=', '<', 'scalarge')) v (name, f, commutator, negator, sel)
        LOOP
            EXECUTE format('CREATE FUNCTION snowid_%s(%s, %s) RETURNS boolean
                    AS %L LANGUAGE internal IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE %s',
                op.f, types.l, types.r, 'int' || types.suffix || op.f,
                CASE WHEN 'bigint' IN (types.l, types.r) THEN 'SUPPORT snowid_compare_support' END);
            EXECUTE format('COMMENT ON FUNCTION snowid_%s(%s, %s) IS %L',
                op.f, types.l, types.r, 'implementation of ' || op.name || ' operator');
            EXECUTE format('CREATE OPERATOR %s (FUNCTION = snowid_%s, LEFTARG = %s, RIGHTARG = %s,
                    COMMUTATOR = %s, NEGATOR = %s, RESTRICT = %ssel, JOIN = %sjoinsel %s)',
                op.name, op.f, types.l, types.r, op.commutator, op.negator, op.sel, op.sel,
                CASE op.name WHEN '=' THEN types.joins END);
        END LOOP;
    END LOOP;
END $do$;

-- For the foreign key of a bigint column to a snowid, which compares bigints by
-- the family of the index, too.  Core's = may not be in a second family: the
-- planner would no longer see that a bigint and an integer that are equal sort
-- alike.
CREATE FUNCTION snowid_eq(bigint, bigint) RETURNS boolean
    AS 'int8eq' LANGUAGE internal IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE;
COMMENT ON FUNCTION snowid_eq(bigint, bigint) IS 'implementation of #= operator';
CREATE OPERATOR #= (FUNCTION = snowid_eq, LEFTARG = bigint, RIGHTARG = bigint,
    COMMUTATOR = #=, RESTRICT = eqsel, JOIN = eqjoinsel);
COMMENT ON OPERATOR #= (bigint, bigint) IS
    'the equality of bigints in the operator families of snowid; use =';

CREATE OPERATOR CLASS snowid_ops DEFAULT FOR TYPE snowid USING btree AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 (snowid, snowid) btint8cmp(bigint, bigint),
    FUNCTION 2 (snowid, snowid) btint8sortsupport(internal),
    FUNCTION 4 (snowid, snowid) btequalimage(oid);
CREATE OPERATOR CLASS snowid_ops DEFAULT FOR TYPE snowid USING hash AS
    OPERATOR 1 =,
    FUNCTION 1 (snowid, snowid) hashint8(bigint),
    FUNCTION 2 (snowid, snowid) hashint8extended(bigint, bigint);
ALTER OPERATOR FAMILY snowid_ops USING btree ADD
    OPERATOR 3 #= (bigint, bigint),
    FUNCTION 1 (bigint, bigint) btint8cmp(bigint, bigint);
ALTER OPERATOR FAMILY snowid_ops USING hash ADD
    OPERATOR 1 = (snowid, bigint), OPERATOR 1 = (bigint, snowid),
    OPERATOR 1 #= (bigint, bigint),
    FUNCTION 1 (bigint, bigint) hashint8(bigint),
    FUNCTION 2 (bigint, bigint) hashint8extended(bigint, bigint);

DO $do$
DECLARE
    types record;
BEGIN
    FOR types IN
        SELECT * FROM (VALUES
            ('snowid', 'bigint', 'btint8cmp(bigint, bigint)'), ('bigint', 'snowid', 'btint8cmp(bigint, bigint)'),
            ('snowid', 'int', 'btint84cmp(bigint, int)'), ('int', 'snowid', 'btint48cmp(int, bigint)'),
            ('snowid', 'smallint', 'btint82cmp(bigint, smallint)'),
            ('smallint', 'snowid', 'btint28cmp(smallint, bigint)')) v (l, r, cmp)
    LOOP
        EXECUTE format('ALTER OPERATOR FAMILY snowid_ops USING btree ADD
                OPERATOR 1 < (%1$s, %2$s), OPERATOR 2 <= (%1$s, %2$s), OPERATOR 3 = (%1$s, %2$s),
                OPERATOR 4 >= (%1$s, %2$s), OPERATOR 5 > (%1$s, %2$s), FUNCTION 1 (%1$s, %2$s) %3$s',
            types.l, types.r, types.cmp);
    END LOOP;
END $do$;

CREATE FUNCTION snowid_smaller(snowid, snowid) RETURNS snowid
    AS 'int8smaller' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_smaller(snowid, snowid) IS 'the smaller of two';
CREATE FUNCTION snowid_larger(snowid, snowid) RETURNS snowid
    AS 'int8larger' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_larger(snowid, snowid) IS 'the larger of two';

CREATE AGGREGATE min(snowid) (SFUNC = snowid_smaller, STYPE = snowid,
    COMBINEFUNC = snowid_smaller, SORTOP = <, PARALLEL = SAFE);
COMMENT ON AGGREGATE min(snowid) IS 'the first key';
CREATE AGGREGATE max(snowid) (SFUNC = snowid_larger, STYPE = snowid,
    COMBINEFUNC = snowid_larger, SORTOP = >, PARALLEL = SAFE);
COMMENT ON AGGREGATE max(snowid) IS 'the last key';

-- Partitions by time

CREATE FUNCTION snowid_partition_commands(parent regclass, step interval, ahead int,
        keep interval DEFAULT NULL) RETURNS SETOF text
    LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- an interval compares a month as 30 days
    unit text := CASE WHEN step = interval '1 day' THEN 'day' WHEN step = interval '1 week' THEN 'week'
        WHEN step = interval '1 month' AND extract(month FROM step) = 1 THEN 'month' END;
    this_period timestamp := date_trunc(unit, now() AT TIME ZONE 'UTC');
    keys text := (SELECT quote_ident(nspname) FROM pg_extension e JOIN pg_namespace n ON n.oid = extnamespace
                  WHERE extname = 'snowid');
    table_schema name;
    table_name name;
    table_owner name;
    key_type regtype;
    default_part oid;
    bounds text;
    bound text[];
    part regclass;
    parts regclass[] := '{}';
    lows bigint[] := '{}';     -- of the partitions, in their order; -1: no bound
    highs bigint[] := '{}';    -- excluded; NULL: no bound
    low bigint;
    high bigint;
    period timestamp;
    oldest timestamp;
    part_name text;
BEGIN
    IF parent IS NULL OR step IS NULL OR ahead IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '22004', MESSAGE = 'parent, step and ahead must not be null';
    ELSIF unit IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('step cannot be %s', step),
            DETAIL = 'It is one day, one week or one month.';
    ELSIF ahead NOT BETWEEN 0 AND 1000 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'ahead must be from 0 to 1000';
    ELSIF keep < interval '0' THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'keep must not be negative';
    END IF;
    SELECT nspname, relname, pg_get_userbyid(relowner), atttypid, partdefid
    INTO table_schema, table_name, table_owner, key_type, default_part
    FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace JOIN pg_partitioned_table ON partrelid = c.oid
        JOIN pg_attribute ON attrelid = c.oid AND attnum = partattrs[0]
    WHERE c.oid = parent AND partstrat = 'r' AND partnatts = 1
        AND (atttypid = 'bigint'::regtype OR atttypid = to_regtype(keys || '.snowid'));
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '42809', MESSAGE = format('%s is not partitioned by range of a key', parent),
            DETAIL = 'Its partition key is to be one column of type bigint or snowid.';
    ELSIF default_part <> 0 THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('%s has the default partition %s', parent, default_part::regclass),
            DETAIL = 'A partition for keys that it holds cannot be made, and none without reading it under a lock.',
            HINT = 'Detach it, make the partitions, and insert its rows again.';
    END IF;

    FOR part, bounds IN
        SELECT c.oid, pg_get_expr(relpartbound, c.oid) FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid
        WHERE inhparent = parent AND NOT inhdetachpending
    LOOP
        bound := regexp_match(bounds, '^FOR VALUES FROM \(''?(-?\w+)''?\) TO \(''?(-?\w+)''?\)');
        FOR i IN 1..2 LOOP
            IF bound[i] IN ('MINVALUE', 'MAXVALUE') THEN
                bound[i] := CASE bound[i] WHEN 'MINVALUE' THEN '-1' END;
            ELSIF key_type <> 'bigint'::regtype THEN
                EXECUTE format('SELECT $1::%s::bigint', key_type) INTO low USING bound[i];
                bound[i] := low;
            END IF;
        END LOOP;
        parts := parts || part;
        lows := lows || bound[1]::bigint;
        highs := highs || bound[2]::bigint;
    END LOOP;

    -- from where the first one ends, so that no gap stays; never before "keep"
    EXECUTE format('SELECT date_trunc($1, %s.snowid_timestamp(min(h)) AT TIME ZONE $3) FROM unnest($2) h', keys)
        INTO period USING unit, highs, 'UTC';
    period := least(period, this_period);
    IF keep IS NOT NULL THEN
        oldest := date_trunc(unit, (now() - keep) AT TIME ZONE 'UTC');
        period := greatest(period, oldest);
    END IF;
    WHILE period <= this_period + ahead * step LOOP
        EXECUTE format('SELECT %1$s.snowid_min($1), %1$s.snowid_min($2)', keys)
            INTO low, high USING period AT TIME ZONE 'UTC', (period + step) AT TIME ZONE 'UTC';
        part := NULL;
        SELECT p, ARRAY[l, h] INTO part, bound FROM unnest(parts, lows, highs) u(p, l, h)
        WHERE (l < high AND (h > low OR h IS NULL)) ORDER BY l LIMIT 1;
        IF part IS NULL THEN
            part_name := table_name || to_char(period, CASE unit WHEN 'day' THEN '_YYYYMMDD' WHEN 'week' THEN '_IYYY"w"IW' ELSE '_YYYYMM' END);
            IF octet_length(part_name) > 63 THEN
                RAISE EXCEPTION USING ERRCODE = '42622', MESSAGE = format('the name of a partition is too long: %s', part_name);
            END IF;
            -- not PARTITION OF, which would lock out the table's readers
            RETURN NEXT format('CREATE TABLE %1$I.%2$I (LIKE %3$s INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING GENERATED INCLUDING STORAGE INCLUDING COMPRESSION); '
                'ALTER TABLE %1$I.%2$I OWNER TO %4$I; '
                'ALTER TABLE %3$s ATTACH PARTITION %1$I.%2$I FOR VALUES FROM (%5$s) TO (%6$s)',
                table_schema, part_name, parent, table_owner, low, high);
        ELSIF bound[1]::bigint > low OR bound[2]::bigint < high THEN
            RAISE EXCEPTION USING ERRCODE = '42P17',
                MESSAGE = format('partition %s holds some keys of the %s of %s, and not all', part, unit, period::date),
                DETAIL = format('It is from %s to %s, and the %s from %s to %s.', bound[1], bound[2], unit, low, high);
        END IF;
        period := period + step;
    END LOOP;

    IF keep IS NOT NULL THEN
        EXECUTE format('SELECT %s.snowid_min($1)', keys) INTO low USING oldest AT TIME ZONE 'UTC';
        FOR part IN SELECT p FROM unnest(parts, highs) u(p, h) WHERE h <= low ORDER BY h LOOP
            RETURN NEXT format('ALTER TABLE %s DETACH PARTITION %s CONCURRENTLY', parent, part);
        END LOOP;
    END IF;
END $$;
COMMENT ON FUNCTION snowid_partition_commands(regclass, interval, int, interval) IS
    'the commands of snowid_make_partitions(), with DETACH PARTITION CONCURRENTLY, for \gexec of psql outside of a transaction';

CREATE PROCEDURE snowid_make_partitions(parent regclass, step interval, ahead int,
        keep interval DEFAULT NULL)
    LANGUAGE plpgsql AS $$
DECLARE
    commands text[];
    command text;
BEGIN
    -- no search_path of its own: a procedure that has one cannot COMMIT
    EXECUTE pg_catalog.format('SELECT ARRAY(SELECT %I.snowid_partition_commands($1, $2, $3, $4))',
        (SELECT n.nspname FROM pg_catalog.pg_extension e JOIN pg_catalog.pg_namespace n
            ON n.oid OPERATOR(pg_catalog.=) e.extnamespace WHERE e.extname OPERATOR(pg_catalog.=) 'snowid'))
        INTO commands USING parent, step, ahead, keep;
    FOREACH command IN ARRAY commands LOOP
        -- a procedure cannot detach concurrently
        EXECUTE pg_catalog.regexp_replace(command, '^(ALTER TABLE .*) CONCURRENTLY$', '\1');
        COMMIT;
    END LOOP;
END $$;
COMMENT ON PROCEDURE snowid_make_partitions(regclass, interval, int, interval) IS
    'makes the partitions of a table that is partitioned by range of a key: of this day, week or month (UTC, by the clock) and so many ahead; detaches those that are older than keep; commits after each';

-- From serial or identity

CREATE FUNCTION snowid_migration(schema regnamespace) RETURNS SETOF text
    LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    keys text := (SELECT quote_ident(nspname) FROM pg_extension e JOIN pg_namespace n ON n.oid = extnamespace
                  WHERE extname = 'snowid');
    col record;
    others text;
BEGIN
    -- below deadlock_timeout, so that who waits for both is the one to give up
    RETURN NEXT $_$SET lock_timeout = '500ms'$_$;
    FOR col IN
        SELECT c.oid AS relid, attnum, attname, atttypid, attidentity <> '' AS is_identity
        FROM pg_class c JOIN pg_attribute a ON attrelid = c.oid
        WHERE relnamespace = schema AND relkind IN ('r', 'p') AND NOT relispartition
            AND attnum > 0 AND NOT attisdropped AND attinhcount = 0
            AND EXISTS (SELECT FROM pg_depend d JOIN pg_class s ON s.oid = d.objid
                        WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass
                            AND d.refobjid = c.oid AND d.refobjsubid = attnum AND d.deptype IN ('a', 'i')
                            AND s.relkind = 'S')
            AND (attidentity <> '' OR EXISTS (SELECT FROM pg_attrdef WHERE adrelid = c.oid AND adnum = attnum
                                              AND pg_get_expr(adbin, adrelid) ~ '^nextval\('))
        ORDER BY relname, attnum
    LOOP
        -- what refers to it with too few bits, and views that would hold a column of other type
        SELECT string_agg(what, ', ' ORDER BY what) INTO others FROM (
            SELECT format('%s.%I refers to it', conrelid::regclass, attname) AS what
            FROM pg_constraint JOIN pg_attribute ON attrelid = conrelid AND attnum = ANY (conkey)
            WHERE contype = 'f' AND confrelid = col.relid AND col.attnum = ANY (confkey) AND conparentid = 0
                AND atttypid IN ('integer'::regtype, 'smallint'::regtype)
            UNION
            SELECT format('view %s has it', ev_class::regclass)
            FROM pg_depend JOIN pg_rewrite r ON r.oid = objid
            WHERE classid = 'pg_rewrite'::regclass AND refobjid = col.relid AND refobjsubid = col.attnum
                AND col.atttypid <> 'bigint'::regtype) o;
        IF col.atttypid <> 'bigint'::regtype OR others IS NOT NULL THEN
            RETURN NEXT concat_ws(', ', format('-- not done: %s.%I is %s', col.relid::regclass, col.attname,
                format_type(col.atttypid, NULL)), others);
        ELSIF col.is_identity THEN
            RETURN NEXT format('ALTER TABLE %1$s ALTER COLUMN %2$I DROP IDENTITY, ALTER COLUMN %2$I SET DEFAULT %3$s.snowid_next()',
                col.relid::regclass, col.attname, keys);
        ELSE
            RETURN NEXT format('ALTER TABLE %1$s ALTER COLUMN %2$I SET DEFAULT %3$s.snowid_next()',
                col.relid::regclass, col.attname, keys);
        END IF;
    END LOOP;
    RETURN NEXT 'RESET lock_timeout';
END $$;
COMMENT ON FUNCTION snowid_migration(regnamespace) IS
    'commands that turn the serial and identity columns of type bigint in a schema to snowid_next(), one table each, for \gexec of psql; says as comments which columns are not wide enough';
