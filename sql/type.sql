-- The type snowid: a bigint that is written in base32.
SET timezone = 'UTC';
SET datestyle = 'ISO';
CREATE EXTENSION snowid;
\set ECHO none
\getenv dir PG_ABS_SRCDIR
\i :dir/test/lib/try.sql
\set ECHO all
SET jit = off;

-- Stored as a bigint, by value
SELECT typlen, typalign, typcategory, typmodin::oid AS typmod, typbyval = (SELECT typbyval FROM pg_type WHERE typname = 'int8') AS by_value,
       pg_column_size('0ARYZVZXW377R'::snowid) AS size
FROM pg_type WHERE typname = 'snowid';
SELECT 388400145978465528::snowid, '0ARYZVZXW377R'::snowid::bigint, 'oAryzVz-xw377r'::snowid, 12345::bigint::snowid,
       '0ARYZVZXW377R'::snowid::text, '0ARYZVZXW377R'::text::snowid, NULL::snowid;
SELECT snowid_send('0ARYZVZXW377R') = int8send(388400145978465528) AS send;
-- nothing is between it and a bigint: a negative value is written, and read again
SELECT v::snowid, v::snowid::text::snowid = v AS same
FROM unnest('{-1,-42,-9223372036854775807,-9223372036854775808}'::bigint[]) v;
SELECT '-1234567890123'::snowid = '1234567890123'::snowid AS base32, '-0ARYZVZXW377R'::snowid = '0ARYZVZXW377R'::snowid AS hyphen;
-- but text that begins as a greater key is no negative value
CALL try(
    $$'8000000000000'::snowid$$,
    $$'FZZZZZZZZZZZZ'::snowid$$,
    $$'G000000000000'::snowid$$,
    $$'-9223372036854775809'::snowid$$,
    $$'-0000000000000000000'::snowid$$,
    $$'-1'::snowid$$,
    $$'-00000000000000000001'::snowid$$,
    $$'-000000000000000000A'::snowid$$,
    $$repeat('x', 150)::snowid$$,
    $$'0ARYZ!ZXW377R'::snowid$$,
    $$'388400145978465528'::snowid$$,
    $$'U'::snowid$$,
    $$''::snowid$$,
    $$' 0ARYZVZXW377R'::snowid$$,
    $$1.5::snowid$$);
-- JSON quotes it
SELECT to_json(v), to_jsonb(v), json_agg(v), jsonb_build_object('id', v)
FROM (VALUES ('0ARYZVZXW377R'::snowid)) t(v) GROUP BY v;
SELECT row_to_json(r) FROM (SELECT '0ARYZVZXW377R'::snowid AS id, ARRAY['0ARYZVZXW377R'::snowid] AS ids) r;
SELECT * FROM json_to_record('{"id": "0ARYZVZXW377R"}') AS r(id snowid);

-- Every operator means what core's does, whatever the types and their order
SELECT bool_and((a::snowid < b::snowid) = (a < b) AND (a::snowid <= b::snowid) = (a <= b) AND (a::snowid = b::snowid) = (a = b)
        AND (a::snowid >= b::snowid) = (a >= b) AND (a::snowid > b::snowid) = (a > b) AND (a::snowid <> b::snowid) = (a <> b)) AS snowid,
    bool_and((a::snowid < b) = (a < b) AND (a::snowid <= b) = (a <= b) AND (a::snowid = b) = (a = b)
        AND (a::snowid >= b) = (a >= b) AND (a::snowid > b) = (a > b) AND (a::snowid <> b) = (a <> b)) AS snowid_bigint,
    bool_and((a < b::snowid) = (a < b) AND (a <= b::snowid) = (a <= b) AND (a = b::snowid) = (a = b)
        AND (a >= b::snowid) = (a >= b) AND (a > b::snowid) = (a > b) AND (a <> b::snowid) = (a <> b)) AS bigint_snowid
FROM unnest('{-9223372036854775808,-1,0,1,9223372036854775807}'::bigint[]) a, unnest('{-9223372036854775808,-1,0,1,9223372036854775807}'::bigint[]) b;
SELECT bool_and((a::snowid < b) = (a < b) AND (a::snowid <= b) = (a <= b) AND (a::snowid = b) = (a = b)
        AND (a::snowid >= b) = (a >= b) AND (a::snowid > b) = (a > b) AND (a::snowid <> b) = (a <> b)
        AND (b < a::snowid) = (b < a) AND (b <= a::snowid) = (b <= a) AND (b = a::snowid) = (b = a)
        AND (b >= a::snowid) = (b >= a) AND (b > a::snowid) = (b > a) AND (b <> a::snowid) = (b <> a)) AS integer
FROM unnest('{-9223372036854775808,-2147483648,-1,0,1,4294967296,4294967297}'::bigint[]) a, unnest('{-2147483648,-1,0,1}'::int[]) b;
SELECT bool_and((a::snowid < b) = (a < b) AND (a::snowid <= b) = (a <= b) AND (a::snowid = b) = (a = b)
        AND (a::snowid >= b) = (a >= b) AND (a::snowid > b) = (a > b) AND (a::snowid <> b) = (a <> b)
        AND (b < a::snowid) = (b < a) AND (b <= a::snowid) = (b <= a) AND (b = a::snowid) = (b = a)
        AND (b >= a::snowid) = (b >= a) AND (b > a::snowid) = (b > a) AND (b <> a::snowid) = (b <> a)) AS smallint
FROM unnest('{-9223372036854775808,-32768,-1,0,1,65536,65537}'::bigint[]) a, unnest('{-32768,-1,0,1}'::smallint[]) b;
-- commutators and negators are pairs; all has a family
SELECT count(*) AS operators, bool_and(c.oprcom = o.oid AND c.oprleft = o.oprright AND c.oprright = o.oprleft) AS commutators,
       bool_and(n.oprnegate = o.oid AND n.oprleft = o.oprleft) AS negators
FROM pg_operator o JOIN pg_operator c ON c.oid = o.oprcom JOIN pg_operator n ON n.oid = o.oprnegate
WHERE 'snowid'::regtype IN (o.oprleft, o.oprright);
SELECT count(*) AS operators FROM pg_amop WHERE 'snowid'::regtype IN (amoplefttype, amoprighttype);
SELECT count(*) AS core_untouched FROM pg_amop a JOIN pg_opfamily f ON f.oid = a.amopfamily
WHERE f.opfname = 'snowid_ops' AND a.amopopr < 16384;
SELECT opcname, amname, amvalidate(c.oid) FROM pg_opclass c JOIN pg_am a ON a.oid = opcmethod WHERE opcname ~ '^snowid' ORDER BY 1, 2;

-- A column of the type
CREATE TABLE k (id snowid PRIMARY KEY DEFAULT snowid_next(), n int);
INSERT INTO k (n) SELECT generate_series(1, 20000);
INSERT INTO k VALUES ('0ARYZVZXW377R', 0), (388400145978465529, -1);
ANALYZE k;
SELECT * FROM k WHERE id < snowid_min('2020-01-01Z') ORDER BY id DESC;
INSERT INTO k VALUES (388400145978465528, 0) ON CONFLICT (id) DO UPDATE SET n = k.n + 100 RETURNING id, n;
SELECT count(*), count(DISTINCT id), count(DISTINCT id::text), min(id), max(id) = (SELECT id FROM k ORDER BY id DESC LIMIT 1) AS max,
       pg_typeof(min(id)) FROM k;
SELECT bool_and(id > p OR p IS NULL) AS in_order FROM (SELECT id, lag(id) OVER (ORDER BY n) AS p FROM k WHERE n > 0 AND id > 400000000000000000) s;
SELECT count(*) FROM (SELECT id FROM k UNION SELECT id FROM k) u;
SELECT pg_typeof(coalesce(id, 0::bigint)), pg_typeof(id + 1), snowid_timestamp(id, 'twitter'), snowid_to_base32(id) FROM k WHERE id = '0ARYZVZXW377R';
EXPLAIN (COSTS OFF) SELECT * FROM k WHERE id = '0ARYZVZXW377R';
EXPLAIN (COSTS OFF) SELECT * FROM k WHERE id = 388400145978465528;
EXPLAIN (COSTS OFF) SELECT * FROM k WHERE id IN ('0ARYZVZXW377R', '0ARYZVZXW377S');
EXPLAIN (COSTS OFF) SELECT * FROM k WHERE id = ANY ('{388400145978465528}'::bigint[]);
EXPLAIN (COSTS OFF) SELECT * FROM k WHERE id < snowid_min('2020-01-01Z');
EXPLAIN (COSTS OFF) SELECT * FROM k WHERE id > snowid_min('2020-01-01Z') ORDER BY id LIMIT 1;
EXPLAIN (COSTS OFF) SELECT * FROM k WHERE id < 0;
-- the rest of this plan has other words in other majors
CREATE FUNCTION scans(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
    FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
        RETURN QUERY SELECT substring(line FROM '\w[\w ]* Scan .*') WHERE line ~ ' Scan ';
    END LOOP;
END $$;
SELECT scans('SELECT min(id), max(id) FROM k');
DROP FUNCTION scans;
PREPARE by_text AS SELECT n FROM k WHERE id = $1;
EXECUTE by_text('0ARYZVZXW377R');
PREPARE by_number(bigint) AS SELECT n FROM k WHERE id = $1;
EXECUTE by_number(388400145978465528);
CREATE INDEX ON k USING hash (id);
SELECT n FROM k WHERE id = 388400145978465529;

-- Arrays of each type, by index and without one; lists, of which PostgreSQL 18 makes arrays
CREATE TABLE few (id snowid PRIMARY KEY);
INSERT INTO few SELECT n::bigint FROM generate_series(1, 2000) n;
ANALYZE few;
CREATE FUNCTION rows_by_arrays(OUT scan text, OUT type text, OUT rows text) RETURNS SETOF record LANGUAGE plpgsql AS $$
DECLARE
    condition text;
    found int;
BEGIN
    FOREACH scan IN ARRAY '{index,bitmap,seq}'::text[] LOOP
        PERFORM set_config('enable_seqscan', (scan = 'seq')::text, true), set_config('enable_bitmapscan', (scan = 'bitmap')::text, true),
            set_config('enable_indexscan', (scan = 'index')::text, true), set_config('enable_indexonlyscan', 'off', true);
        FOREACH type IN ARRAY '{snowid,bigint,int,smallint}'::text[] LOOP
            rows := '';
            FOREACH condition IN ARRAY ARRAY['id = ANY (%2$s)', 'id < ANY (%2$s)', 'id <= ANY (%2$s)', 'id > ANY (%2$s)', 'id >= ANY (%2$s)',
                'id < ALL (%2$s)', 'id > ALL (%2$s)', 'id <> ALL (%2$s)', 'id = ANY (%2$s) AND id > ANY (%2$s)',
                'id IN (3::bigint::%1$s, 7::bigint::%1$s, 1990::bigint::%1$s)', 'id = 3::bigint::%1$s OR id = 7::bigint::%1$s',
                'id < 4::bigint::%1$s OR id < 7::bigint::%1$s'] LOOP
                EXECUTE format('SELECT count(*) FROM few WHERE ' || condition, type, format('%L::bigint[]::%s[]', '{7,3,3,1990}', type)) INTO found;
                rows := rows || ' ' || found;
            END LOOP;
            RETURN NEXT;
        END LOOP;
    END LOOP;
END $$;
SELECT * FROM rows_by_arrays();
DROP FUNCTION rows_by_arrays;
EXPLAIN (COSTS OFF) SELECT * FROM few WHERE id = ANY ('{1,2}'::int[]);
SELECT count(*) FROM few JOIN generate_series(-10, 1500) n ON n = id;
SELECT count(*) FROM few WHERE id > ANY ('{5,NULL}'::bigint[]) AND id < ANY ('{9,NULL}'::int[]);
DROP TABLE few;

-- Joins with a bigint column find the index on either side; hash; merge
CREATE TABLE b (id bigint PRIMARY KEY, n int);
INSERT INTO b SELECT id, n FROM k;
ANALYZE b;
EXPLAIN (COSTS OFF) SELECT * FROM b WHERE id = '0ARYZVZXW377R'::snowid;
EXPLAIN (COSTS OFF) SELECT * FROM b WHERE '0ARYZVZXW377R'::snowid > id ORDER BY id;
SELECT n FROM b WHERE '0ARYZVZXW377R'::snowid >= id;
SELECT n FROM b WHERE '0ARYZVZXW377S'::snowid <= id ORDER BY id LIMIT 1;
EXPLAIN (COSTS OFF) SELECT * FROM k JOIN b ON b.id = k.id WHERE k.id = '0ARYZVZXW377R';
EXPLAIN (COSTS OFF) SELECT * FROM k JOIN b ON b.id = k.id WHERE b.id = 388400145978465528;
EXPLAIN (COSTS OFF) SELECT * FROM k JOIN b ON b.id = k.id WHERE k.n = 5;
EXPLAIN (COSTS OFF) SELECT * FROM b JOIN k ON b.id = k.id WHERE b.n = 5;
SELECT count(*) FROM k JOIN b ON b.id = k.id WHERE k.id = '0ARYZVZXW377R';
EXPLAIN (COSTS OFF) SELECT count(*) FROM k JOIN b ON b.id = k.id;
SELECT count(*) FROM k JOIN b ON b.id = k.id;
EXPLAIN (COSTS OFF) SELECT count(*) FROM k FULL JOIN b ON b.id = k.id;
SELECT count(*) FROM k FULL JOIN b ON b.id = k.id;
SELECT count(*) FROM k WHERE id IN (SELECT id FROM b WHERE n < 100);
SET enable_hashjoin = off;
SET enable_nestloop = off;
EXPLAIN (COSTS OFF) SELECT count(*) FROM k x FULL JOIN k y ON x.id = y.id;
EXPLAIN (COSTS OFF) SELECT count(*) FROM k JOIN b ON b.id = k.id::bigint;
SELECT count(*) FROM k JOIN b ON b.id = k.id::bigint;
RESET enable_hashjoin;
RESET enable_nestloop;
-- a bigint and an integer still sort alike to the planner
CREATE TABLE i (id int PRIMARY KEY);
INSERT INTO i SELECT generate_series(1, 1000);
ANALYZE i;
SET enable_hashjoin = off;
SET enable_nestloop = off;
EXPLAIN (COSTS OFF) SELECT count(*) FROM b JOIN i ON b.id = i.id;
RESET enable_hashjoin;
RESET enable_nestloop;
EXPLAIN (COSTS OFF) SELECT * FROM i JOIN k ON k.id = i.id WHERE i.id < 3;

-- An index of bigint serves if it has the operator, whatever its order
CREATE FUNCTION cmp_down(bigint, bigint) RETURNS int LANGUAGE sql IMMUTABLE STRICT AS 'SELECT btint8cmp($2, $1)';
CREATE OPERATOR CLASS down_ops FOR TYPE bigint USING btree AS
    OPERATOR 1 >, OPERATOR 2 >=, OPERATOR 3 =, OPERATOR 4 <=, OPERATOR 5 <, FUNCTION 1 cmp_down(bigint, bigint);
CREATE TABLE down (id bigint);
INSERT INTO down SELECT generate_series(1, 1000);
CREATE INDEX ON down (id down_ops);
SET enable_seqscan = off;
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT id FROM down WHERE id < 10::bigint::snowid;
SELECT count(*), max(id) FROM down WHERE id < 10::bigint::snowid;
SELECT count(*), min(id) FROM down WHERE 990::bigint::snowid <= id;
-- but not for a value of the same row, one that changes, or the operator's function
SELECT count(*) FROM down WHERE id = (id % 100)::snowid;
EXPLAIN (COSTS OFF) SELECT FROM down WHERE id < (random() * 10)::bigint::snowid;
SELECT count(*) FROM down WHERE snowid_lt(id, 10::bigint::snowid);
RESET enable_bitmapscan;
DROP INDEX down_id_idx;
CREATE INDEX ON down USING brin (id);
EXPLAIN (COSTS OFF) SELECT count(*) FROM down WHERE id < 10::bigint::snowid;
SELECT count(*) FROM down WHERE id < 10::bigint::snowid;
DROP INDEX down_id_idx;
CREATE INDEX ON down USING hash (id);
EXPLAIN (COSTS OFF) SELECT FROM down WHERE id = 10::bigint::snowid;
SELECT count(*) FROM down WHERE id < 10::bigint::snowid;
SELECT count(*) FROM down WHERE id <> 10::bigint::snowid;
RESET enable_seqscan;
DROP TABLE down;
DROP OPERATOR FAMILY down_ops USING btree;
DROP FUNCTION cmp_down;

-- Foreign keys both ways
CREATE TABLE k_of_b (id snowid PRIMARY KEY REFERENCES b ON UPDATE CASCADE ON DELETE CASCADE);
CREATE TABLE b_of_k (id bigint PRIMARY KEY REFERENCES k ON UPDATE CASCADE ON DELETE CASCADE);
CREATE TABLE k_of_k (id snowid PRIMARY KEY REFERENCES k);
INSERT INTO k_of_b VALUES ('0ARYZVZXW377R'), (388400145978465529);
INSERT INTO b_of_k VALUES (388400145978465528), (388400145978465529);
INSERT INTO k_of_k SELECT max(id) FROM k;
\set VERBOSITY terse
INSERT INTO k_of_b VALUES ('0000000000001');
INSERT INTO b_of_k VALUES (1);
INSERT INTO k_of_k VALUES ('0000000000001');
CREATE TABLE i_of_k (id int REFERENCES k);
INSERT INTO i_of_k VALUES (1);
DROP TABLE i_of_k;
DELETE FROM k WHERE id = (SELECT id FROM k_of_k);
\set VERBOSITY default
UPDATE b SET id = 5 WHERE id = 388400145978465528;
UPDATE k SET id = '0000000000005' WHERE id = '0ARYZVZXW377R';
SELECT * FROM k_of_b ORDER BY id;
SELECT * FROM b_of_k ORDER BY id;
UPDATE b_of_k SET id = id;
DELETE FROM b WHERE id = 5;
DELETE FROM k WHERE id = 5;
SELECT (SELECT count(*) FROM k_of_b) AS k_of_b, (SELECT count(*) FROM b_of_k) AS b_of_k;

-- to find what refers to a bigint key, a snowid column needs an index of bigints
CREATE INDEX ON k_of_b (id int8_ops);
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT FROM k_of_b WHERE 5::bigint OPERATOR(pg_catalog.=) id::bigint;
EXPLAIN (COSTS OFF) SELECT FROM b_of_k WHERE '0ARYZVZXW377S'::snowid = id;
RESET enable_seqscan;

-- Partitions: bounds by text, number and time; pruned by each
CREATE TABLE logs (id snowid DEFAULT snowid_next(), note text) PARTITION BY RANGE (id);
CREATE TABLE logs_old PARTITION OF logs FOR VALUES FROM ('0000000000000') TO (snowid_min('2025-01-01Z', 'twitter'));
CREATE TABLE logs_2025 PARTITION OF logs FOR VALUES FROM (snowid_min('2025-01-01Z', 'twitter')) TO (snowid_min('2026-01-01Z', 'twitter'));
CREATE TABLE logs_now PARTITION OF logs FOR VALUES FROM (snowid_min('2026-01-01Z', 'twitter')) TO (9223372036854775807);
INSERT INTO logs VALUES ('0ARYZVZXW377R', 'old'), (snowid_min('2025-02-01Z', 'twitter'), '2025');
INSERT INTO logs (note) VALUES ('now');
SELECT tableoid::regclass, note FROM logs ORDER BY id;
EXPLAIN (COSTS OFF) SELECT * FROM logs WHERE id = '0ARYZVZXW377R';
EXPLAIN (COSTS OFF) SELECT * FROM logs WHERE id = 388400145978465528;
EXPLAIN (COSTS OFF) SELECT * FROM logs WHERE id < snowid_min('2025-06-01Z', 'twitter');
EXPLAIN (COSTS OFF) SELECT * FROM logs WHERE id > 0 AND id < 5;
SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE relname = 'logs_old';
CREATE TABLE h (id snowid) PARTITION BY HASH (id);
CREATE TABLE h0 PARTITION OF h FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE h1 PARTITION OF h FOR VALUES WITH (MODULUS 2, REMAINDER 1);
INSERT INTO h SELECT id FROM k;
SELECT count(*) FROM h WHERE id = '0ARYZVZXW377S';
EXPLAIN (COSTS OFF) SELECT * FROM h WHERE id = '0ARYZVZXW377S';

-- BRIN: ranges of any type find the pages, and the same rows as without
CREATE TABLE br (id snowid, n int) WITH (fillfactor = 10);
INSERT INTO br SELECT snowid_min(timestamptz '2026-01-01Z' + i * interval '1 h', 'twitter')::snowid, i FROM generate_series(1, 5000) i;
INSERT INTO br VALUES ((-5)::bigint::snowid, -5), (100::bigint::snowid, 100);
CREATE INDEX ON br USING brin (id) WITH (pages_per_range = 2);
SELECT opcname FROM pg_index JOIN pg_opclass o ON o.oid = indclass[0] WHERE indrelid = 'br'::regclass;
ANALYZE br;
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT * FROM br WHERE id >= snowid_min('2026-02-01Z', 'twitter') AND id < '0ARYZVZXW377R';
EXPLAIN (COSTS OFF) SELECT * FROM br WHERE id = 100 OR id < 0::smallint;
CREATE FUNCTION found(condition text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    n bigint;
BEGIN
    EXECUTE 'SELECT sum(n) FROM br WHERE ' || condition INTO n;
    RETURN n;
END $$;
SELECT id::text AS text, id::bigint AS number FROM br WHERE n = 2500 \gset
CREATE TEMP TABLE conditions AS SELECT format('%s %s %s', l, op, r) AS condition
FROM (SELECT l, r FROM unnest(ARRAY['(-5)::bigint::snowid', '100::smallint', '100', '100::bigint',
          format('%L::snowid', :'text'), format('%L::bigint', :'number')]) v, LATERAL (VALUES ('id', v), (v, 'id')) o(l, r)) o,
    unnest('{<,<=,=,>=,>}'::text[]) op;
CREATE TEMP TABLE by_index AS SELECT condition, found(condition) FROM conditions;
SET enable_seqscan = on;
SET enable_bitmapscan = off;
SELECT count(*), bool_and(i.found IS NOT DISTINCT FROM found(condition)) AS same FROM by_index i;
RESET enable_bitmapscan;
RESET enable_seqscan;
DROP TABLE br, conditions, by_index;
DROP FUNCTION found;

-- A bigint column becomes one in place, and back: no rewrite of the table
CREATE TABLE old (id bigint PRIMARY KEY DEFAULT snowid_next(), n int);
INSERT INTO old (n) SELECT generate_series(1, 10);
SELECT pg_relation_filenode('old') AS file, max(id) AS id FROM old \gset
ALTER TABLE old ALTER id TYPE snowid;
SELECT pg_relation_filenode('old') = :file AS same_file, count(*) FROM old WHERE id = :id;
ALTER TABLE old ALTER id TYPE bigint;
SELECT pg_relation_filenode('old') = :file AS same_file, count(*) FROM old WHERE id = :id;

-- PL/pgSQL, arrays, ranges of it in a domain
DO $$
DECLARE
    a snowid := snowid_next();
    b bigint := a;
BEGIN
    ASSERT a = b AND b = a AND a::text = snowid_to_base32(b);
END $$;
SELECT snowid_next_array(3)::snowid[] > '{0ARYZVZXW377R}'::snowid[] AS arrays;
CREATE DOMAIN order_id AS snowid CHECK (VALUE > 0);
SELECT '0ARYZVZXW377R'::order_id = 388400145978465528 AS domain, (-1)::bigint::snowid::order_id;
CREATE ROLE snowid_anyone;
SET ROLE snowid_anyone;
SELECT '0ARYZVZXW377R'::snowid > 5;
RESET ROLE;
DROP ROLE snowid_anyone;
DROP DOMAIN order_id;
DROP TABLE k_of_b, b_of_k, k_of_k, k, b, i, logs, h, old;
DROP PROCEDURE try;
DROP EXTENSION snowid;
