-- A range of time through the key: index and partitions.
SET timezone = 'UTC';
SET datestyle = 'ISO';
CREATE EXTENSION snowid;
CREATE TABLE events (id bigint PRIMARY KEY, at timestamptz);
INSERT INTO events
    SELECT snowid_encode(at, 1, 2, n % 4096), at
    FROM (SELECT n, '2024-01-01Z'::timestamptz + n * interval '1 min' AS at FROM generate_series(1, 100000) n) s;
INSERT INTO events SELECT snowid_next(), clock_timestamp() FROM generate_series(1, 100);
ANALYZE events;
EXPLAIN (COSTS OFF) SELECT * FROM events WHERE id >= snowid_min(now() - interval '1 hour');
SELECT count(*) FROM events WHERE id >= snowid_min(now() - interval '1 hour');
SELECT (SELECT count(*) FROM events WHERE id BETWEEN snowid_min(a) AND snowid_max(b)),
       (SELECT count(*) FROM events WHERE at BETWEEN a AND b)
FROM (VALUES ('2024-02-01Z'::timestamptz, '2024-02-03 12:00Z'::timestamptz)) v(a, b);
-- the IMMUTABLE form is a constant to the planner
EXPLAIN (COSTS OFF) SELECT * FROM events WHERE id < snowid_min('2024-01-01Z', 'twitter');

-- Range partitions by key, bounds by the IMMUTABLE form
CREATE TABLE logs (id bigint DEFAULT snowid_next(), note text) PARTITION BY RANGE (id);
CREATE TABLE logs_2024 PARTITION OF logs
    FOR VALUES FROM (snowid_min('2024-01-01Z', 'twitter')) TO (snowid_min('2025-01-01Z', 'twitter'));
CREATE TABLE logs_2025 PARTITION OF logs
    FOR VALUES FROM (snowid_min('2025-01-01Z', 'twitter')) TO (snowid_min('2026-01-01Z', 'twitter'));
CREATE TABLE logs_now PARTITION OF logs
    FOR VALUES FROM (snowid_min('2026-01-01Z', 'twitter')) TO (9223372036854775807);
INSERT INTO logs SELECT id, 'old' FROM events;
INSERT INTO logs (note) VALUES ('new');
SELECT tableoid::regclass AS partition, count(*) FROM logs GROUP BY 1 ORDER BY 1;
-- STABLE: pruned at executor start
CREATE FUNCTION explain_analyze(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE line text;
BEGIN
    FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF) ' || query LOOP
        RETURN NEXT regexp_replace(line, ' \(actual.*\)', '');
    END LOOP;
END $$;
SELECT explain_analyze($$
    SELECT note FROM logs WHERE id >= snowid_min(now() - interval '1 hour') AND note = 'new' $$);
-- IMMUTABLE: pruned while planning
EXPLAIN (COSTS OFF)
    SELECT note FROM logs WHERE id < snowid_min('2025-01-01Z', 'twitter');

-- This server's layout as text makes the same keys; STABLE is enough for bounds
SELECT layout FROM snowid_status() \gset
SELECT snowid_min('2026-01-01Z') = snowid_min('2026-01-01Z', :'layout') AS same;
CREATE TABLE logs_2023 PARTITION OF logs
    FOR VALUES FROM (snowid_min('2023-01-01Z')) TO (snowid_min('2024-01-01Z'));
ALTER TABLE events ADD COLUMN day date
    GENERATED ALWAYS AS ((snowid_timestamp(id, 'twitter') AT TIME ZONE 'UTC')::date) STORED;
SELECT count(*) FROM events WHERE day = '2024-02-02';
-- the planner's estimate is near the truth
CREATE FUNCTION estimated(query text) RETURNS numeric LANGUAGE plpgsql AS $$
DECLARE plan json;
BEGIN
    EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
    RETURN plan -> 0 -> 'Plan' ->> 'Plan Rows';
END $$;
SELECT estimated($$ SELECT * FROM events WHERE id < snowid_min('2024-01-15Z') $$) BETWEEN 19000 AND 21500 AS good
FROM (SELECT count(*) FROM events WHERE id < snowid_min('2024-01-15Z')) c (real) WHERE real = 20159;
DROP FUNCTION estimated(text);
DROP TABLE events, logs;
DROP FUNCTION explain_analyze(text);
DROP EXTENSION snowid;
