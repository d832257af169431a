-- Keys taken apart and put together by a layout given as text.
SET timezone = 'UTC';
SET datestyle = 'ISO';
CREATE EXTENSION snowid;
\set ECHO none
\getenv dir PG_ABS_SRCDIR
\i :dir/test/lib/try.sql
\set ECHO all

-- The known keys of the field
CREATE TABLE known (format text, layout text, id bigint);
INSERT INTO known VALUES
    ('twitter', 'twitter', 1541815603606036480),
    ('twitter', 'twitter', 1593572310593806338),
    ('twitter', 'twitter', 1098230906194546688),
    ('twitter', 'twitter', 1268118639732232192),
    ('discord', 'discord', 175928847299117063),
    ('discord', 'discord', 105484726235607040),
    ('instagram', 'instagram', 3870172288071432645),
    ('mastodon', 'mastodon', 98776444300593659),
    ('sonyflake', 'sonyflake', 314948827708654619),
    ('pgedge', 'pgedge', 136169504773242881),
    ('tsid', 'epoch=2020-01-01T00:00:00Z sequence=22', 388400145978465528),
    -- MyBatis-Plus and Hutool have Twitter's layout, Hutool also with an epoch of its own
    ('mybatis-plus', 'twitter', 1561666810058739714),
    ('mybatis-plus', 'twitter', 1900366127446528002),
    ('hutool', 'twitter', 2023789535040511999),
    ('hutool', 'epoch=2020-01-01T00:00:00+08 datacenter=5 worker=5 sequence=12', 811748818948710400),
    ('leaf', 'leaf', 1855762361352040505),
    ('baidu', 'baidu', 7676587325810163711),
    ('baidu', 'baidu', 9223372036854775807),
    -- from issue 5058, in whose log they were made at 14:14:12 of +08, and from its tests
    ('shardingsphere', 'shardingsphere', 452837411152461833),
    ('shardingsphere', 'shardingsphere', 20971521),
    -- from their own tests and pages
    ('cosid', 'cosid', 295913926632165376),
    ('cosid', 'cosid', 266300479548424192),
    ('yitter', 'yitter', 234712552579141),
    ('yitter', 'yitter', 234712552591433),
    ('pgdog', 'pgdog', 47839699276046337),
    ('pgdog', 'pgdog', 47839699280240640);
SELECT format, id, d.* FROM known, snowid_decode(id, layout) d ORDER BY known;
-- encode is the inverse; 0 where the format has no such field
SELECT count(*) AS keys, bool_and(id = snowid_encode(created_at,
           coalesce(datacenter_id, 0), coalesce(worker_id, 0), sequence, layout)) AS same,
       bool_and(created_at = snowid_timestamp(id, layout)) AS same_time,
       bool_and(id BETWEEN snowid_min(created_at, layout) AND snowid_max(created_at, layout)) AS within,
       bool_and(replace(snowid_bits(id, layout), ' ', '')::bit(64)::bigint = id) AS same_bits
FROM known, snowid_decode(id, layout);
SELECT format, snowid_bits(id, layout) FROM known ORDER BY known;

-- The named layouts, and one spelled out that is the same
SELECT * FROM snowid_layouts();
SELECT snowid_decode(1541815603606036480, 'twitter') =
       snowid_decode(1541815603606036480, ' sequence=12  worker=5 epoch=2010-11-04T02:42:54.657+01:00 datacenter=5 ') AS same,
       snowid_decode(1541815603606036480, 'Twitter') IS NOT NULL AS any_case;
SELECT snowid_timestamp(0, 'epoch=2020-01-01T00:00:00' || zone) AS epoch
FROM unnest(ARRAY['Z', '+00', '-05:30', '+1400', '.5Z', '.123-00:00']) zone;

-- The ends of the range
SELECT snowid_min('2010-11-04 01:42:54.657Z', 'twitter'),
       snowid_max('2010-11-04 01:42:54.657999Z', 'twitter'),
       snowid_min('2080-07-10 17:30:30.208Z', 'twitter'),
       snowid_max('2080-07-10 17:30:30.208Z', 'twitter');
SELECT snowid_decode(9223372036854775807, 'twitter'), snowid_decode(0, 'twitter');
SELECT snowid_timestamp(snowid_min(t, l), l) = date_trunc('milliseconds', t) AS same,
       snowid_timestamp(snowid_max(t, l), l) = date_trunc('milliseconds', t) AS same_max
FROM unnest(ARRAY['2024-02-29 23:59:59.999999Z', '2038-01-19 03:14:08.000001Z']::timestamptz[]) t,
     unnest(ARRAY['twitter', 'discord', 'mastodon', 'epoch=2000-01-01T00:00:00Z']) l;
SELECT snowid_timestamp(snowid_min('1969-12-31 23:59:59.9995Z', l), l)
FROM (VALUES ('epoch=1960-01-01T00:00:00Z sequence=12')) v(l);
CALL try(
    $$snowid_min('2010-11-04 01:42:54.656999Z', 'twitter')$$,
    $$snowid_max('2080-07-10 17:30:30.209Z', 'twitter')$$,
    $$snowid_min('-infinity', 'twitter')$$,
    $$snowid_max('infinity', 'twitter')$$,
    $$snowid_min('294276-12-31 23:59:59.999999Z', 'epoch=2000-01-01T00:00:00Z') > 0$$,
    $$snowid_min('4713-01-01 00:00:00Z BC', 'epoch=2000-01-01T00:00:00Z')$$,
    $$snowid_timestamp(9223372036854775807, 'epoch=2000-01-01T00:00:00Z')$$,
    $$snowid_timestamp(-1, 'twitter')$$,
    $$snowid_decode(-9223372036854775808, 'twitter')$$,
    $$snowid_bits(-1, 'twitter')$$,
    $$snowid_encode('infinity', 0, 0, 0, 'twitter')$$,
    $$snowid_encode('2020-01-01Z', 32, 0, 0, 'twitter')$$,
    $$snowid_encode('2020-01-01Z', 0, -1, 0, 'twitter')$$,
    $$snowid_encode('2020-01-01Z', 0, 0, 4096, 'twitter')$$,
    $$snowid_encode('2020-01-01Z', 1, 0, 0, 'mastodon')$$,
    -- A mistake in a layout is pointed at
    $$snowid_decode(1, '')$$,
    $$snowid_decode(1, 'twiter')$$,
    $$snowid_decode(1, 'epoch=2020-01-01T00:00:00 worker=5')$$,
    $$snowid_decode(1, 'worker=5')$$,
    $$snowid_decode(1, 'epoch=yesterday')$$,
    $$snowid_decode(1, 'epoch=2021-02-29T00:00:00Z')$$,
    $$snowid_decode(1, 'epoch=2020-01-01T00:00:00.Z')$$,
    $$snowid_decode(1, 'epoch=2020-01-01T00:00:60Z')$$,
    $$snowid_decode(1, 'epoch=2020-01-01T00:00:00+0')$$,
    $$snowid_decode(1, 'epoch=2020-01-01T00:00:00Z epoch=2020-01-01T00:00:00Z')$$,
    $$snowid_decode(1, 'epoch=2020-01-01T00:00:00Z worker=32')$$,
    $$snowid_decode(1, 'epoch=2020-01-01T00:00:00Z worker=-1')$$,
    $$snowid_decode(1, 'epoch=2020-01-01T00:00:00Z worker=')$$,
    $$snowid_decode(1, 'epoch=2020-01-01T00:00:00Z worker=5x')$$,
    $$snowid_decode(1, 'epoch=2020-01-01T00:00:00Z worker=5 worker=5')$$,
    $$snowid_decode(1, 'epoch=2020-01-01T00:00:00Z node=5')$$,
    $$snowid_decode(1, 'epoch=2020-01-01T00:00:00Z datacenter=31 worker=31 sequence=1')$$,
    -- 53 timestamp bits: the range ends before the greatest timestamptz
    $$snowid_max('287396-10-12 08:59:00.991Z', 'epoch=1970-01-01T00:00:00Z sequence=10')$$,
    $$snowid_decode(9223372036854775807, 'epoch=1970-01-01T00:00:00Z sequence=10')$$,
    $$snowid_max('287396-10-12 08:59:00.992Z', 'epoch=1970-01-01T00:00:00Z sequence=10')$$,
    $$snowid_max('290000-01-01Z', 'epoch=1970-01-01T00:00:00Z sequence=10')$$,
    $$snowid_max('294276-12-31 23:59:59.999Z', 'epoch=0001-01-01T00:00:00Z sequence=10') > 0$$,
    $$snowid_max('294276-12-31 23:59:59.999Z', 'epoch=0001-01-01T00:00:00Z sequence=9') > 0$$,
    -- epochs from the first to the last millisecond that can be written
    $$created_at FROM snowid_decode(0, 'epoch=0001-01-01T01:00:00+01')$$,
    $$created_at FROM snowid_decode(0, 'epoch=9999-12-31T22:59:59.999-01')$$,
    $$snowid_decode(0, 'epoch=0001-01-01T00:59:59.999+01')$$,
    $$snowid_decode(0, 'epoch=9999-12-31T23:00:00-01')$$);

-- STRICT; a layout that changes from row to row; IMMUTABLE enough for an index
SELECT snowid_decode(NULL, 'twitter'), snowid_decode(1, NULL), snowid_min(NULL, 'twitter');
SELECT l, snowid_timestamp(175928847299117063, l)
FROM unnest(ARRAY['discord', 'twitter', 'discord', 'pgedge']) l;
CREATE INDEX ON known (snowid_timestamp(id, 'twitter'));
SELECT p.provolatile AS volatile, p.proparallel AS parallel, p.proisstrict AS strict,
       string_agg(p.oid::regprocedure::text, ' ' ORDER BY p.proname COLLATE "C", p.pronargs) AS functions
FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.deptype = 'e'
     JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'snowid'
     JOIN pg_language l ON l.oid = p.prolang AND l.lanname <> 'internal'
GROUP BY 1, 2, 3 ORDER BY 1, 2, 3;
-- nothing without a comment
SELECT count(*) FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.deptype = 'e'
WHERE p.proname LIKE 'snowid%' AND obj_description(p.oid) IS NULL;
DROP TABLE known;
DROP PROCEDURE try;
DROP EXTENSION snowid;
