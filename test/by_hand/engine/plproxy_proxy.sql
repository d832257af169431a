-- plproxy_proxy.sql - test/by_hand/engines plproxy: what the proxy sends where.

SET client_min_messages = warning;
CREATE EXTENSION plproxy;
CREATE SERVER shop FOREIGN DATA WRAPPER plproxy OPTIONS (p0 :'first', p1 :'second');
CREATE USER MAPPING FOR PUBLIC SERVER shop;

-- The partition of a key: the partitions have the worker IDs 1 and 2; the keys of
-- others are spread by their last bits.
CREATE FUNCTION partition_of(id bigint) RETURNS int
    RETURN CASE (snowid_decode(id)).worker_id WHEN 1 THEN 0 WHEN 2 THEN 1 ELSE id % 2 END;

CREATE FUNCTION store_order(keys bigint[]) RETURNS void LANGUAGE plproxy AS
    'CLUSTER ''shop''; RUN ON partition_of(keys[1]);';
CREATE FUNCTION new_order(customer int, OUT maker text, OUT keys bigint[]) LANGUAGE plproxy AS
    'CLUSTER ''shop''; RUN ON customer;';
CREATE FUNCTION any_order(OUT maker text, OUT keys bigint[]) LANGUAGE plproxy AS
    'CLUSTER ''shop''; RUN ON ANY;';
CREATE FUNCTION find_order(id bigint) RETURNS int LANGUAGE plproxy AS
    'CLUSTER ''shop''; RUN ON partition_of(id);';
CREATE FUNCTION all_orders(OUT id bigint, OUT server int) RETURNS SETOF record LANGUAGE plproxy AS
    'CLUSTER ''shop''; RUN ON ALL;';
