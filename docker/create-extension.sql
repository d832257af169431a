-- In the database of a new container.  With APP_PASSWORD in the environment, a role
-- "app" that is no superuser owns the database.
CREATE SCHEMA snowid;
CREATE EXTENSION snowid SCHEMA snowid;
GRANT USAGE ON SCHEMA snowid TO PUBLIC;
SELECT format('ALTER DATABASE %I SET search_path = "$user", public, snowid', current_database()) \gexec

\set app_password ''
\getenv app_password APP_PASSWORD
SELECT :'app_password' <> '' AS has_app \gset
\if :has_app
CREATE ROLE app LOGIN PASSWORD :'app_password';
SELECT format('ALTER DATABASE %I OWNER TO app', current_database()) \gexec
\endif
