/* snowid--0.1.sql: the SQL surface of snowid 0.1; frozen once released */

\echo Use "CREATE EXTENSION snowid" to load this file. \quit

-- The script may run as a superuser in a schema of a user who is none, and others may
-- create functions there.  So a call in it names pg_catalog where the schema could have
-- a function that fits better, and calls of its own functions have the exact types.

-- Is the server's library new enough for this script?

CREATE FUNCTION snowid_require_library(version text) RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE C STRICT;
SELECT snowid_require_library('0.1'::pg_catalog.text);
DROP FUNCTION snowid_require_library(text);

-- Making keys

CREATE FUNCTION snowid_next() RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION snowid_next() IS
    'the next key: 64 bits, positive, greater than every key this server made before; waits for up to snowid.max_wait, then throws an error that says why';

CREATE FUNCTION snowid_next_batch_support(internal) RETURNS internal
    AS 'MODULE_PATHNAME' LANGUAGE C STRICT;
COMMENT ON FUNCTION snowid_next_batch_support(internal) IS
    'tells the planner how many rows snowid_next_batch() returns';

CREATE FUNCTION snowid_next_batch(count bigint) RETURNS SETOF bigint
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
    ROWS 1000 SUPPORT snowid_next_batch_support;
COMMENT ON FUNCTION snowid_next_batch(bigint) IS
    'the next count keys (0 or more), increasing, in blocks of consecutive units; waits and throws as snowid_next() does';

CREATE FUNCTION snowid_advance(id bigint) RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION snowid_advance(bigint) FROM PUBLIC;
COMMENT ON FUNCTION snowid_advance(bigint) IS
    'makes every later key greater than id, a key in this server''s layout that leads the clock by at most snowid.max_jump; keys wait until the clock is within snowid.max_lead of it';

CREATE FUNCTION snowid_accept_clock() RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION snowid_accept_clock() FROM PUBLIC;
COMMENT ON FUNCTION snowid_accept_clock() IS
    'accepts the clock after it jumped ahead by more than snowid.max_jump, so that keys are made by it';

CREATE FUNCTION snowid_accept_layout() RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION snowid_accept_layout() FROM PUBLIC;
COMMENT ON FUNCTION snowid_accept_layout() IS
    'consents to the layout in the settings if this server''s last keys have another one';

-- Reading and writing the fields of keys, in this server's layout ...

CREATE FUNCTION snowid_decode(id bigint, OUT created_at timestamptz,
        OUT datacenter_id int, OUT worker_id int, OUT sequence int)
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_decode(bigint) IS
    'the fields of a key in this server''s layout, the time to the millisecond; a field that the layout does not have is null';

CREATE FUNCTION snowid_timestamp(id bigint) RETURNS timestamptz
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_timestamp(bigint) IS
    'the time of a key in this server''s layout, to the millisecond';

CREATE FUNCTION snowid_min(ts timestamptz) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_min(timestamptz) IS
    'the least key of the millisecond of ts in this server''s layout; throws outside its range';

CREATE FUNCTION snowid_max(ts timestamptz) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_max(timestamptz) IS
    'the greatest key of the millisecond of ts in this server''s layout; throws outside its range';

CREATE FUNCTION snowid_encode(created_at timestamptz, datacenter_id int,
        worker_id int, sequence int) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_encode(timestamptz, int, int, int) IS
    'the key with these fields in this server''s layout; 0 for a field that the layout does not have; throws if one does not fit';

CREATE FUNCTION snowid_bits(id bigint) RETURNS text
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_bits(bigint) IS
    'the 64 bits, with spaces between the fields of this server''s layout: sign, timestamp, datacenter, worker, sequence';

-- ... and in a layout that is named or spelled out

CREATE FUNCTION snowid_decode(id bigint, layout text,
        OUT created_at timestamptz, OUT datacenter_id int, OUT worker_id int,
        OUT sequence int)
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_decode(bigint, text) IS
    'the fields of a key in a layout: a name that snowid_layouts() lists, or for instance ''epoch=2020-01-01T00:00:00Z datacenter=5 worker=5 sequence=12''';

CREATE FUNCTION snowid_timestamp(id bigint, layout text) RETURNS timestamptz
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_timestamp(bigint, text) IS
    'the time of a key in a layout, to the millisecond';

CREATE FUNCTION snowid_min(ts timestamptz, layout text) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_min(timestamptz, text) IS
    'the least key of the millisecond of ts in a layout';

CREATE FUNCTION snowid_max(ts timestamptz, layout text) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_max(timestamptz, text) IS
    'the greatest key of the millisecond of ts in a layout';

CREATE FUNCTION snowid_encode(created_at timestamptz, datacenter_id int,
        worker_id int, sequence int, layout text) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_encode(timestamptz, int, int, int, text) IS
    'the key with these fields in a layout';

CREATE FUNCTION snowid_bits(id bigint, layout text) RETURNS text
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_bits(bigint, text) IS
    'the 64 bits, with spaces between the fields of a layout';

CREATE FUNCTION snowid_layouts(OUT name text, OUT epoch timestamptz,
        OUT tick_ms int, OUT timestamp_bits int, OUT datacenter_bits int,
        OUT worker_bits int, OUT sequence_bits int, OUT last_day date)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE ROWS 8;
COMMENT ON FUNCTION snowid_layouts() IS
    'the named layouts: epoch, ms in a step of the timestamp, widths in bits, last day (UTC)';

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
        OUT registry_error_at timestamptz, OUT grant_age_ms bigint,
        OUT stats_reset timestamptz)
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL SAFE;
COMMENT ON FUNCTION snowid_status() IS
    'the state of this server''s generator: its pair, whether it makes keys or why not, the layout, the last key and its lead over the clock, the time up to which keys are reserved and how long ago they were, counters and since when they count; and if the worker ID comes from Redis, the state of the claim, the last error and its time, and when Redis last answered';
REVOKE ALL ON FUNCTION snowid_status() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION snowid_status() TO pg_monitor;

-- The registry in Redis

CREATE FUNCTION snowid_claims(OUT worker_id int, OUT server_name text,
        OUT since timestamptz, OUT last_seen timestamptz,
        OUT ceiling timestamptz, OUT lease_left_ms bigint, OUT state text,
        OUT is_me boolean)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 32;
REVOKE ALL ON FUNCTION snowid_claims() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION snowid_claims() TO pg_monitor;
COMMENT ON FUNCTION snowid_claims() IS
    'the claims of this server''s datacenter in Redis, with times by the clock of Redis, but the ceiling by the owner''s; state is live, silent (no sign of life for two intervals), ended (a lease), lapsed (a lease that ended a lease ago: anyone may get the ID) or revoked; waits for up to snowid.redis_timeout';

CREATE FUNCTION snowid_release(datacenter_id int, worker_id int,
        force boolean DEFAULT false) RETURNS text
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION snowid_release(int, int, boolean) FROM PUBLIC;
COMMENT ON FUNCTION snowid_release(int, int, boolean) IS
    'gives back the worker ID of a server that is gone for good: ''released''; that of a live server only by force, and then ''revoked'': it is free once that server has given it up, or has shown no sign of life for two intervals';

CREATE FUNCTION snowid_reclaim() RETURNS int
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION snowid_reclaim() FROM PUBLIC;
COMMENT ON FUNCTION snowid_reclaim() IS
    'claims another worker ID for this server and gives the present one back, without a restart; returns the new one, which is used after snowid.max_lead';

-- Many keys as one value

CREATE FUNCTION snowid_next_array(count bigint) RETURNS bigint[]
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION snowid_next_array(bigint) IS
    'the next count keys (0 to 134217724), increasing, in one array of 8 bytes a key; otherwise like snowid_next_batch()';

CREATE FUNCTION snowid_next_block(count bigint) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION snowid_next_block(bigint) IS
    'the first of count keys that are consecutive integers of one millisecond, all of them for the caller; count is from 1 to the keys of a millisecond, 4096 in the default layout; waits as snowid_next() does';

-- Keys as text

CREATE FUNCTION snowid_to_base32(id bigint) RETURNS text
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_to_base32(bigint) IS
    'a key as 13 digits of base32 (Douglas Crockford''s: 0 to 9, A to Z without I, L, O, U), as TSIDs are written; sorts as keys do under COLLATE "C" and the collations of most languages (not Czech, where CH comes after H)';

CREATE FUNCTION snowid_from_base32(base32 text) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_from_base32(text) IS
    'the key of 13 digits of base32, at most 7ZZZZZZZZZZZZ; in either case, with O as 0, I and L as 1, and hyphens ignored';

CREATE FUNCTION snowid_to_base62(id bigint) RETURNS text
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_to_base62(bigint) IS
    'a key as 11 digits of base62 (0 to 9, A to Z, a to z); sorts as keys do under COLLATE "C" only';

CREATE FUNCTION snowid_from_base62(base62 text) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_from_base62(text) IS
    'the key of 11 digits of base62, at most AzL8n0Y58m7';

-- Keys as serial numbers, in this server's layout ...

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

-- ... and in a layout that is named or spelled out

CREATE FUNCTION snowid_serial(code text, id bigint, utc_offset text, layout text,
        check_digits boolean DEFAULT false) RETURNS text
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_serial(text, bigint, text, text, boolean) IS
    'a key as a serial number in a layout';

CREATE FUNCTION snowid_serial_id(serial text, code text, utc_offset text, layout text,
        check_digits boolean DEFAULT false) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_serial_id(text, text, text, text, boolean) IS
    'the key of a serial number in a layout';

-- Keys for outsiders, enciphered

CREATE FUNCTION snowid_to_public(id bigint, prefix text) RETURNS text
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_to_public(bigint, text) IS
    'the public form of a key: the prefix (1 to 20 characters a to z, 0 to 9, inner underscores), an underscore and 16 digits of base32, from which neither key, time nor order can be read without a secret of snowid.public_key_file';

CREATE FUNCTION snowid_from_public(public text, prefix text) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_from_public(text, text) IS
    'the key of a public form that snowid_to_public() made with the same prefix and a secret that this server has; throws for any other text, but for one in 4096';

-- The type: a bigint that is written in base32

CREATE TYPE snowid;

CREATE FUNCTION snowid_in(cstring) RETURNS snowid
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_in(cstring) IS
    '13 digits of base32 as snowid_from_base32() reads them, but all 64 bits: at most FZZZZZZZZZZZZ';

CREATE FUNCTION snowid_out(snowid) RETURNS cstring
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_out(snowid) IS '13 digits of base32';

CREATE FUNCTION snowid_recv(internal) RETURNS snowid
    AS 'int8recv' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_recv(internal) IS 'the 8 bytes of a bigint';

CREATE FUNCTION snowid_send(snowid) RETURNS bytea
    AS 'int8send' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_send(snowid) IS 'the 8 bytes of a bigint';

-- In the category of numbers, so that COALESCE, CASE and UNION of a snowid and a
-- bigint are a bigint.
CREATE TYPE snowid (
    INPUT = snowid_in, OUTPUT = snowid_out,
    RECEIVE = snowid_recv, SEND = snowid_send,
    LIKE = bigint, CATEGORY = 'N');
COMMENT ON TYPE snowid IS
    'a key: stored as a bigint, written as 13 digits of base32, such as 0ARYZVZXW377R, which JSON quotes';

CREATE CAST (snowid AS bigint) WITHOUT FUNCTION AS IMPLICIT;
CREATE CAST (bigint AS snowid) WITHOUT FUNCTION AS ASSIGNMENT;

-- Comparisons are core's functions under new names.  Between types, = may hash
-- but not merge: merging would make it part of equivalence classes, which use
-- indexes of this family only, so that a join would not use one of a bigint.
CREATE FUNCTION snowid_compare_support(internal) RETURNS internal
    AS 'MODULE_PATHNAME' LANGUAGE C STRICT;
COMMENT ON FUNCTION snowid_compare_support(internal) IS
    'lets an index of a bigint column serve comparisons with a snowid';

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
            EXECUTE pg_catalog.format('CREATE FUNCTION snowid_%s(%s, %s) RETURNS boolean
                    AS %L LANGUAGE internal IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE %s',
                op.f, types.l, types.r, 'int' || types.suffix || op.f,
                CASE WHEN 'bigint' IN (types.l, types.r) THEN 'SUPPORT snowid_compare_support' END);
            EXECUTE pg_catalog.format('COMMENT ON FUNCTION snowid_%s(%s, %s) IS %L',
                op.f, types.l, types.r, 'implementation of ' || op.name || ' operator');
            EXECUTE pg_catalog.format('CREATE OPERATOR %s (FUNCTION = snowid_%s, LEFTARG = %s, RIGHTARG = %s,
                    COMMUTATOR = %s, NEGATOR = %s, RESTRICT = %ssel, JOIN = %sjoinsel %s)',
                op.name, op.f, types.l, types.r, op.commutator, op.negator, op.sel, op.sel,
                CASE op.name WHEN '=' THEN types.joins END);
        END LOOP;
    END LOOP;
END $do$;

-- For a foreign key from a bigint column to a snowid, which also compares bigints
-- with the family of the index.  Core's = must not be in a second family: then
-- the planner would no longer know that an equal bigint and integer sort alike.
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
    OPERATOR 3 #= (bigint, bigint);
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
        EXECUTE pg_catalog.format('ALTER OPERATOR FAMILY snowid_ops USING btree ADD
                OPERATOR 1 < (%1$s, %2$s), OPERATOR 2 <= (%1$s, %2$s), OPERATOR 3 = (%1$s, %2$s),
                OPERATOR 4 >= (%1$s, %2$s), OPERATOR 5 > (%1$s, %2$s), FUNCTION 1 (%1$s, %2$s) %3$s',
            types.l, types.r, types.cmp);
    END LOOP;
END $do$;

-- For arrays of another type: a search by index sorts the elements for = ANY, and
-- takes the greatest for < ANY, the least for > ANY, all with the family of the
-- index.  No = for int and smallint, which could then refer to a snowid.
DO $do$
DECLARE
    types record;
    op record;
BEGIN
    FOR types IN
        SELECT * FROM (VALUES ('bigint', '8'), ('int', '4'), ('smallint', '2')) v (name, suffix)
    LOOP
        FOR op IN
            SELECT * FROM (VALUES ('<', 'lt', '>'), ('>', 'gt', '<')) v (name, f, commutator)
        LOOP
            EXECUTE pg_catalog.format('CREATE FUNCTION snowid_%1$s(%2$s, %2$s) RETURNS boolean
                    AS %3$L LANGUAGE internal IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE',
                op.f, types.name, 'int' || types.suffix || op.f);
            EXECUTE pg_catalog.format('COMMENT ON FUNCTION snowid_%1$s(%2$s, %2$s) IS %3$L',
                op.f, types.name, 'implementation of #' || op.name || ' operator');
            EXECUTE pg_catalog.format('CREATE OPERATOR #%1$s (FUNCTION = snowid_%2$s, LEFTARG = %3$s, RIGHTARG = %3$s,
                    COMMUTATOR = #%4$s, RESTRICT = scalar%2$ssel, JOIN = scalar%2$sjoinsel)',
                op.name, op.f, types.name, op.commutator);
            EXECUTE pg_catalog.format('COMMENT ON OPERATOR #%1$s (%2$s, %2$s) IS %3$L',
                op.name, types.name, 'the order of numbers in the operator family of snowid; use ' || op.name);
        END LOOP;
        EXECUTE pg_catalog.format('ALTER OPERATOR FAMILY snowid_ops USING btree ADD
                OPERATOR 1 #< (%1$s, %1$s), OPERATOR 5 #> (%1$s, %1$s), FUNCTION 1 (%1$s, %1$s) btint%2$scmp(%1$s, %1$s)',
            types.name, types.suffix);
    END LOOP;
END $do$;

CREATE FUNCTION snowid_smaller(snowid, snowid) RETURNS snowid
    AS 'int8smaller' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_smaller(snowid, snowid) IS 'the smaller of two keys';
CREATE FUNCTION snowid_larger(snowid, snowid) RETURNS snowid
    AS 'int8larger' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_larger(snowid, snowid) IS 'the larger of two keys';

CREATE AGGREGATE min(snowid) (SFUNC = snowid_smaller, STYPE = snowid,
    COMBINEFUNC = snowid_smaller, SORTOP = <, PARALLEL = SAFE);
COMMENT ON AGGREGATE min(snowid) IS 'the first key';
CREATE AGGREGATE max(snowid) (SFUNC = snowid_larger, STYPE = snowid,
    COMBINEFUNC = snowid_larger, SORTOP = >, PARALLEL = SAFE);
COMMENT ON AGGREGATE max(snowid) IS 'the last key';

-- Partitions by time

CREATE FUNCTION snowid_partition_commands(parent regclass, step interval, ahead int,
        keep interval DEFAULT NULL) RETURNS SETOF text
    LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET lock_timeout = '500ms' AS $$
DECLARE
    -- intervals are compared with months of 30 days
    months numeric := extract(year FROM step) * 12 + extract(month FROM step);
    unit text := CASE WHEN step = interval '1 day' AND months = 0 THEN 'day'
        WHEN step = interval '1 week' AND months = 0 THEN 'week'
        WHEN step = interval '1 month' AND months = 1 THEN 'month' END;
    this_period timestamp := date_trunc(unit, now() AT TIME ZONE 'UTC');
    keys text := (SELECT quote_ident(nspname) FROM pg_extension e JOIN pg_namespace n ON n.oid = extnamespace
                  WHERE extname = 'snowid');
    table_schema name;
    table_name name;
    table_owner name;
    table_place text;
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
    epoch timestamp;
    second_day bigint;         -- its first key
    first_key bigint;
    period timestamp;
    oldest timestamp;
    part_name text;
BEGIN
    IF parent IS NULL OR step IS NULL OR ahead IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '22004', MESSAGE = 'parent, step and ahead must not be null';
    ELSIF unit IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('step cannot be %s', step),
            DETAIL = 'It must be one day, one week or one month.';
    ELSIF ahead NOT BETWEEN 0 AND 1000 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'ahead must be from 0 to 1000';
    ELSIF keep < interval '0' THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'keep must not be negative';
    END IF;
    SELECT nspname, relname, pg_get_userbyid(relowner), atttypid, partdefid,
        concat(' USING ' || quote_ident(amname), ' TABLESPACE ' || quote_ident(spcname))
    INTO table_schema, table_name, table_owner, key_type, default_part, table_place
    FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace JOIN pg_partitioned_table ON partrelid = c.oid
        JOIN pg_attribute ON attrelid = c.oid AND attnum = partattrs[0]
        LEFT JOIN pg_am m ON m.oid = relam LEFT JOIN pg_tablespace t ON t.oid = reltablespace
    WHERE c.oid = parent AND partstrat = 'r' AND partnatts = 1
        AND (atttypid = 'bigint'::regtype OR atttypid = to_regtype(keys || '.snowid'));
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '42809', MESSAGE = format('%s is not partitioned by range of a key', parent),
            DETAIL = 'Its partition key must be one column of type bigint or snowid.';
    ELSIF default_part <> 0 THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('%s has the default partition %s', parent, default_part::regclass),
            DETAIL = 'No partition can be made for keys that it holds, and none at all without reading it under a lock.',
            HINT = 'Detach it, make the partitions, and insert its rows again.';
    END IF;

    FOR part, bounds IN
        SELECT c.oid, pg_get_expr(relpartbound, c.oid) FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid
        WHERE inhparent = parent AND NOT inhdetachpending
    LOOP
        bound := regexp_match(bounds, '^FOR VALUES FROM [(]''?(-?[[:alnum:]]+)''?[)] TO [(]''?(-?[[:alnum:]]+)''?[)]');
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

    -- a partition that ends in the first day of the layout has other numbers, such as old serial keys
    EXECUTE format('SELECT %s.snowid_timestamp(0::bigint) AT TIME ZONE $1', keys) INTO epoch USING 'UTC';
    EXECUTE format('SELECT %s.snowid_min($1)', keys)
        INTO second_day USING (date_trunc('day', epoch) + interval '1 day') AT TIME ZONE 'UTC';
    first_key := (SELECT greatest(max(h), 0) FROM unnest(highs) h WHERE h < second_day);

    -- from the end of the first one, so that no gap remains; never before "keep"
    EXECUTE format('SELECT date_trunc($1, %s.snowid_timestamp(min(h)) AT TIME ZONE $4) FROM unnest($2) h WHERE h >= $3', keys)
        INTO period USING unit, highs, second_day, 'UTC';
    period := least(period, this_period);
    IF keep IS NOT NULL THEN
        oldest := date_trunc(unit, (now() - least(keep, interval '1000 years')) AT TIME ZONE 'UTC');
        period := greatest(period, oldest);
    END IF;
    WHILE period <= this_period + ahead * step LOOP
        EXECUTE format('SELECT greatest(%1$s.snowid_min($1), $3), %1$s.snowid_min($2)', keys) INTO low, high
            USING greatest(period, epoch) AT TIME ZONE 'UTC', (period + step) AT TIME ZONE 'UTC', first_key;
        part := NULL;
        SELECT p, ARRAY[l, h] INTO part, bound FROM unnest(parts, lows, highs) u(p, l, h)
        WHERE (l < high AND (h > low OR h IS NULL)) ORDER BY l LIMIT 1;
        IF part IS NULL THEN
            part_name := table_name || to_char(period, CASE unit WHEN 'day' THEN '_YYYYMMDD' WHEN 'week' THEN '_IYYY"w"IW' ELSE '_YYYYMM' END);
            IF octet_length(part_name) > 63 THEN
                RAISE EXCEPTION USING ERRCODE = '42622', MESSAGE = format('the name of a partition is too long: %s', part_name);
            END IF;
            -- PARTITION OF would lock out readers of the table.  ATTACH locks out writers of a table that a
            -- foreign key refers to; it waits less than deadlock_timeout, so that this session gives up in a deadlock.
            RETURN NEXT format('SET LOCAL lock_timeout = ''500ms''; '
                'CREATE TABLE %1$I.%2$I (LIKE %3$s INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING GENERATED INCLUDING STORAGE INCLUDING COMPRESSION)%7$s; '
                'ALTER TABLE %1$I.%2$I OWNER TO %4$I; '
                'ALTER TABLE %3$s ATTACH PARTITION %1$I.%2$I FOR VALUES FROM (%5$s::bigint) TO (%6$s::bigint)',
                table_schema, part_name, parent, table_owner, low, high, table_place);
        ELSIF bound[1]::bigint > low OR bound[2]::bigint < high THEN
            RAISE EXCEPTION USING ERRCODE = '42P17',
                MESSAGE = format('partition %s holds some keys of the %s of %s, but not all', part, unit, period::date),
                DETAIL = format('It is from %s to %s, but the %s is from %s to %s.', bound[1], bound[2], unit, low, high);
        END IF;
        period := period + step;
    END LOOP;

    IF oldest > epoch THEN
        EXECUTE format('SELECT %s.snowid_min($1)', keys) INTO low USING oldest AT TIME ZONE 'UTC';
        FOR part IN SELECT p FROM unnest(parts, highs) u(p, h) WHERE h BETWEEN second_day AND low ORDER BY h LOOP
            RETURN NEXT format('ALTER TABLE %s DETACH PARTITION %s CONCURRENTLY', parent, part);
        END LOOP;
    END IF;
END $$;
COMMENT ON FUNCTION snowid_partition_commands(regclass, interval, int, interval) IS
    E'the commands that snowid_make_partitions() runs, but with DETACH PARTITION CONCURRENTLY; for \\gexec of psql outside a transaction';

CREATE PROCEDURE snowid_make_partitions(parent regclass, step interval, ahead int,
        keep interval DEFAULT NULL)
    LANGUAGE plpgsql AS $$
DECLARE
    commands pg_catalog.text[];
    command pg_catalog.text;
BEGIN
    -- no search_path of its own: a procedure that has one cannot COMMIT
    EXECUTE pg_catalog.format('SELECT ARRAY(SELECT %I.snowid_partition_commands($1, $2, $3, $4))',
        (SELECT n.nspname FROM pg_catalog.pg_extension e JOIN pg_catalog.pg_namespace n
            ON n.oid OPERATOR(pg_catalog.=) e.extnamespace WHERE e.extname OPERATOR(pg_catalog.=) 'snowid'))
        INTO commands USING parent, step, ahead, keep;
    FOREACH command IN ARRAY commands LOOP
        -- a procedure cannot detach concurrently
        EXECUTE pg_catalog.regexp_replace(command, '^(ALTER TABLE .*) CONCURRENTLY$', E'SET LOCAL lock_timeout = ''500ms''; \\1');
        COMMIT;
    END LOOP;
END $$;
COMMENT ON PROCEDURE snowid_make_partitions(regclass, interval, int, interval) IS
    'makes partitions of a table that is partitioned by range of a key: for the present day, week or month (UTC) and as many after it as "ahead" says; detaches those older than "keep"; commits after each';

-- From serial or identity

CREATE FUNCTION snowid_migration(schema regnamespace) RETURNS SETOF text
    LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    SET quote_all_identifiers = off SET lock_timeout = '500ms' AS $$
DECLARE
    keys text := (SELECT quote_ident(nspname) FROM pg_extension e JOIN pg_namespace n ON n.oid = extnamespace
                  WHERE extname = 'snowid');
    col record;
    others text;
BEGIN
    -- less than deadlock_timeout, so that this session gives up in a deadlock
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
                                              AND pg_get_expr(adbin, adrelid) ~ '^nextval[(]'))
        ORDER BY relname, attnum
    LOOP
        -- narrower columns that refer to it, and views that would need another type
        WITH RECURSIVE narrow AS (
            SELECT oid FROM pg_type WHERE oid IN ('integer'::regtype, 'smallint'::regtype)
            UNION
            SELECT t.oid FROM pg_type t JOIN narrow n ON n.oid = t.typbasetype)
        SELECT string_agg(what, ', ' ORDER BY what) INTO others FROM (
            SELECT format('%s.%I refers to it', conrelid::regclass, attname) AS what
            FROM pg_constraint JOIN pg_attribute ON attrelid = conrelid AND attnum = conkey[array_position(confkey, col.attnum)]
            WHERE contype = 'f' AND confrelid = col.relid AND conparentid = 0 AND atttypid IN (SELECT oid FROM narrow)
            UNION
            SELECT format('view %s has it', ev_class::regclass)
            FROM pg_depend JOIN pg_rewrite r ON r.oid = objid
            WHERE classid = 'pg_rewrite'::regclass AND refobjid = col.relid AND refobjsubid = col.attnum
                AND col.atttypid <> 'bigint'::regtype) o;
        IF col.atttypid <> 'bigint'::regtype OR others IS NOT NULL THEN
            -- one line: what stood after a line break in a name would be run
            RETURN NEXT translate(concat_ws(', ', format('-- not done: %s.%I is %s', col.relid::regclass, col.attname,
                format_type(col.atttypid, NULL)), others), E'\n\r', '  ');
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
    E'commands that change the serial and identity columns of type bigint in a schema to snowid_next(), one for each column, for \\gexec of psql; comments name the columns that cannot be changed, and why';
