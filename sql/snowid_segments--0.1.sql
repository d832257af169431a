/* snowid_segments--0.1.sql: the SQL surface of snowid_segments 0.1; frozen once released */

\echo Use "CREATE EXTENSION snowid_segments" to load this file. \quit

-- Plain numbers under a tag, from memory, a range at a time from a table.  The library
-- is that of snowid; its SQL is not needed.

-- The script may run as a superuser in the schema of an ordinary user.  So a
-- call names pg_catalog if a function in the schema could fit better.

-- Is the server's library new enough for this script?

CREATE FUNCTION snowid_require_library(version text) RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE C STRICT;
SELECT snowid_require_library('0.1'::pg_catalog.text);
DROP FUNCTION snowid_require_library(text);

-- The tables

CREATE TABLE snowid_segments (
    biz_tag     text PRIMARY KEY CHECK (pg_catalog.octet_length(biz_tag) BETWEEN 1 AND 128),
    max_id      bigint NOT NULL DEFAULT 0 CHECK (max_id >= 0),
    step        int NOT NULL DEFAULT 1000 CHECK (step BETWEEN 1 AND 1000000),
    description text,
    update_time timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    limit_id    bigint,
    cover       interval NOT NULL DEFAULT '10 s' CHECK (cover BETWEEN '0' AND '1 day'),
    source      text,
    role        regrole,
    period      text NOT NULL DEFAULT 'none',
    zone        text NOT NULL DEFAULT 'UTC',
    format      text
) WITH (fillfactor = 50);
COMMENT ON TABLE snowid_segments IS 'tags under which snowid_number() hands out plain numbers';
COMMENT ON COLUMN snowid_segments.max_id IS 'the greatest number that any server has fetched; it never falls';
COMMENT ON COLUMN snowid_segments.step IS 'the least length of a range that a server fetches, in numbers';
COMMENT ON COLUMN snowid_segments.update_time IS 'when the row was last changed';
COMMENT ON COLUMN snowid_segments.limit_id IS 'the last number; null: the last of bigint';
COMMENT ON COLUMN snowid_segments.cover IS 'how long a range should last: its length is doubled or halved accordingly';
COMMENT ON COLUMN snowid_segments.source IS 'the foreign server of postgres_fdw that hands out the ranges; null: this table';
COMMENT ON COLUMN snowid_segments.role IS 'the role whose members get numbers; null: everybody';
COMMENT ON COLUMN snowid_segments.period IS 'day, month or year: numbers begin again in each, and max_id is in snowid_segment_periods; or none';
COMMENT ON COLUMN snowid_segments.zone IS 'the time zone of the period';
COMMENT ON COLUMN snowid_segments.format IS 'how snowid_period_serial() writes period and number, such as INV-{YYYYMMDD}-{N:6}';
SELECT pg_catalog.pg_extension_config_dump('snowid_segments', '');

CREATE FUNCTION snowid_segments_guard() RETURNS trigger
    AS 'MODULE_PATHNAME' LANGUAGE C;
REVOKE ALL ON FUNCTION snowid_segments_guard() FROM PUBLIC;
COMMENT ON FUNCTION snowid_segments_guard() IS
    'keeps max_id from falling, and applies changes by hand to the next number';
CREATE TRIGGER guard BEFORE INSERT OR UPDATE OR DELETE ON snowid_segments
    FOR EACH ROW EXECUTE FUNCTION snowid_segments_guard();
CREATE TRIGGER guard_all BEFORE TRUNCATE ON snowid_segments
    FOR EACH STATEMENT EXECUTE FUNCTION snowid_segments_guard();
ALTER TABLE snowid_segments ENABLE ALWAYS TRIGGER guard, ENABLE ALWAYS TRIGGER guard_all;

CREATE TABLE snowid_segment_periods (
    biz_tag     text NOT NULL,
    period      date NOT NULL CHECK (period BETWEEN '0001-01-01' AND '9999-12-31'),
    max_id      bigint NOT NULL CHECK (max_id >= 0),
    update_time timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    PRIMARY KEY (biz_tag, period)
) WITH (fillfactor = 50);
COMMENT ON TABLE snowid_segment_periods IS 'the numbers of each tag of snowid_segments that has periods, in each period';
COMMENT ON COLUMN snowid_segment_periods.period IS 'its first day';
COMMENT ON COLUMN snowid_segment_periods.max_id IS 'the greatest number that any server has fetched; it never falls';
GRANT SELECT ON snowid_segments, snowid_segment_periods TO PUBLIC;
GRANT INSERT, UPDATE, DELETE, TRUNCATE ON snowid_segments, snowid_segment_periods TO pg_database_owner;
SELECT pg_catalog.pg_extension_config_dump('snowid_segment_periods', '');
CREATE TRIGGER guard BEFORE INSERT OR UPDATE OR DELETE ON snowid_segment_periods
    FOR EACH ROW EXECUTE FUNCTION snowid_segments_guard('periods');
CREATE TRIGGER guard_all BEFORE TRUNCATE ON snowid_segment_periods
    FOR EACH STATEMENT EXECUTE FUNCTION snowid_segments_guard('periods');
ALTER TABLE snowid_segment_periods ENABLE ALWAYS TRIGGER guard, ENABLE ALWAYS TRIGGER guard_all;

-- A range of a tag, for the process here and for other servers.  All calls are
-- prepared now, so that nothing depends on names when they run.  The library calls them
-- as their owner; who may call them directly gets no other rights by that.

-- Locks a tag's row; its newest period, and that one's max_id.  No row: it is locked.
CREATE FUNCTION snowid_segment_lock(tag text, OUT period int, OUT max_id bigint)
    LANGUAGE sql VOLATILE
BEGIN ATOMIC
    SELECT p.period - date '2000-01-01', p.max_id
    FROM snowid_segments s LEFT JOIN LATERAL (SELECT n.period, n.max_id FROM snowid_segment_periods n
        WHERE n.biz_tag = s.biz_tag ORDER BY n.period DESC LIMIT 1) p ON true
    WHERE s.biz_tag = tag FOR NO KEY UPDATE OF s SKIP LOCKED;
END;
REVOKE ALL ON FUNCTION snowid_segment_lock(text) FROM PUBLIC;
COMMENT ON FUNCTION snowid_segment_lock(text) IS 'internal: locks a tag for the process "snowid segments"';

-- Days are counted from 2000-01-01.  Up to "high", numbers of the day "seen" were handed
-- out, or of a tag without periods.  A length below 0 gives that many back, if they were
-- the last ones; the trigger lets the process here alone do so.
CREATE FUNCTION snowid_segment_take_row(tag text, kind text, label int, seen int, high bigint,
        upto bigint, length bigint, OUT first bigint, OUT last bigint, OUT period int, OUT problem text)
    LANGUAGE sql VOLATILE SET lock_timeout = '500ms'
BEGIN ATOMIC
    WITH held AS MATERIALIZED (
        SELECT s.max_id, s.source, s.period AS of_kind, LEAST(s.limit_id, upto, 9223372036854775807) AS top
        FROM snowid_segments s WHERE s.biz_tag = tag FOR NO KEY UPDATE SKIP LOCKED
    ), chosen AS MATERIALIZED (  -- the period of now, or the newest one if that is later
        SELECT CASE WHEN kind <> 'none' AND h.of_kind = kind THEN GREATEST(date '2000-01-01' + label,
            pg_catalog.date_trunc(kind, GREATEST(date '2000-01-01' + seen, (SELECT pg_catalog.max(p.period)
                FROM snowid_segment_periods p WHERE p.biz_tag = tag))::timestamp)::date) END AS day
        FROM held h
    ), row_of_day AS MATERIALIZED (
        SELECT p.max_id FROM snowid_segment_periods p
        WHERE p.biz_tag = tag AND p.period = (SELECT c.day FROM chosen c) FOR NO KEY UPDATE SKIP LOCKED
    ), known AS MATERIALIZED (
        SELECT h.source, h.of_kind, h.top, c.day,
            CASE WHEN kind = 'none' THEN h.max_id ELSE COALESCE(d.max_id, 0) END AS old,
            CASE WHEN kind = 'none' OR c.day = date '2000-01-01' + seen THEN high ELSE 0 END AS least,
            d.max_id IS NULL AND EXISTS (SELECT FROM snowid_segment_periods p
                WHERE p.biz_tag = tag AND p.period = c.day) AS is_locked
        FROM held h CROSS JOIN chosen c LEFT JOIN row_of_day d ON true
    ), judged AS MATERIALIZED (
        SELECT k.*, CASE WHEN length < 0 THEN length ELSE LEAST(length, 1000000, k.top - k.old) END AS n,
            CASE WHEN k.source IS NOT NULL THEN 'source' WHEN k.of_kind <> kind THEN 'period'
                WHEN k.is_locked THEN 'locked'
                WHEN k.old < k.least OR length < 0 AND k.old > k.least THEN 'behind' END AS wrong
        FROM known k
    ), tags AS (
        UPDATE snowid_segments s SET max_id = j.old + j.n, update_time = 'infinity'
        FROM judged j WHERE s.biz_tag = tag AND kind = 'none' AND j.wrong IS NULL
            AND (j.n > 0 OR length < 0)
        RETURNING s.max_id
    ), days AS (
        INSERT INTO snowid_segment_periods AS p (biz_tag, period, max_id, update_time)
        SELECT tag, j.day, j.old + j.n, 'infinity'::timestamptz
        FROM judged j WHERE kind <> 'none' AND j.wrong IS NULL
            AND (j.n > 0 OR length < 0)
        ON CONFLICT (biz_tag, period) DO UPDATE SET max_id = excluded.max_id, update_time = 'infinity'
            WHERE p.max_id = (SELECT j.old FROM judged j)
        RETURNING p.max_id
    )
    SELECT CASE WHEN done.max_id IS NOT NULL THEN j.old + 1 END,
        COALESCE(done.max_id, j.top), j.day - date '2000-01-01',
        CASE WHEN j.top IS NOT NULL THEN COALESCE(j.wrong, CASE WHEN done.max_id IS NULL AND j.n > 0 THEN 'locked' END)
            WHEN EXISTS (SELECT FROM snowid_segments s WHERE s.biz_tag = tag) THEN 'locked' ELSE 'absent' END
    FROM (VALUES (1)) one (x) LEFT JOIN judged j ON true
        LEFT JOIN (SELECT t.max_id FROM tags t UNION ALL SELECT d.max_id FROM days d) done ON true;
END;
REVOKE ALL ON FUNCTION snowid_segment_take_row(text, text, int, int, bigint, bigint, bigint) FROM PUBLIC;
COMMENT ON FUNCTION snowid_segment_take_row(text, text, int, int, bigint, bigint, bigint) IS
    'internal: what snowid_segment_take() does, when it has looked at the tables';

CREATE FUNCTION snowid_segment_take(tag text, kind text, label int, seen int, high bigint,
        upto bigint, length bigint, OUT first bigint, OUT last bigint, OUT period int, OUT problem text)
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION snowid_segment_take(text, text, int, int, bigint, bigint, bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION snowid_segment_take(text, text, int, int, bigint, bigint, bigint)
    TO pg_database_owner WITH GRANT OPTION;
COMMENT ON FUNCTION snowid_segment_take(text, text, int, int, bigint, bigint, bigint) IS
    'takes a range of a tag for another server, whose source this one is';

CREATE FUNCTION snowid_number(tag text) RETURNS bigint
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION snowid_number(text) IS
    'the next number of a tag in snowid_segments, greater than all that this server handed out before; waits for up to snowid.max_wait, then raises an error that says why';

CREATE FUNCTION snowid_number_range(tag text, count int, OUT first bigint, OUT last bigint)
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION snowid_number_range(text, int) IS
    'count consecutive numbers of a tag (1 to 1000000), all for the caller';

CREATE FUNCTION snowid_period_number(tag text, OUT period date, OUT number bigint)
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION snowid_period_number(text) IS
    'the next number of a tag in the present day, month or year, and the first day of that period';

CREATE FUNCTION snowid_period_serial(tag text) RETURNS text
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;
COMMENT ON FUNCTION snowid_period_serial(text) IS
    'the next number of a tag in the present period, as text in the tag''s format';

CREATE FUNCTION snowid_period_parse(tag text, serial text, OUT period date, OUT number bigint)
    AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION snowid_period_parse(text, text) IS
    'period and number of a serial, by the present format of the tag';

CREATE FUNCTION snowid_segment_forget(tag text) RETURNS void
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
REVOKE ALL ON FUNCTION snowid_segment_forget(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION snowid_segment_forget(text) TO pg_database_owner;
COMMENT ON FUNCTION snowid_segment_forget(text) IS
    'drops the ranges of a tag from this server''s memory, so that its next number comes from the table';

CREATE FUNCTION snowid_segment_status(OUT biz_tag text, OUT source text,
        OUT period date, OUT next bigint, OUT "left" bigint, OUT left_next bigint, OUT step bigint,
        OUT rate float8, OUT cover_left float8, OUT waits bigint, OUT error text)
    RETURNS SETOF record
    AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL SAFE ROWS 100;
REVOKE ALL ON FUNCTION snowid_segment_status() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION snowid_segment_status() TO pg_monitor, pg_database_owner;
COMMENT ON FUNCTION snowid_segment_status() IS
    'the tags of this database in memory: newest period, next number, numbers left of the range and of the one after it, length of the last range, numbers a second, seconds that the rest lasts, calls that had to wait, last error';
