-- two_ways.sql - what servers have beside shop.sql in test/by_hand/engines logical and
-- pglogical.

CREATE TABLE stock (id int PRIMARY KEY, item text);
