-- shop.sql - what a server has in test/by_hand/engines: orders and their lines.

SET client_min_messages = warning;
CREATE EXTENSION snowid;
CREATE TABLE orders (
    id bigint PRIMARY KEY,
    server int NOT NULL DEFAULT current_setting('port')::int
);
CREATE TABLE order_lines (
    id bigint PRIMARY KEY,
    order_id bigint NOT NULL,
    item text NOT NULL
);
