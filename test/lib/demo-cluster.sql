-- demo-cluster.sql - the tables of a server in test/demo-cluster, and what
-- stores orders in them.

SET client_min_messages = warning;
CREATE EXTENSION snowid;

CREATE TABLE orders (
    id bigint PRIMARY KEY,
    server int NOT NULL DEFAULT current_setting('port')::int,
    item text NOT NULL,
    asked_at timestamptz NOT NULL,      -- before its keys were made
    made_at timestamptz NOT NULL        -- and after
);
CREATE TABLE order_lines (
    id bigint PRIMARY KEY,
    server int NOT NULL DEFAULT current_setting('port')::int,
    order_id bigint NOT NULL REFERENCES orders,
    item text NOT NULL
);
CREATE PUBLICATION shop FOR TABLE orders, order_lines;

CREATE TABLE input (
    master text NOT NULL,
    detail text
);
\copy input FROM 'input.csv' (FORMAT csv)

-- Orders, round and round, one transaction each: the keys come first.
CREATE PROCEDURE store_for(duration interval) LANGUAGE plpgsql AS $$
DECLARE
    stop_at timestamptz := clock_timestamp() + duration;
    record record;
    keys bigint[];
    asked timestamptz;
    made timestamptz;
BEGIN
    WHILE clock_timestamp() < stop_at LOOP
        FOR record IN
            SELECT master AS item,
                   coalesce(array_agg(detail) FILTER (WHERE detail IS NOT NULL), '{}') AS lines
            FROM input GROUP BY master
        LOOP
            EXIT WHEN clock_timestamp() >= stop_at;
            asked := clock_timestamp();
            keys := snowid_next_array(1 + cardinality(record.lines));
            made := clock_timestamp();

            INSERT INTO orders (id, item, asked_at, made_at)
            VALUES (keys[1], record.item, asked, made);
            INSERT INTO order_lines (id, order_id, item)
            SELECT key, keys[1], item FROM unnest(keys[2:], record.lines) AS line (key, item);
            COMMIT;
        END LOOP;
    END LOOP;
END $$;
