-- Keys as text: base32 and base62.
CREATE EXTENSION snowid;
\set ECHO none
\getenv dir PG_ABS_SRCDIR
\i :dir/test/lib/try.sql
\set ECHO all

-- Texts of other libraries: odan/tsid, tsid-ts; and the ends of the range
SELECT id, snowid_to_base32(id) = base32 AS same, snowid_from_base32(base32) = id AS back
FROM (VALUES (388400145978465528, '0ARYZVZXW377R'), (501438102971408389, '0DXBQ9H279R05'),
             (0, '0000000000000'), (31, '000000000000Z'), (32, '0000000000010'),
             (9223372036854775807, '7ZZZZZZZZZZZZ')) v(id, base32);
SELECT id, snowid_to_base62(id) = base62 AS same, snowid_from_base62(base62) = id AS back
FROM (VALUES (0, '00000000000'), (61, '0000000000z'), (62, '00000000010'), (35, '0000000000Z'),
             (36, '0000000000a'), (9223372036854775807, 'AzL8n0Y58m7')) v(id, base62);
-- numbers all over the range
SELECT count(*), bool_and(snowid_from_base32(snowid_to_base32(id)) = id) AS base32,
       bool_and(snowid_from_base62(snowid_to_base62(id)) = id) AS base62,
       bool_and(length(snowid_to_base32(id)) = 13 AND length(snowid_to_base62(id)) = 11) AS width
FROM (SELECT (power(1.7::numeric, n) + i)::bigint AS id FROM generate_series(0, 82) n, generate_series(0, 40) i) s;

-- People's spelling
SELECT snowid_from_base32(t) = snowid_from_base32('01ARYZVZXW377') AS same
FROM unnest(ARRAY['01aryzvzxw377', 'OIARYZVZXW377', 'oLaryZVZXW377', '0larYZVZXW377', '0i-ARYZ-VZXW-377', '-01ARYZVZXW377--']) t;

-- Text sorts as keys do (test/t/forms/text_and_type.pl has other collations)
CREATE TABLE keys AS SELECT (n * 92233720368547)::bigint + n AS id FROM generate_series(0, 99999) n;
SELECT bool_and(a < b COLLATE "C") AS base32, bool_and(c < d COLLATE "C") AS base62
FROM (SELECT snowid_to_base32(id) AS a, lead(snowid_to_base32(id)) OVER w AS b,
             snowid_to_base62(id) AS c, lead(snowid_to_base62(id)) OVER w AS d
      FROM keys WINDOW w AS (ORDER BY id)) s;
CREATE INDEX ON keys (snowid_to_base32(id));

-- What is none is pointed at
CALL try(
    $$snowid_from_base32('01ARYZVZXW37')$$,
    $$snowid_from_base32('')$$,
    $$snowid_from_base32('01ARYZVZXW3777')$$,
    $$snowid_from_base32('01ARYZVZUW377')$$,
    $$snowid_from_base32(' 01ARYZVZXW377')$$,
    -- an error, and so the log, shows the beginning of a long text alone
    $$snowid_from_base32(repeat('9', 100000))$$,
    $$snowid_from_base62(repeat('e', 101))$$,
    $$snowid_timestamp(5, repeat('a ', 100000))$$,
    $$snowid_timestamp(5, repeat('a', 100000))$$,
    $$snowid_serial_id(repeat('1', 100000), 'A', 'Z', 'twitter')$$,
    $$snowid_serial(repeat('a', 100000), 5, 'Z', 'twitter')$$,
    $$snowid_serial('A', 5, repeat('+', 100000), 'twitter')$$,
    $$snowid_from_base32('01ARYZVZXW377' || chr(10))$$,
    $$snowid_from_base32('8000000000000')$$,
    $$snowid_from_base32('G000000000000')$$,
    $$snowid_from_base32('ZZZZZZZZZZZZZ')$$,
    $$snowid_from_base62('AzL8n0Y58m8')$$,
    $$snowid_from_base62('zzzzzzzzzzz')$$,
    $$snowid_from_base62('AzL8-0Y58m7')$$,
    $$snowid_from_base62('AzL8n0Y58m')$$,
    $$snowid_from_base62('AzL8n0Y58m77')$$,
    $$snowid_to_base32(-1)$$,
    $$snowid_to_base62((-9223372036854775808)::bigint)$$);
SELECT snowid_to_base32(NULL), snowid_from_base32(NULL), snowid_to_base62(NULL), snowid_from_base62(NULL);
DROP TABLE keys;
DROP PROCEDURE try;
DROP EXTENSION snowid;
