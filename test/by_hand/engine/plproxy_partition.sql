-- plproxy_partition.sql - test/by_hand/engines plproxy: what a partition does.

-- An order and its lines, with keys that are made already.
CREATE FUNCTION store_order(keys bigint[]) RETURNS void BEGIN ATOMIC
    INSERT INTO orders (id) VALUES (keys[1]);
    INSERT INTO order_lines SELECT key, keys[1], md5(key::text) FROM unnest(keys[2:]) AS key;
END;

-- The same with keys of this partition.
CREATE FUNCTION new_order(customer int, OUT maker text, OUT keys bigint[]) LANGUAGE plpgsql AS $$
BEGIN
    maker := 's' || current_setting('port');
    keys := snowid_next_array(4);
    PERFORM store_order(keys);
END $$;
CREATE FUNCTION any_order(OUT maker text, OUT keys bigint[])
    RETURN new_order(0);

CREATE FUNCTION find_order(id bigint) RETURNS int
    RETURN (SELECT server FROM orders WHERE orders.id = $1);
CREATE FUNCTION all_orders(OUT id bigint, OUT server int) RETURNS SETOF record BEGIN ATOMIC
    SELECT id, server FROM orders;
END;
