-- Many keys in one call: as rows, as an array, as a block to count in.
-- The server: datacenter 3, worker 5, 12 bits of sequence.
CREATE EXTENSION snowid;
\set ECHO none
\getenv dir PG_ABS_SRCDIR
\i :dir/test/lib/try.sql
\set ECHO all

-- An array
SELECT pg_typeof(a), array_ndims(a), array_lower(a, 1), array_length(a, 1), array_position(a, NULL) AS nulls
FROM snowid_next_array(11) a;
SELECT snowid_next_array(0), snowid_next_array(0) = '{}' AS empty, snowid_next_array(NULL), array_length(snowid_next_array(1), 1) AS one;
SELECT count(*), count(DISTINCT k), bool_and(k > p OR p IS NULL) AS increasing, bool_and(worker_id = 5) AS mine
FROM (SELECT k, lag(k) OVER (ORDER BY n) AS p
      FROM unnest(snowid_next_array(200000)) WITH ORDINALITY u(k, n)) s, snowid_decode(k);
-- consecutive within a millisecond, each millisecond's sequence used once
SELECT bool_and(k = p + 1) AS consecutive
FROM (SELECT k, lag(k) OVER (ORDER BY n) AS p
      FROM unnest(snowid_next_array(20000)) WITH ORDINALITY u(k, n)) s
WHERE snowid_timestamp(k) = snowid_timestamp(p);
CALL try(
    $$snowid_next_array(-1)$$,
    $$snowid_next_array(134217725)$$,
    $$snowid_next_array(9223372036854775807)$$,
    -- 2^32 + 1 is not 1
    $$snowid_next_array(4294967297)$$);

-- A block: keys to count in, that nobody else gets
SELECT snowid_next() AS before, snowid_next_block(1000) AS a, snowid_next_block(4096) AS b, snowid_next() AS after \gset
SELECT :before < :a AS above, :a + 999 < :b AS apart, :b + 4095 < :after AS nobody_elses,
       snowid_timestamp(:a) = snowid_timestamp(:a + 999) AS one_ms, :b & 4095 AS first_of_4096;
SELECT bool_and(worker_id = 5 AND datacenter_id = 3) AS mine, count(DISTINCT created_at) AS ms,
       max(sequence) - min(sequence) AS difference
FROM generate_series(:a, :a + 999) k, snowid_decode(k);
SELECT count(*) AS blocks, bool_and((b & 4095) <= 4096 - 1500) AS within, bool_and(b >= p + 1500 OR p IS NULL) AS apart
FROM (SELECT b, lag(b) OVER (ORDER BY n) AS p
      FROM (SELECT n, snowid_next_block(1500) AS b FROM generate_series(1, 500) n) s) t;
SELECT snowid_next_block(1) < snowid_next() AS one_key, snowid_next_block(NULL);
SELECT keys AS before FROM snowid_status() \gset
SELECT snowid_next_block(4000) - snowid_next_block(4000) < 0 AS increasing;
SELECT keys - :before AS counted FROM snowid_status();
CALL try(
    $$snowid_next_block(4097)$$,
    $$snowid_next_block(0)$$,
    $$snowid_next_block(-1)$$,
    $$snowid_next_block(4294967297)$$);

-- Rows: as many as a bigint says
SELECT count(*) FROM (SELECT snowid_next_batch(5000000000) LIMIT 3) s;
SET jit = off;
EXPLAIN SELECT * FROM snowid_next_batch(5000000000);
RESET jit;
PREPARE batch(bigint) AS SELECT count(*) FROM snowid_next_batch($1);
EXECUTE batch(7);

-- Read-only, and rolled back
BEGIN READ ONLY;
SELECT (snowid_next_array(2))[2] AS lost, snowid_next_block(2) AS lost_too \gset
ROLLBACK;
SELECT (snowid_next_array(1))[1] > :lost_too AS a_gap_and_no_repetition, :lost_too > :lost AS in_order;
DROP PROCEDURE try;
DROP EXTENSION snowid;
