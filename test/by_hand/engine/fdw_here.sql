-- fdw_here.sql - test/by_hand/engines fdw: what the other server has of them.

SET client_min_messages = warning;
CREATE EXTENSION postgres_fdw;
CREATE SERVER there FOREIGN DATA WRAPPER postgres_fdw
    OPTIONS (host :'directory', port :'port', dbname 'postgres', batch_size '100');
CREATE USER MAPPING FOR PUBLIC SERVER there OPTIONS (user 'postgres');

-- The local definition has a default: written by hand, imported, or the parent's.
CREATE FOREIGN TABLE default_here (id bigint NOT NULL DEFAULT snowid_next(), route text, nr bigint)
    SERVER there OPTIONS (table_name 'notes');
CREATE SCHEMA imported;
IMPORT FOREIGN SCHEMA public LIMIT TO (notes) FROM SERVER there INTO imported
    OPTIONS (import_default 'true');
CREATE TABLE partitioned (id bigint NOT NULL DEFAULT snowid_next(), route text, nr bigint)
    PARTITION BY RANGE (id);
CREATE FOREIGN TABLE only_partition PARTITION OF partitioned
    FOR VALUES FROM (MINVALUE) TO (MAXVALUE) SERVER there OPTIONS (table_name 'notes');

-- The default of the other server counts where the column is not known here.
CREATE FOREIGN TABLE default_there (route text, nr bigint)
    SERVER there OPTIONS (table_name 'notes');
CREATE FOREIGN TABLE trigger_there (id bigint, route text, nr bigint)
    SERVER there OPTIONS (table_name 'triggered');
CREATE FOREIGN TABLE no_default (id bigint, route text, nr bigint)
    SERVER there OPTIONS (table_name 'notes');
