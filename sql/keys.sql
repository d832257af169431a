-- Keys where people use them. The server: datacenter 3, worker 5.
SET timezone = 'UTC';
SET datestyle = 'ISO';
CREATE EXTENSION snowid;

-- One key, many keys
SELECT pg_typeof(snowid_next()), snowid_next() > 0 AS positive, snowid_next() < snowid_next() AS increasing;
SELECT datacenter_id, worker_id, abs(extract(epoch FROM created_at - clock_timestamp())) < 2 AS now
FROM snowid_decode(snowid_next());
SELECT count(*), count(DISTINCT k), bool_and(k > p) AS increasing, bool_and(worker_id = 5) AS mine
FROM (SELECT k, lag(k) OVER () AS p FROM snowid_next_batch(100000) k) s, snowid_decode(k);
SELECT snowid_next_batch(0);
SELECT snowid_next_batch(NULL);
SELECT snowid_next_batch(-1);
\echo :LAST_ERROR_SQLSTATE
-- consecutive within a millisecond
SELECT count(*) > 0 AS same_ms, bool_and(k = p + 1) AS consecutive
FROM (SELECT k, lag(k) OVER () AS p FROM snowid_next_batch(1000) k) s
WHERE snowid_timestamp(k) = snowid_timestamp(p);
-- the planner knows how many
EXPLAIN SELECT * FROM snowid_next_batch(42);
EXPLAIN SELECT * FROM snowid_next_batch(40 + 2) k;
EXPLAIN SELECT snowid_next_batch(7);
EXPLAIN SELECT * FROM snowid_next_batch(-7);

-- Keys first, then one transaction
CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowid_next(), customer text);
CREATE TABLE order_lines (id bigint PRIMARY KEY DEFAULT snowid_next(),
    order_id bigint NOT NULL REFERENCES orders, item text);
SELECT array_agg(k) AS keys FROM snowid_next_batch(3) k \gset
BEGIN;
INSERT INTO orders VALUES ((:'keys'::bigint[])[1], 'Ada');
INSERT INTO order_lines VALUES ((:'keys'::bigint[])[2], (:'keys'::bigint[])[1], 'pen'),
    ((:'keys'::bigint[])[3], (:'keys'::bigint[])[1], 'ink');
COMMIT;
SELECT customer, item FROM orders o JOIN order_lines l ON l.order_id = o.id ORDER BY l.id;

-- As a default: INSERT, COPY, INSERT ... SELECT, ADD COLUMN, triggers, PL/pgSQL
CREATE TABLE t (id bigint DEFAULT snowid_next() UNIQUE, n int);
INSERT INTO t (n) VALUES (1), (2);
COPY t (n) FROM stdin;
3
4
\.
INSERT INTO t (n) SELECT generate_series(5, 1000);
SELECT count(*), bool_and(id > p OR p IS NULL) AS in_order
FROM (SELECT id, lag(id) OVER (ORDER BY n) AS p FROM t) s;
ALTER TABLE t ADD COLUMN id2 bigint DEFAULT snowid_next() UNIQUE;
SELECT count(DISTINCT id2), min(id2) > max(id) AS later FROM t;
CREATE FUNCTION give_key() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN NEW.id := snowid_next(); RETURN NEW; END $$;
CREATE TABLE triggered (id bigint PRIMARY KEY);
CREATE TRIGGER give_key BEFORE INSERT ON triggered FOR EACH ROW EXECUTE FUNCTION give_key();
INSERT INTO triggered SELECT NULL FROM generate_series(1, 100);
DO $$
DECLARE a bigint := snowid_next(); b bigint;
BEGIN
    FOR b IN SELECT snowid_next_batch(100) LOOP
        ASSERT b > a;
        a := b;
    END LOOP;
    ASSERT a > (SELECT max(id) FROM triggered);
END $$;
PREPARE one AS SELECT snowid_next();
EXECUTE one \gset a_
EXECUTE one \gset b_
SELECT :b_snowid_next > :a_snowid_next AS increasing;

-- Read-only, rolled back, prepared
BEGIN READ ONLY;
SELECT snowid_next() > :b_snowid_next AS increasing;
COMMIT;
BEGIN;
SELECT snowid_next() AS lost \gset
ROLLBACK;
SELECT snowid_next() > :lost AS a_gap_and_no_repetition;
BEGIN;
INSERT INTO orders (customer) VALUES ('Bob');
PREPARE TRANSACTION 'snowid_prepared';
INSERT INTO orders (customer) VALUES ('Cid');
COMMIT PREPARED 'snowid_prepared';
SELECT customer FROM orders ORDER BY id;

-- Parallel plans hand out keys in the order of the sort
CREATE TABLE big AS SELECT g AS n, md5(g::text) AS h FROM generate_series(1, 20000) g;
ANALYZE big;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
EXPLAIN (COSTS OFF) SELECT snowid_next() AS k, n FROM big ORDER BY h;
CREATE TABLE sorted AS
    SELECT row_number() OVER () AS seen, * FROM (SELECT snowid_next() AS k, h FROM big ORDER BY h) s;
SELECT count(*), count(DISTINCT k), bool_and(k > p OR p IS NULL) AS keys_in_order,
       bool_and(h >= q OR q IS NULL) AS rows_in_order
FROM (SELECT k, h, lag(k) OVER w AS p, lag(h) OVER w AS q FROM sorted WINDOW w AS (ORDER BY seen)) s;
EXPLAIN (COSTS OFF) SELECT count(*) FROM big WHERE snowid_min('2020-01-01Z'::timestamptz + n * interval '1 s') > 0;
SELECT count(*) FROM big WHERE snowid_min('2020-01-01Z'::timestamptz + n * interval '1 s') > 0;
RESET ALL;
SET timezone = 'UTC';
SET datestyle = 'ISO';

-- The generator continues above a restored key, and not too far
SELECT snowid_advance(k) FROM (SELECT max(id) AS k FROM t) s;
SELECT snowid_encode(clock_timestamp() + interval '300 ms', 31, 31, 4095) AS ahead \gset
SELECT snowid_advance(:ahead);
SELECT snowid_next() > :ahead AS above;
\set VERBOSITY terse
DO $$
BEGIN
    PERFORM snowid_advance(snowid_max(clock_timestamp() + interval '2 hours'));
EXCEPTION WHEN invalid_parameter_value THEN
    RAISE INFO '%', regexp_replace(sqlerrm, '\d+', '#', 'g');
END $$;
SELECT snowid_advance(-1);
SELECT snowid_next() < snowid_max(clock_timestamp() + interval '2 seconds') AS unharmed;
\set VERBOSITY default

-- Who may do what
CREATE ROLE snowid_anyone;
CREATE ROLE snowid_watcher;
GRANT pg_monitor TO snowid_watcher;
-- of the functions all but these are for everybody
SELECT p.oid::regprocedure::text COLLATE "C" AS function
FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid JOIN pg_proc p ON p.oid = d.objid
WHERE e.extname = 'snowid' AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
    AND NOT has_function_privilege('snowid_anyone', p.oid, 'EXECUTE')
ORDER BY 1;
SET ROLE snowid_anyone;
SELECT snowid_next() > 0 AS key, count(*) FROM snowid_layouts();
SELECT * FROM snowid_status();
SELECT snowid_advance(0);
SET ROLE snowid_watcher;
SELECT datacenter_id, worker_id, worker_id_source, is_open, reason, layout, last_day, last_key > :ahead AS last_key,
       last_key_time > '2026-01-01' AS last_key_time, lead_ms < 1000 AS lead,
       keys > 100000 AS keys, waits >= 0 AS waits, wait_ms >= 0 AS wait_ms,
       clock_steps_back, errors
FROM snowid_status();
RESET ROLE;
DROP ROLE snowid_anyone, snowid_watcher;
SELECT keys AS before FROM snowid_status() \gset
SELECT count(snowid_next()) FROM generate_series(1, 1234);
SELECT keys - :before AS made FROM snowid_status();

SHOW snowid.layout;
SET snowid.worker_id = 6;
SET snowid.max_wait = 0;
SET snowid.unknown = 1;
DROP TABLE orders, order_lines, t, triggered, big, sorted;
DROP FUNCTION give_key();
DROP EXTENSION snowid;
