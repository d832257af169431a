-- demo-merged.sql - the server in which test/demo-cluster merges the rows of the
-- others, in two ways, and what they prove.  It makes no keys, and does not
-- preload snowid: the functions with a layout do not need it.

SET client_min_messages = warning;
CREATE EXTENSION snowid;
CREATE EXTENSION postgres_fdw;

-- One way: every row is here, by logical replication.
CREATE TABLE orders (
    id bigint PRIMARY KEY,
    server int NOT NULL,
    item text NOT NULL,
    asked_at timestamptz NOT NULL,
    made_at timestamptz NOT NULL
);
CREATE TABLE order_lines (
    id bigint PRIMARY KEY,
    server int NOT NULL,
    order_id bigint NOT NULL,
    item text NOT NULL
);

-- The other: every row is where it was made, and one table has a partition for
-- each server; sockets is the directory of the servers' sockets.
CREATE SCHEMA everywhere;
CREATE TABLE everywhere.orders (LIKE orders) PARTITION BY LIST (server);
CREATE TABLE everywhere.order_lines (LIKE order_lines) PARTITION BY LIST (server);

CREATE PROCEDURE add_server(port int, sockets text) LANGUAGE plpgsql AS $$
DECLARE
    name text := 'server_' || port;
BEGIN
    EXECUTE format('CREATE SERVER %I FOREIGN DATA WRAPPER postgres_fdw
                    OPTIONS (host %L, port %L, dbname ''postgres'', fetch_size ''10000'')',
                   name, sockets, port);
    EXECUTE format('CREATE USER MAPPING FOR postgres SERVER %I OPTIONS (user ''postgres'')', name);
    EXECUTE format('CREATE FOREIGN TABLE everywhere.%I
                    PARTITION OF everywhere.orders FOR VALUES IN (%s)
                    SERVER %I OPTIONS (schema_name ''public'', table_name ''orders'')',
                   'orders_' || port, port, name);
    EXECUTE format('CREATE FOREIGN TABLE everywhere.%I
                    PARTITION OF everywhere.order_lines FOR VALUES IN (%s)
                    SERVER %I OPTIONS (schema_name ''public'', table_name ''order_lines'')',
                   'order_lines_' || port, port, name);
END $$;

-- The rows as the servers have them now.
CREATE MATERIALIZED VIEW made AS
    SELECT id, NULL::bigint AS order_id, server, asked_at, made_at
    FROM everywhere.orders
    UNION ALL
    SELECT l.id, l.order_id, l.server, o.asked_at, o.made_at
    FROM everywhere.order_lines l LEFT JOIN everywhere.orders o ON o.id = l.order_id;

CREATE FUNCTION everything_arrived() RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT (SELECT count(*) FROM orders) = (SELECT count(*) FROM everywhere.orders)
       AND (SELECT count(*) FROM order_lines) = (SELECT count(*) FROM everywhere.order_lines)
$$;

CREATE VIEW keys_per_worker AS
    SELECT key.worker_id, server, count(*) FILTER (WHERE order_id IS NULL) AS orders,
           count(*) AS keys,
           to_char(min(key.created_at), 'HH24:MI:SS.MS') AS "from",
           to_char(max(key.created_at), 'HH24:MI:SS.MS') AS "to",
           min(id) AS first, max(id) AS last
    FROM made, snowid_decode(id, 'twitter') AS key
    GROUP BY key.worker_id, server;

-- How often the next key, in the order of all keys, is another server's.
CREATE VIEW turns AS
    SELECT count(*) AS turns
    FROM (SELECT server <> lag(server) OVER (ORDER BY id) AS other FROM made) AS in_order
    WHERE other;

CREATE VIEW proof (nr, "there is no", found) AS
    SELECT 1, 'row that the one way of merging has and the other has not',
           (SELECT count(*) FROM
            ((SELECT id, server FROM everywhere.orders EXCEPT ALL SELECT id, server FROM orders)
             UNION ALL
             (SELECT id, server FROM orders EXCEPT ALL SELECT id, server FROM everywhere.orders)
             UNION ALL
             (SELECT id, server FROM everywhere.order_lines EXCEPT ALL SELECT id, server FROM order_lines)
             UNION ALL
             (SELECT id, server FROM order_lines EXCEPT ALL SELECT id, server FROM everywhere.order_lines)
            ) AS difference)
    UNION ALL
    SELECT 2, 'key that occurs twice, in all tables of all servers',
           count(*) - count(DISTINCT id) FROM made
    UNION ALL
    SELECT 3, 'worker ID whose keys of one server lie among those of another',
           count(*)
    FROM keys_per_worker a JOIN keys_per_worker b USING (worker_id)
    WHERE a.server < b.server AND a.first <= b.last AND b.first <= a.last
    UNION ALL
    SELECT 4, 'line without its order, or with a key below it', count(*)
    FROM made WHERE asked_at IS NULL OR id <= order_id
    UNION ALL
    -- the ms of its time, and by how much the clocks of two processors may differ
    SELECT 5, 'key below one that any server had made 1.1 ms before it was asked for',
           count(*)
    FROM (SELECT id, is_asked, max(id) FILTER (WHERE NOT is_asked) OVER (ORDER BY at) AS before
          FROM (SELECT id, true, asked_at FROM made
                UNION ALL
                SELECT id, false, made_at + interval '1.1 ms' FROM made)
               AS event (id, is_asked, at)) AS in_time
    WHERE is_asked AND id <= before
    UNION ALL
    SELECT 6, 'key whose own time is not that of its making, to 1 ms', count(*)
    FROM made, snowid_timestamp(id, 'twitter') AS time
    WHERE time <= asked_at - interval '1 ms' OR time >= made_at + interval '1 ms';

\ir require.sql
