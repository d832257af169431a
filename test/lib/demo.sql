-- demo.sql - stores the records of input.csv under keys of snowid, and proves
-- and shows what was stored.  Run by test/demo; fails if a proof does.

\pset footer off
\pset null ''

CREATE EXTENSION snowid;
CREATE EXTENSION snowid_segments;

CREATE TABLE input (
    line bigint GENERATED ALWAYS AS IDENTITY,
    master text NOT NULL,
    detail text
);
\copy input (master, detail) FROM 'input.csv' (FORMAT csv)

-- position: the place in the input, to compare the keys with
CREATE TABLE master (
    id bigint PRIMARY KEY,
    position int NOT NULL,
    name text NOT NULL,
    invoice text UNIQUE,
    stored_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE detail (
    id bigint PRIMARY KEY,
    master_id bigint NOT NULL REFERENCES master,
    position int NOT NULL,
    name text NOT NULL,
    stored_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Numbers for people, which begin again each day.
INSERT INTO snowid_segments (biz_tag, period, format)
VALUES ('invoice', 'day', 'INV-{YYYYMMDD}-{N:6}');

-- One transaction a master.  The keys come first: nothing is stored yet, and
-- the rows that refer to each other can be sent together.
CREATE PROCEDURE store_all() LANGUAGE plpgsql AS $$
DECLARE
    record record;
    keys bigint[];
    masters CONSTANT bigint := (SELECT count(DISTINCT master) FROM input);
    reported timestamptz := clock_timestamp();
BEGIN
    FOR record IN
        SELECT row_number() OVER (ORDER BY min(line)) AS position,
               input.master AS name,
               coalesce(array_agg(detail ORDER BY line)
                        FILTER (WHERE detail IS NOT NULL), '{}') AS details
        FROM input GROUP BY input.master ORDER BY min(line)
    LOOP
        keys := snowid_next_array(1 + cardinality(record.details));

        INSERT INTO master (id, position, name, invoice)
        VALUES (keys[1], record.position, record.name, snowid_period_serial('invoice'));

        INSERT INTO detail (id, master_id, position, name)
        SELECT key, keys[1], nr, name
        FROM unnest(keys[2:], record.details) WITH ORDINALITY AS d (key, name, nr);

        COMMIT;
        IF clock_timestamp() > reported + interval '3 s' THEN
            reported := clock_timestamp();
            RAISE NOTICE '% of % masters', record.position, masters;
        END IF;
    END LOOP;
END $$;

\echo '== waiting until keys are made (a second or more after a first start)'
DO $$
BEGIN
    FOR i IN 1..300 LOOP
        EXIT WHEN (SELECT is_open FROM snowid_status());
        PERFORM pg_sleep(0.1);
    END LOOP;
END $$;
SELECT snowid_next() AS first_key \gset

\echo '== keys alone: a million, as one statement'
\echo '   (the layout has 4,096,000 a second; a burst may run ahead of that by a second)'
SELECT clock_timestamp() AS started \gset
SELECT count(*) AS keys FROM (SELECT snowid_next_batch(1000000)) AS made \gset
SELECT extract(epoch FROM clock_timestamp() - :'started') AS seconds \gset
SELECT :keys AS keys, round(:seconds, 2) AS seconds, round(:keys / :seconds) AS "keys/s";

\echo '== storing, one transaction a master: the keys first, then the rows'
SELECT clock_timestamp() AS started \gset
CALL store_all();
SELECT extract(epoch FROM clock_timestamp() - :'started') AS seconds \gset
VACUUM ANALYZE master, detail;

\echo
\echo 'Stored; a COMMIT waits for the disk, which is what limits these rates, and a key does not'
SELECT (SELECT count(*) FROM master) AS masters,
       (SELECT count(*) FROM detail) AS details,
       (SELECT count(DISTINCT xmin::text) FROM master) AS transactions,
       round(:seconds, 2) AS seconds,
       round((SELECT count(*) FROM master) / :seconds) AS "transactions/s",
       round(((SELECT count(*) FROM master) + (SELECT count(*) FROM detail))
             / :seconds) AS "keys/s";

\echo 'Proof: what must not be there'
CREATE VIEW made AS
    SELECT id, position AS master_position, 0 AS detail_position FROM master
    UNION ALL
    SELECT d.id, m.position, d.position
    FROM detail d JOIN master m ON m.id = d.master_id;

CREATE VIEW proof (nr, "there is no", found) AS
    SELECT 1, 'record of the input that was not stored',
           (SELECT count(DISTINCT master) + count(detail) FROM input)
           - (SELECT count(*) FROM made)
    UNION ALL
    SELECT 2, 'key that occurs twice in both tables together',
           count(*) - count(DISTINCT id)
    FROM (SELECT id FROM master UNION ALL SELECT id FROM detail) AS keys
    UNION ALL
    SELECT 3, 'detail without its master', count(*)
    FROM detail d WHERE NOT EXISTS (SELECT FROM master WHERE id = d.master_id)
    UNION ALL
    SELECT 4, 'two masters stored in one transaction',
           count(*) - count(DISTINCT xmin::text)
    FROM master
    UNION ALL
    SELECT 5, 'detail stored in another transaction than its master', count(*)
    FROM detail d JOIN master m ON m.id = d.master_id
    WHERE d.xmin <> m.xmin
    UNION ALL
    SELECT 6, 'key out of order: master < its details < next master',
           count(*) FILTER (WHERE id <= before)
    FROM (SELECT id, lag(id) OVER (ORDER BY master_position, detail_position) AS before
          FROM made) AS in_order
    UNION ALL
    SELECT 7, 'key of another server than (datacenter 1, worker 7)', count(*)
    FROM made, snowid_decode(id) AS key
    WHERE (key.datacenter_id, key.worker_id) <> (1, 7)
    UNION ALL
    SELECT 8, 'invoice number out of order, or of another day',
           count(*) FILTER (WHERE invoice <= before
                            OR abs(period - (stored_at AT TIME ZONE 'UTC')::date) > 1)
    FROM (SELECT invoice, lag(invoice) OVER (ORDER BY position) AS before, stored_at
          FROM master) AS in_order,
         snowid_period_parse('invoice', invoice);

SELECT "there is no", found FROM proof ORDER BY nr;

\ir require.sql
SELECT require(bool_and(found = 0), 'see the table above') FROM proof \g /dev/null

\echo 'Five keys, taken apart'
CREATE VIEW five AS
    SELECT min(id) AS key
    FROM (SELECT id, ntile(5) OVER (ORDER BY id) AS fifth FROM made) AS parts
    GROUP BY fifth;

SELECT key, created_at, datacenter_id AS datacenter, worker_id AS worker, sequence
FROM five, snowid_decode(key) ORDER BY key;
SELECT key, snowid_bits(key) AS "sign, timestamp, datacenter, worker, sequence"
FROM five ORDER BY key;

\echo 'Masters, and the invoice numbers of their day'
SELECT invoice, id, name FROM master WHERE position <= 3 ORDER BY id;

\echo 'A range of time, selected through the primary key'
CREATE TABLE middle AS
    SELECT snowid_timestamp(percentile_disc(0.45) WITHIN GROUP (ORDER BY id)) AS since,
           snowid_timestamp(percentile_disc(0.55) WITHIN GROUP (ORDER BY id)) AS until
    FROM master;

CREATE VIEW ranges AS
    SELECT count(*) FILTER (WHERE id >= snowid_min(since)
                            AND id <= snowid_max(until)) AS by_key,
           count(*) FILTER (WHERE (snowid_decode(id)).created_at
                            BETWEEN since AND until) AS by_decoded_time,
           since::time(3), until::time(3)
    FROM master, middle
    GROUP BY since, until;
SELECT * FROM ranges;
SELECT require(by_key = by_decoded_time, 'the key selects other rows than its time')
FROM ranges \g /dev/null

CREATE FUNCTION plan(OUT plan text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY EXECUTE (
        SELECT format('EXPLAIN (COSTS OFF) SELECT name FROM master
                       WHERE id >= snowid_min(%L) AND id <= snowid_max(%L)', since, until)
        FROM middle);
END $$;

-- A table of a few pages would be read as a whole.
SET enable_seqscan = off;
SET enable_bitmapscan = off;
\t on
\pset format unaligned
SELECT plan FROM plan();
SELECT require(bool_or(plan ~ 'Index Cond.*snowid_min'), 'the range is not the index''s')
FROM plan() \g /dev/null

\echo
\echo 'All of the proofs hold.'
