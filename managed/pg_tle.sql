-- Installs snowid--0.1.sql through pg_tle, with the name and version of the
-- extension that has the library, so that a dump of either restores onto the other.  With psql,
-- in this folder: psql -f pg_tle.sql -d mydb; then CREATE EXTENSION snowid.
\set ON_ERROR_STOP on
\set script `cat snowid--0.1.sql`
SELECT pgtle.install_extension('snowid', '0.1',
    '64-bit, time-ordered, globally unique keys (Snowflake) made inside the database', :'script');
