-- In the database of a new container
CREATE SCHEMA snowid;
CREATE EXTENSION snowid SCHEMA snowid;
SELECT format('ALTER DATABASE %I SET search_path = "$user", public, snowid', current_database()) \gexec
