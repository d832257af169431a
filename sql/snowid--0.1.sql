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
    'makes every later key greater than id, a key by this server''s layout that leads the clock by snowid.max_jump at most; keys wait until the clock is within snowid.max_drift of it';

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
        OUT registry_ok_at timestamptz, OUT lease_ceiling timestamptz)
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL SAFE;
COMMENT ON FUNCTION snowid_status() IS
    'the state of this server''s generator: its pair, whether it makes keys or why not, layout, last key, its lead over the clock in ms, the time up to which keys are reserved, counters since the start; and, where the worker ID comes from Redis, the claim''s state, the last error and when Redis last answered';
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
    'claims another worker ID for this server and gives the present one back, without a restart; returns the new one, with which keys go on after snowid.max_drift';
