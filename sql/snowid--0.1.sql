/* snowid--0.1.sql: the SQL surface of snowid 0.1; frozen once released */

\echo Use "CREATE EXTENSION snowid" to load this file. \quit

-- The script may run as a superuser in the schema of an ordinary user, where others may
-- create functions.  So a call names pg_catalog if a function there could fit better, and
-- calls of the script's own functions have the exact types.

-- Is the server's library new enough for this script?

CREATE FUNCTION snowid_require_library(version text) RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE C STRICT;
SELECT snowid_require_library('0.1'::pg_catalog.text);
DROP FUNCTION snowid_require_library(text);

-- Making keys

-- STABLE: for COPY, the planner is given a call of it in place of snowid_next()'s
CREATE FUNCTION snowid_next_support(internal) RETURNS internal
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT;
COMMENT ON FUNCTION snowid_next_support(internal) IS
    'lets COPY insert many rows at a time with keys by DEFAULT';

CREATE FUNCTION snowid_next() RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED
    SUPPORT snowid_next_support;
COMMENT ON FUNCTION snowid_next() IS
    'the next key: 64 bits, positive, greater than every key that this server made before; waits for up to snowid.max_wait, then raises an error that says why';

CREATE FUNCTION snowid_next_batch_support(internal) RETURNS internal
    AS 'MODULE_PATHNAME' LANGUAGE C STRICT;
COMMENT ON FUNCTION snowid_next_batch_support(internal) IS
    'tells the planner how many rows snowid_next_batch() returns';

CREATE FUNCTION snowid_next_batch(count bigint) RETURNS SETOF bigint
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED
    ROWS 1000 SUPPORT snowid_next_batch_support;
COMMENT ON FUNCTION snowid_next_batch(bigint) IS
    'the next count keys (0 or more), increasing, in blocks of consecutive integers; waits and raises errors as snowid_next() does';

CREATE FUNCTION snowid_advance(id bigint) RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION snowid_advance(bigint) FROM PUBLIC;
COMMENT ON FUNCTION snowid_advance(bigint) IS
    'makes every later key greater than id, a key in this server''s layout that leads the clock by at most snowid.max_jump; callers wait until the clock is within snowid.max_lead of it';

CREATE FUNCTION snowid_accept_clock() RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION snowid_accept_clock() FROM PUBLIC;
COMMENT ON FUNCTION snowid_accept_clock() IS
    'accepts the clock after it jumped ahead by more than snowid.max_jump, so that keys follow it';

CREATE FUNCTION snowid_accept_layout() RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION snowid_accept_layout() FROM PUBLIC;
COMMENT ON FUNCTION snowid_accept_layout() IS
    'consents to snowid.layout if this server made its last keys in another layout';

-- Reading and writing the fields of keys, in this server's layout ...

CREATE FUNCTION snowid_decode(id bigint, OUT created_at timestamptz,
        OUT datacenter_id int, OUT worker_id int, OUT sequence int)
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_decode(bigint) IS
    'the fields of a key in this server''s layout, created_at to the millisecond; a field that the layout does not have is null';

CREATE FUNCTION snowid_timestamp(id bigint) RETURNS timestamptz
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_timestamp(bigint) IS
    'the time of a key in this server''s layout, to the millisecond';

CREATE FUNCTION snowid_min(ts timestamptz) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_min(timestamptz) IS
    'the least key of the millisecond of ts in this server''s layout; an error outside the layout''s range';

CREATE FUNCTION snowid_max(ts timestamptz) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_max(timestamptz) IS
    'the greatest key of the millisecond of ts in this server''s layout; an error outside the layout''s range';

CREATE FUNCTION snowid_encode(created_at timestamptz, datacenter_id int,
        worker_id int, sequence int) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_encode(timestamptz, int, int, int) IS
    'the key with these fields in this server''s layout; 0 for a field that the layout does not have; an error if a field does not fit';

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
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE PARALLEL SAFE ROWS 12;
COMMENT ON FUNCTION snowid_layouts() IS
    'the named layouts: epoch, step of the timestamp in ms, widths of the fields in bits, last day (UTC)';

-- This server

CREATE FUNCTION snowid_status(OUT datacenter_id int, OUT worker_id int,
        OUT worker_id_source text, OUT is_open boolean, OUT reason text,
        OUT layout text, OUT last_day date, OUT last_key bigint,
        OUT last_key_time timestamptz, OUT lead_ms float8,
        OUT ceiling timestamptz, OUT keys bigint, OUT waits bigint,
        OUT wait_ms float8, OUT clock_steps_back bigint, OUT errors bigint,
        OUT registry text, OUT registry_error text,
        OUT registry_ok_at timestamptz, OUT lease_ceiling timestamptz,
        OUT registry_error_at timestamptz, OUT grant_age_ms bigint,
        OUT stats_reset timestamptz, OUT moves bigint)
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL SAFE;
COMMENT ON FUNCTION snowid_status() IS
    'the state of this server''s generator, one row: its pair, whether it makes keys or why not, layout, last key and its lead over the clock in ms, the time up to which keys are reserved, and counters since stats_reset; with Redis also the state of the claim, the last error and the last answer';
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
    'the claims of this server''s datacenter in Redis, with times by the clock of Redis, but the ceiling by the owner''s; state is live, silent (not seen for two intervals), ended (a lease), lapsed (a lease that ended a lease ago, so that any server may get the ID), revoked, unused, damaged or version; waits for up to snowid.redis_timeout';

CREATE FUNCTION snowid_release(datacenter_id int, worker_id int,
        force boolean DEFAULT false) RETURNS text
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION snowid_release(int, int, boolean) FROM PUBLIC;
COMMENT ON FUNCTION snowid_release(int, int, boolean) IS
    'gives back the worker ID of a server that is gone for good: ''released''; that of a live server only by force, and then ''revoked'': it is free when that server has given it up, or was not seen for two intervals';

CREATE FUNCTION snowid_reclaim() RETURNS int
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION snowid_reclaim() FROM PUBLIC;
COMMENT ON FUNCTION snowid_reclaim() IS
    'claims another worker ID for this server, without a restart, and gives the present one back; returns the new ID, which is used after snowid.max_lead';

-- Many keys as one value

CREATE FUNCTION snowid_next_array(count bigint) RETURNS bigint[]
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION snowid_next_array(bigint) IS
    'the next count keys (0 to 134217724), increasing, in one array, 8 bytes a key; otherwise like snowid_next_batch()';

CREATE FUNCTION snowid_next_block(count bigint) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION snowid_next_block(bigint) IS
    'the first of count keys that are consecutive integers of one millisecond, all for the caller; count is from 1 to the keys of a millisecond, 4096 in the default layout; waits as snowid_next() does';

-- Keys as text

CREATE FUNCTION snowid_to_base32(id bigint) RETURNS text
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_to_base32(bigint) IS
    'a key as 13 digits of base32 (Douglas Crockford''s: 0 to 9, A to Z without I, L, O, U), as TSIDs are written; sorts as keys do under COLLATE "C" and the collations of most languages (not Czech, where CH comes after H)';

CREATE FUNCTION snowid_from_base32(base32 text) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_from_base32(text) IS
    'the key of 13 digits of base32, at most 7ZZZZZZZZZZZZ; upper or lower case, O is read as 0, I and L as 1, hyphens are ignored';

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
    'a key as a serial number: code (up to 8 characters 0 to 9, A to Z), time at a fixed offset from UTC (yyyymmddhhmissms), datacenter, worker and sequence with leading zeros; optionally two check digits (ISO 7064 MOD 97-10); sorts as keys do under every collation';

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
    'the public form of a key: the prefix (1 to 20 characters a to z, 0 to 9, inner underscores), an underscore and 16 digits of base32, which hides key, time and order from readers without a secret of snowid.public_key_file';

CREATE FUNCTION snowid_from_public(public text, prefix text) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_from_public(text, text) IS
    'the key of a public form that snowid_to_public() made with the same prefix and a secret that this server has; an error for any other text, except one in 4096';

-- The type: a bigint that is written in base32

CREATE TYPE snowid;

CREATE FUNCTION snowid_in(cstring) RETURNS snowid
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_in(cstring) IS
    '13 digits of base32 as snowid_from_base32() reads them; for a negative value, which is no key, a minus and 19 decimal digits';

CREATE FUNCTION snowid_out(snowid) RETURNS cstring
    AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_out(snowid) IS
    '13 digits of base32; for a negative value, which is no key, a minus and 19 decimal digits';

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
    'a key: stored as a bigint, written as 13 digits of base32, such as 0ARYZVZXW377R, which JSON quotes; DROP EXTENSION snowid CASCADE drops columns of this type with their values: change them to bigint first';

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

-- The order of each pair of types, since amvalidate() wants functions of just these types
DO $do$
DECLARE
    types record;
BEGIN
    FOR types IN
        SELECT l.name AS l, r.name AS r, CASE WHEN l.suffix = r.suffix THEN l.suffix ELSE l.suffix || r.suffix END AS suffix
        FROM (VALUES ('snowid', '8'), ('bigint', '8'), ('int', '4'), ('smallint', '2')) l (name, suffix),
            (VALUES ('snowid', '8'), ('bigint', '8'), ('int', '4'), ('smallint', '2')) r (name, suffix)
    LOOP
        EXECUTE pg_catalog.format('CREATE FUNCTION snowid_cmp(%s, %s) RETURNS int
                AS %L LANGUAGE internal IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE',
            types.l, types.r, 'btint' || types.suffix || 'cmp');
        EXECUTE pg_catalog.format('COMMENT ON FUNCTION snowid_cmp(%s, %s) IS %L',
            types.l, types.r, 'less-equal-greater, for indexes of snowid');
    END LOOP;
END $do$;

CREATE FUNCTION snowid_hash(snowid) RETURNS int
    AS 'hashint8' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_hash(snowid) IS 'hash, that of a bigint';

CREATE FUNCTION snowid_hash_extended(snowid, bigint) RETURNS bigint
    AS 'hashint8extended' LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_hash_extended(snowid, bigint) IS 'hash with a seed, that of a bigint';

CREATE OPERATOR CLASS snowid_ops DEFAULT FOR TYPE snowid USING btree AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 (snowid, snowid) snowid_cmp(snowid, snowid),
    FUNCTION 2 (snowid, snowid) btint8sortsupport(internal),
    FUNCTION 4 (snowid, snowid) btequalimage(oid);
CREATE OPERATOR CLASS snowid_ops DEFAULT FOR TYPE snowid USING hash AS
    OPERATOR 1 =,
    FUNCTION 1 (snowid, snowid) snowid_hash(snowid),
    FUNCTION 2 (snowid, snowid) snowid_hash_extended(snowid, bigint);
CREATE OPERATOR CLASS snowid_minmax_ops DEFAULT FOR TYPE snowid USING brin AS
    OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
    FUNCTION 1 brin_minmax_opcinfo(internal),
    FUNCTION 2 brin_minmax_add_value(internal, internal, internal, internal),
    FUNCTION 3 brin_minmax_consistent(internal, internal, internal),
    FUNCTION 4 brin_minmax_union(internal, internal, internal);
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
        SELECT * FROM (VALUES ('snowid', 'bigint'), ('bigint', 'snowid'), ('snowid', 'int'), ('int', 'snowid'),
            ('snowid', 'smallint'), ('smallint', 'snowid')) v (l, r)
    LOOP
        EXECUTE pg_catalog.format('ALTER OPERATOR FAMILY snowid_ops USING btree ADD
                OPERATOR 1 < (%1$s, %2$s), OPERATOR 2 <= (%1$s, %2$s), OPERATOR 3 = (%1$s, %2$s),
                OPERATOR 4 >= (%1$s, %2$s), OPERATOR 5 > (%1$s, %2$s), FUNCTION 1 (%1$s, %2$s) snowid_cmp(%1$s, %2$s)',
            types.l, types.r);
        IF types.l = 'snowid' THEN
            EXECUTE pg_catalog.format('ALTER OPERATOR FAMILY snowid_minmax_ops USING brin ADD
                    OPERATOR 1 < (%1$s, %2$s), OPERATOR 2 <= (%1$s, %2$s), OPERATOR 3 = (%1$s, %2$s),
                    OPERATOR 4 >= (%1$s, %2$s), OPERATOR 5 > (%1$s, %2$s)',
                types.l, types.r);
        END IF;
    END LOOP;
END $do$;

-- For arrays of another type: a search by index sorts the elements for = ANY, and
-- takes the greatest for < ANY, the least for > ANY, all with the family of the
-- index.  A family has the operators of all pairs of its types, or none.
DO $do$
DECLARE
    types record;
    op record;
BEGIN
    FOR types IN
        SELECT l.name AS l, r.name AS r, CASE WHEN l.suffix = r.suffix THEN l.suffix ELSE l.suffix || r.suffix END AS suffix
        FROM (VALUES ('bigint', '8'), ('int', '4'), ('smallint', '2')) l (name, suffix),
            (VALUES ('bigint', '8'), ('int', '4'), ('smallint', '2')) r (name, suffix)
    LOOP
        FOR op IN
            SELECT * FROM (VALUES ('<', 'lt', '>', 'scalarlt'), ('<=', 'le', '>=', 'scalarle'), ('=', 'eq', '=', 'eq'),
                ('>=', 'ge', '<=', 'scalarge'), ('>', 'gt', '<', 'scalargt')) v (name, f, commutator, sel)
            WHERE name <> '=' OR types.suffix <> '8'
        LOOP
            EXECUTE pg_catalog.format('CREATE FUNCTION snowid_%1$s(%2$s, %3$s) RETURNS boolean
                    AS %4$L LANGUAGE internal IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE',
                op.f, types.l, types.r, 'int' || types.suffix || op.f);
            EXECUTE pg_catalog.format('COMMENT ON FUNCTION snowid_%1$s(%2$s, %3$s) IS %4$L',
                op.f, types.l, types.r, 'implementation of #' || op.name || ' operator');
            EXECUTE pg_catalog.format('CREATE OPERATOR #%1$s (FUNCTION = snowid_%2$s, LEFTARG = %3$s, RIGHTARG = %4$s,
                    COMMUTATOR = #%5$s, RESTRICT = %6$ssel, JOIN = %6$sjoinsel)',
                op.name, op.f, types.l, types.r, op.commutator, op.sel);
            EXECUTE pg_catalog.format('COMMENT ON OPERATOR #%1$s (%2$s, %3$s) IS %4$L',
                op.name, types.l, types.r, 'the order of numbers in the operator family of snowid; use ' || op.name);
        END LOOP;
        EXECUTE pg_catalog.format('ALTER OPERATOR FAMILY snowid_ops USING btree ADD
                OPERATOR 1 #< (%1$s, %2$s), OPERATOR 2 #<= (%1$s, %2$s), OPERATOR 4 #>= (%1$s, %2$s), OPERATOR 5 #> (%1$s, %2$s),
                FUNCTION 1 (%1$s, %2$s) snowid_cmp(%1$s, %2$s)',
            types.l, types.r);
        IF types.suffix <> '8' THEN
            EXECUTE pg_catalog.format('ALTER OPERATOR FAMILY snowid_ops USING btree ADD OPERATOR 3 #= (%1$s, %2$s)',
                types.l, types.r);
        END IF;
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

CREATE PROCEDURE snowid_make_partitions(parent regclass, step interval, ahead int,
        keep interval DEFAULT NULL)
    AS 'MODULE_PATHNAME' LANGUAGE C;
COMMENT ON PROCEDURE snowid_make_partitions(regclass, interval, int, interval) IS
    'makes partitions of a table that is partitioned by range of a key: one for the present day, week or month (UTC), and "ahead" more; detaches those older than "keep"; runs each command as the owner of the table, and commits it';

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
    -- all columns that take numbers from a sequence, but for those that a parent changes with its own
    FOR col IN
        WITH RECURSIVE above AS (
            SELECT inhrelid, inhparent FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid WHERE relnamespace = schema
            UNION
            SELECT a.inhrelid, i.inhparent FROM above a JOIN pg_inherits i ON i.inhrelid = a.inhparent),
        numbered AS (
            SELECT c.oid AS relid, relname, relnamespace, relkind, relowner, attnum, attname, atttypid, attinhcount > 0 AS is_inherited,
                attidentity <> '' AS is_identity, pg_get_expr(adbin, adrelid) ~ '^nextval[(]''([^'']|'''')*''::regclass[)]$' AS is_nextval,
                EXISTS (SELECT FROM pg_depend d JOIN pg_class s ON s.oid = d.objid
                        WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass
                            AND d.refobjid = c.oid AND d.refobjsubid = attnum AND d.deptype IN ('a', 'i')
                            AND s.relkind = 'S') AS is_owned
            FROM pg_class c JOIN pg_attribute a ON attrelid = c.oid
                LEFT JOIN pg_attrdef ON adrelid = c.oid AND adnum = attnum
            WHERE (relnamespace = schema OR c.oid IN (SELECT inhparent FROM above))
                AND relkind IN ('r', 'p', 'f') AND attnum > 0 AND NOT attisdropped
                AND (attidentity <> '' OR pg_get_expr(adbin, adrelid) ~ '(^|[^[:alnum:]_".])nextval[(]'))
        SELECT * FROM numbered n
        WHERE relnamespace = schema
            AND NOT (is_inherited AND EXISTS (
                SELECT FROM above JOIN numbered p ON p.relid = inhparent WHERE inhrelid = n.relid AND p.attname = n.attname))
        ORDER BY relname, attnum
    LOOP
        -- narrower columns that refer to it or are generated from it, and views that would need another type;
        -- bounds that keys would exceed, its own and those of the tables that get the default with it
        WITH RECURSIVE narrow AS (
            SELECT oid FROM pg_type WHERE oid IN ('integer'::regtype, 'smallint'::regtype)
            UNION
            SELECT t.oid FROM pg_type t JOIN narrow n ON n.oid = t.typbasetype),
        heirs AS (
            SELECT col.relid
            UNION
            SELECT inhrelid FROM pg_inherits JOIN heirs ON inhparent = relid),
        columns AS (
            SELECT relid, attnum FROM heirs JOIN pg_attribute ON attrelid = relid AND attname = col.attname)
        SELECT string_agg(what, ', ' ORDER BY what) INTO others FROM (
            SELECT format('%s.%I refers to it', conrelid::regclass, attname) AS what
            FROM pg_constraint JOIN pg_attribute ON attrelid = conrelid AND attnum = conkey[array_position(confkey, col.attnum)]
            WHERE contype = 'f' AND confrelid = col.relid AND conparentid = 0 AND atttypid IN (SELECT oid FROM narrow)
            UNION
            SELECT format('view %s has it', ev_class::regclass)
            FROM pg_depend JOIN pg_rewrite r ON r.oid = objid
            WHERE classid = 'pg_rewrite'::regclass AND refobjid = col.relid AND refobjsubid = col.attnum
                AND col.atttypid <> 'bigint'::regtype
            UNION
            SELECT format('%s is partitioned by it', relid::regclass)
            FROM columns JOIN pg_partitioned_table ON partrelid = relid AND partstrat <> 'h'
                JOIN pg_depend ON classid = 'pg_class'::regclass AND objid = relid AND objsubid = attnum
                    AND refclassid = 'pg_class'::regclass AND refobjid = relid AND refobjsubid = 0 AND deptype = 'i'
            UNION
            SELECT format('%s.%I is generated from it', relid::regclass, g.attname)
            FROM columns c JOIN pg_depend ON refclassid = 'pg_class'::regclass AND refobjid = relid AND refobjsubid = c.attnum
                    AND classid = 'pg_attrdef'::regclass
                JOIN pg_attrdef d ON d.oid = objid JOIN pg_attribute g ON g.attrelid = adrelid AND g.attnum = adnum
            WHERE g.attgenerated <> '' AND g.atttypid IN (SELECT oid FROM narrow)
            UNION
            SELECT format('%s has CHECK %I of it', relid::regclass, conname)
            FROM columns JOIN pg_constraint ON conrelid = relid AND contype = 'c' AND conislocal AND attnum = ANY (conkey)
            WHERE pg_get_constraintdef(pg_constraint.oid) !~ '^CHECK [(][(]("([^"]|"")+"|\w+) (>|>=|<>) [01][)][)]( NOT VALID)?$') o;
        others := concat_ws(', ', others,
            CASE WHEN NOT col.is_identity AND NOT col.is_nextval THEN 'its default is more than nextval()'
                WHEN NOT col.is_owned THEN 'its sequence is not its own' END,
            CASE WHEN col.relkind = 'f' THEN 'its table is a foreign table' END,
            CASE WHEN col.is_inherited THEN 'its table inherits it from one that has no such default' END,
            CASE WHEN col.relowner <> quote_ident(current_user)::regrole
                THEN format('its table is of another role: SET ROLE %I', pg_get_userbyid(col.relowner)) END);
        IF col.atttypid <> 'bigint'::regtype OR others <> '' THEN
            -- one line: what stood after a line break in a name would be run
            RETURN NEXT translate(concat_ws(', ', format('-- not done: %s.%I is %s', col.relid::regclass, col.attname,
                format_type(col.atttypid, NULL)), nullif(others, '')), E'\n\r', '  ');
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
    E'commands that change the serial and identity columns of type bigint in a schema to snowid_next(), one for each column, for \\gexec of psql; comments name the columns with a sequence that are left, and why, for instance those of another role''s table';
