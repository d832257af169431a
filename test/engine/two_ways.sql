-- two_ways.sql - what servers have beside shop.sql in test/engines logical and
-- pglogical.

CREATE TABLE stock (id int PRIMARY KEY, item text);
