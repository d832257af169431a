-- Segments: values, NULL, edges, errors with their SQLSTATE, rights.  What needs
-- servers of its own is in test/t/segment/numbers.pl to segment/periods.pl.
CREATE EXTENSION snowid_segments;
\set ECHO none
\getenv dir PG_ABS_SRCDIR
\i :dir/test/lib/try.sql
\set ECHO all
SET timezone = 'UTC';
SET datestyle = 'ISO';

-- how they are marked
SELECT p.oid::regprocedure AS function, provolatile, proparallel, proisstrict,
    has_function_privilege('public', p.oid, 'EXECUTE') AS public
FROM pg_proc p
WHERE proname ~ '^snowid_(number|period|segment)' AND prorettype <> 'trigger'::regtype
ORDER BY proname COLLATE "C";
SELECT relname, has_table_privilege('public', oid, 'SELECT') AS public_reads,
    has_table_privilege('public', oid, 'INSERT, UPDATE, DELETE, TRUNCATE') AS public_writes,
    has_table_privilege('pg_database_owner', oid, 'UPDATE') AS owner_writes
FROM pg_class WHERE relname ~ '^snowid_segment' AND relkind = 'r' ORDER BY 1;
SELECT tgrelid::regclass AS of_table, tgname, tgenabled
FROM pg_trigger WHERE tgname LIKE 'guard%' ORDER BY tgrelid::regclass::text COLLATE "C", tgname;
-- nothing without a comment, and nothing of the other extension
SELECT count(*) FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.deptype = 'e'
WHERE p.proname LIKE 'snowid%' AND obj_description(p.oid) IS NULL;
SELECT to_regproc('snowid_next') AS key, to_regtype('snowid') AS type;

-- the table
CALL try(
    $$INSERT INTO snowid_segments (biz_tag) VALUES ('')$$,
    $$INSERT INTO snowid_segments (biz_tag) VALUES (repeat('x', 129))$$,
    $$INSERT INTO snowid_segments (biz_tag, max_id) VALUES ('a', -1)$$,
    $$INSERT INTO snowid_segments (biz_tag, step) VALUES ('a', 0)$$,
    $$INSERT INTO snowid_segments (biz_tag, step) VALUES ('a', 1000001)$$,
    $$INSERT INTO snowid_segments (biz_tag, cover) VALUES ('a', '-1 s')$$,
    $$INSERT INTO snowid_segments (biz_tag, cover) VALUES ('a', '25 h')$$,
    $$INSERT INTO snowid_segments (biz_tag, period) VALUES ('a', 'week')$$,
    $$INSERT INTO snowid_segments (biz_tag, period, zone) VALUES ('a', 'day', 'Moon/Crater')$$,
    $$INSERT INTO snowid_segments (biz_tag) VALUES (NULL)$$,
    $$INSERT INTO snowid_segment_periods VALUES (NULL, '2026-11-21', 1)$$,
    $$INSERT INTO snowid_segment_periods VALUES ('a', NULL, 1)$$,
    $$INSERT INTO snowid_segment_periods VALUES ('a', 'infinity', 1)$$,
    $$INSERT INTO snowid_segment_periods VALUES ('a', '2026-11-21', -1)$$,
    $$snowid_segments_guard()$$);

-- formats: taken, or what is wrong
CREATE FUNCTION try_format(period text, format text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO snowid_segments (biz_tag, period, format) VALUES ('format', $1, $2);
    DELETE FROM snowid_segments WHERE biz_tag = 'format';
    RETURN 'taken';
EXCEPTION WHEN invalid_parameter_value THEN
    DECLARE
        detail text;
    BEGIN
        GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
        RETURN detail;
    END;
END $$;
\pset format unaligned
SELECT period, format, try_format(period, format)
FROM (VALUES ('day', 'INV-{YYYYMMDD}-{N:6}'), ('day', '{DD}/{MM}/{YYYY}_{N:18}'),
    ('month', 'M{YYYYMM}{N:1}'), ('year', '{N:3}/{YYYY}'),
    ('day', ''), ('day', '{YYYYMM}{N:6}'), ('month', '{YYYYMMDD}{N:6}'), ('year', '{YYYYMM}{N:6}'),
    ('none', '{YYYY}{N:6}'), ('day', '{YYYYMMDD}'), ('day', '{YYYYMMDD}{N:6}{N:6}'),
    ('day', '{YYYYMMDD}{YYYY}{N:6}'), ('year', '{YYYY}{N:0}'), ('year', '{YYYY}{N:19}'),
    ('year', '{YYYY}{N:-1}'), ('year', '{YYYY}{N: 1}'), ('year', '{YYYY}{N}'), ('year', '{YYYYN:3}'),
    ('year', '{YYYY{N:3}'), ('year', '{YYYY}{N:3'), ('year', '{YYYY}}{N:3}'), ('year', '{}{YYYY}{N:3}'),
    ('year', '{YYYY{N:3}}'), ('year', 'a}{YYYY}{N:3}'), ('year', 'a b{YYYY}{N:3}'), ('year', 'ä{YYYY}{N:3}'), ('year', '{yyyy}{N:3}'),
    ('year', repeat('x', 53) || '{YYYY}{N:3}'), ('year', repeat('x', 54) || '{YYYY}{N:3}')) f (period, format);
\pset format aligned

-- numbers
INSERT INTO snowid_segments (biz_tag, limit_id) VALUES ('a', NULL), ('few', 2);
SELECT snowid_number('a'), snowid_number('a');
SELECT snowid_number('a') AS n FROM generate_series(1, 3);
SELECT * FROM snowid_number_range('a', 10);
SELECT snowid_number(NULL), (snowid_number_range('a', NULL)).first;
CALL try(
    $$snowid_number_range('a', 0)$$,
    $$snowid_number_range('a', 1000001)$$,
    $$snowid_number('')$$,
    $$snowid_number(repeat('x', 129))$$,
    $$snowid_number('absent')$$);
SELECT count(snowid_number('few')) FROM generate_series(1, 2);
CALL try(
    $$snowid_number('few')$$,
    $$UPDATE snowid_segments SET max_id = 0 WHERE biz_tag = 'a'$$);

-- numbers in periods
INSERT INTO snowid_segments (biz_tag, period, zone, format)
VALUES ('day', 'day', 'Asia/Shanghai', 'D{YYYYMMDD}-{N:4}'), ('bare', 'month', 'UTC', NULL), ('year', 'year', 'UTC', '{YYYY}/{N:4}');
SELECT period = date_trunc('year', now()) AS this_year, number FROM snowid_period_number('year');
SELECT snowid_period_serial('year') = extract(year FROM now()) || '/0002' AS second;
SELECT * FROM snowid_period_parse('day', 'D20261121-0002');
SELECT extract(day FROM period) AS first, number FROM snowid_period_number('bare');
SELECT snowid_period_number(NULL), snowid_period_serial(NULL), snowid_period_parse('day', NULL);
CALL try(
    $$snowid_number('day')$$,
    $$snowid_period_number('a')$$,
    $$snowid_period_serial('a')$$,
    $$snowid_period_serial('bare')$$);
SELECT number AS second FROM snowid_period_number('bare');
CALL try(
    $$snowid_period_number('absent')$$,
    $$snowid_period_number('')$$);

-- serials that are none
CALL try(
    $$snowid_period_parse('bare', '1')$$,
    $$snowid_period_parse('absent', '1')$$,
    $$snowid_period_parse('day', '')$$,
    $$snowid_period_parse('day', 'D20261121-00002')$$,
    $$snowid_period_parse('day', 'D20261121-002')$$,
    $$snowid_period_parse('day', 'E20261121-0002')$$,
    $$snowid_period_parse('day', 'D20261121-000a')$$,
    $$snowid_period_parse('day', 'D20261121-01-2')$$,
    $$snowid_period_parse('day', 'D20261121-0000')$$);
BEGIN;
REVOKE SELECT ON snowid_segments FROM PUBLIC;
SET LOCAL ROLE pg_monitor;
SELECT snowid_period_parse('day', 'D20261121-0001');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
CALL try(
    $$snowid_period_parse('day', 'D20261131-0001')$$,
    $$snowid_period_parse('day', 'D20261321-0001')$$,
    $$snowid_period_parse('day', 'D20260021-0001')$$,
    $$snowid_period_parse('day', 'D20260200-0001')$$,
    $$snowid_period_parse('day', 'D20260229-0001')$$);
SELECT * FROM snowid_period_parse('day', 'D20240229-9999');
SELECT snowid_period_parse('day', 'D00000101-0001');
\echo :LAST_ERROR_SQLSTATE
BEGIN;
CREATE TEMP TABLE snowid_segments (biz_tag text, format text);
SELECT * FROM snowid_period_parse('day', 'D20240229-0001');
ROLLBACK;

-- what is in memory
SELECT biz_tag, source, period IS NOT NULL AS has_period, error
FROM snowid_segment_status() ORDER BY biz_tag COLLATE "C";
SELECT snowid_segment_forget('a'), snowid_segment_forget('absent'), snowid_segment_forget(NULL);
SELECT snowid_number('a') AS goes_on;
DROP FUNCTION try_format;
DROP PROCEDURE try;
DROP EXTENSION snowid_segments;
