-- Keys as serial numbers. The server: datacenter 3, worker 5.
SET timezone = 'UTC';
SET datestyle = 'ISO';
CREATE EXTENSION snowid;
\set ECHO none
\getenv dir PG_ABS_SRCDIR
\i :dir/test/lib/try.sql
\set ECHO all

-- The fields: code, time, datacenter, worker, sequence
SELECT id, snowid_serial('PAY', id, 'Z', layout), snowid_decode(id, layout)
FROM (VALUES (1541815603606036480, 'twitter'), (175928847299117063, 'discord'), (3870172288071432645, 'instagram'),
             (98776444300593659, 'mastodon'), (314948827708654619, 'sonyflake'), (136169504773242881, 'pgedge')) v(id, layout);
-- the clock on the wall of Shanghai, of Newfoundland, of Kiribati
SELECT o, snowid_serial('', 1541815603606036480, o, 'twitter')
FROM unnest(ARRAY['Z', '+00', '-00:00', '+08', '+0800', '+08:00', '-03:30', '+14', '-12', '+15:59', '-15:59']) o;
-- check digits: over all before them the rest by 97 is 1, as an IBAN's
SELECT s, snowid_serial_id(s, c, 'Z', 'twitter', true),
       (SELECT string_agg(CASE WHEN ch ~ '[A-Z]' THEN (ascii(ch) - 55)::text ELSE ch END, '' ORDER BY n)
        FROM string_to_table(s, NULL) WITH ORDINALITY t(ch, n))::numeric % 97 AS rest
FROM unnest(ARRAY['', 'PAY', 'A', 'Z9', '0', 'ABCDEFGH', 'STUVWXYZ']) c, snowid_serial(c, 1541815603606036480, 'Z', 'twitter', true) s;

-- A bijection, by this server's layout and others, at the ends of the range
SELECT count(*), count(DISTINCT s), bool_and(snowid_serial_id(s, 'PAY', '+08') = k) AS back,
       bool_and(length(s) = 28) AS width, bool_and(s > p OR p IS NULL) AS sorts
FROM (SELECT k, s, lag(s) OVER (ORDER BY k) AS p FROM snowid_next_batch(20000) k, snowid_serial('PAY', k, '+08') s) t;
SELECT l, count(*), bool_and(snowid_serial_id(snowid_serial('X1', k, o, l), 'X1', o, l) = k) AS back,
       bool_and(snowid_serial_id(snowid_serial('X1', k, o, l, true), 'X1', o, l, true) = k) AS back_checked,
       min(length(snowid_serial('', k, o, l))), max(length(snowid_serial('', k, o, l)))
FROM unnest(ARRAY['twitter', 'discord', 'instagram', 'sonyflake', 'pgedge', 'epoch=2020-01-01T00:00:00Z',
         'epoch=2020-01-01T00:00:00Z datacenter=16 worker=1 sequence=4', 'epoch=2020-01-01T00:00:00Z sequence=22']) l,
     unnest(ARRAY['Z', '-15:59', '+15:59']) o,
     LATERAL (SELECT (snowid_max('2026-01-02Z', l) / 200 * n)::bigint FROM generate_series(100, 300) n) g(k)
WHERE snowid_timestamp(k, l) < '9999-12-31Z' AND k > 0
GROUP BY l ORDER BY l;
SELECT snowid_serial('', k, 'Z', 'twitter') FROM unnest(ARRAY[0, 9223372036854775807]) k;
SELECT snowid_serial_id('208007101730302083131' || '4095', '', 'Z', 'twitter');

-- The article's form: 3 digits of code, time, 3 digits of counter
SELECT s, length(s), snowid_serial_id(s, '001', '+08', l) = k AS back
FROM (VALUES ('epoch=2020-01-01T00:00:00Z sequence=9')) v(l), snowid_encode('2026-11-21 10:20:30.456Z', 0, 0, 42, l) k,
     snowid_serial('001', k, '+08', l) s;

-- One's own and nobody else's
SELECT length(s) AS length, snowid_serial_id(s, 'PAY', '+08', true) BETWEEN snowid_min(now() - interval '1 min') AND snowid_next() AS now
FROM snowid_serial('PAY', snowid_next(), '+08', true) s;
SELECT snowid_serial('A', snowid_next()) < snowid_serial('A', snowid_next()) AS increasing;

-- As a default, and as a generated column
CREATE TABLE payments (no text PRIMARY KEY DEFAULT snowid_serial('PAY', snowid_next(), '+08', true), amount int);
INSERT INTO payments (amount) SELECT generate_series(1, 100);
SELECT count(*), bool_and(no > p OR p IS NULL) AS sorts
FROM (SELECT no, lag(no) OVER (ORDER BY amount) AS p FROM payments) s;
CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowid_next(), customer text,
    no text GENERATED ALWAYS AS (snowid_serial('ORD', id, '+08', 'twitter')) STORED);
INSERT INTO orders (customer) VALUES ('Ada') RETURNING no LIKE 'ORD20%' AS no, id = snowid_serial_id(no, 'ORD', '+08') AS same;
-- by the key's index
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT * FROM orders WHERE id = snowid_serial_id('ORD2022062816074010511260000', 'ORD');

-- What is not taken, and why
CALL try(
    $$snowid_serial('PAY', 1, 'Asia/Shanghai', 'twitter')$$,
    $$snowid_serial('PAY', 1, o, 'twitter') FROM unnest(ARRAY['08']) o$$,
    $$snowid_serial('PAY', 1, '', 'twitter')$$,
    $$snowid_serial('PAY', 1, '+8', 'twitter')$$,
    $$snowid_serial('PAY', 1, '+16', 'twitter')$$,
    $$snowid_serial('PAY', 1, '+08:60', 'twitter')$$,
    $$snowid_serial('PAY', 1, '+08:00:01', 'twitter')$$,
    $$snowid_serial('PAY', 1, '.5Z', 'twitter')$$,
    $$snowid_serial('PAY', 1, ':00Z', 'twitter')$$,
    $$snowid_serial('PAY', 1, 'CET', 'twitter')$$,
    $$snowid_serial('PAY', 1, 'Z1')$$,
    $$snowid_serial('pay', 1, 'Z', 'twitter')$$,
    $$snowid_serial('ABCDEFGHI', 1, 'Z', 'twitter')$$,
    $$snowid_serial('A-B', 1, 'Z', 'twitter')$$,
    $$snowid_serial(' ', 1)$$,
    $$snowid_serial('PAY', -1, 'Z', 'twitter')$$,
    $$snowid_serial('PAY', snowid_max('9999-12-31 23:59:59.999Z', 'epoch=2000-01-01T00:00:00Z'), 'Z', 'epoch=2000-01-01T00:00:00Z')$$,
    $$snowid_serial('PAY', snowid_max('9999-12-31 23:59:59.999Z', 'epoch=2000-01-01T00:00:00Z'), '+00:01', 'epoch=2000-01-01T00:00:00Z')$$,
    $$snowid_serial('PAY', 1, 'Z', 'nolayout')$$);
-- read: another code, no digits, another length, no time, no field, wrong check
CALL try(
    $$snowid_serial_id('PAY2022062816074010511260000', 'BUY', 'Z', 'twitter')$$,
    $$snowid_serial_id('PAY202206281607401051126000x', 'PAY', 'Z', 'twitter')$$,
    $$snowid_serial_id('PAY202206281607401051126000', 'PAY', 'Z', 'twitter')$$,
    $$snowid_serial_id('PAY', 'PAY', 'Z', 'twitter')$$,
    $$snowid_serial_id('', '', 'Z', 'twitter')$$,
    $$snowid_serial_id('PAY2022023016074010511260000', 'PAY', 'Z', 'twitter')$$,
    $$snowid_serial_id('PAY2022132816074010511260000', 'PAY', 'Z', 'twitter')$$,
    $$snowid_serial_id('PAY2022062824074010511260000', 'PAY', 'Z', 'twitter')$$,
    $$snowid_serial_id('PAY2022062816604010511260000', 'PAY', 'Z', 'twitter')$$,
    $$snowid_serial_id('PAY2022062816076010511260000', 'PAY', 'Z', 'twitter')$$,
    $$snowid_serial_id('PAY0000000000000000011260000', 'PAY', 'Z', 'twitter')$$,
    $$snowid_serial_id('PAY2010110401425465601010000', 'PAY', 'Z', 'twitter')$$,
    $$snowid_serial_id('PAY2010110401425465701010000', 'PAY', 'Z', 'twitter')$$,
    $$snowid_serial_id('PAY9999999999999999911260000', 'PAY', 'Z', 'epoch=2000-01-01T00:00:00Z worker=7 sequence=12')$$,
    $$snowid_serial_id('PAY2022062816074010532260000', 'PAY', 'Z', 'twitter')$$,
    $$snowid_serial_id('PAY2022062816074010511264096', 'PAY', 'Z', 'twitter')$$,
    -- the first serial of a layout, and one of the year 10000
    $$snowid_serial_id('1970010100000000000000', '', 'Z', 'mastodon')$$,
    $$snowid_serial_id('9999123200000000000000', '', 'Z', 'epoch=9999-12-31T00:00:00Z sequence=16')$$,
    -- Sonyflake's ticks are of 10 ms
    $$snowid_serial_id('2018120309160231100100001', '', 'Z', 'sonyflake')$$);
SELECT snowid_serial('', 1541815603606036480, 'Z', 'twitter', true) AS good \gset
SELECT snowid_serial_id(overlay(:'good' placing '00' from 26), '', 'Z', 'twitter', true);
-- each wrong digit and each pair of digits changed round is seen
CREATE FUNCTION is_refused(serial text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM snowid_serial_id(serial, '', 'Z', 'twitter', true);
    RETURN false;
EXCEPTION WHEN invalid_text_representation THEN
    RETURN true;
END $$;
SELECT count(*) AS wrong_digits, bool_and(is_refused(bad)) AS refused
FROM (SELECT overlay(:'good' placing d::text from i) AS bad FROM generate_series(1, 27) i, generate_series(0, 9) d) s
WHERE bad <> :'good';
SELECT count(*) AS swaps, bool_and(is_refused(bad)) AS refused
FROM (SELECT overlay(overlay(:'good' placing substr(:'good', j, 1) from i) placing substr(:'good', i, 1) from j) AS bad
      FROM generate_series(1, 26) i, generate_series(i + 1, least(i + 2, 27)) j) s
WHERE bad <> :'good';
SELECT snowid_serial(NULL, 1), snowid_serial('A', NULL), snowid_serial_id(NULL, 'A'),
       snowid_serial('A', 1, NULL), snowid_serial('A', 1, 'Z', NULL::text);
DROP FUNCTION is_refused(text);
DROP TABLE payments, orders;
DROP PROCEDURE try;
DROP EXTENSION snowid;
