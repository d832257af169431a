-- From int columns to bigint keys while the application runs: see "From serial or
-- identity" in operations.md.  Here for two tables,
--
--	CREATE TABLE masters (id serial PRIMARY KEY, n int);
--	CREATE TABLE details (id serial PRIMARY KEY, master_id int NOT NULL REFERENCES masters);
--
-- Put your tables and columns in, and run one step after another in psql.  If a step
-- stops with "canceling statement due to lock timeout", run it again from its start.
-- test/t/tables/migration.pl runs these steps under load.

-- Step 1: new columns, which a trigger fills: both or neither, since psql continues after
-- an error
SET lock_timeout = '500ms';
CREATE OR REPLACE FUNCTION masters_widen() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN NEW.id_new := NEW.id; RETURN NEW; END';
CREATE OR REPLACE FUNCTION details_widen() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN NEW.id_new := NEW.id; NEW.master_id_new := NEW.master_id; RETURN NEW; END';
BEGIN;
ALTER TABLE masters ADD COLUMN IF NOT EXISTS id_new bigint;
CREATE OR REPLACE TRIGGER widen BEFORE INSERT OR UPDATE ON masters
    FOR EACH ROW EXECUTE FUNCTION masters_widen();
COMMIT;
BEGIN;
ALTER TABLE details ADD COLUMN IF NOT EXISTS id_new bigint, ADD COLUMN IF NOT EXISTS master_id_new bigint;
CREATE OR REPLACE TRIGGER widen BEFORE INSERT OR UPDATE ON details
    FOR EACH ROW EXECUTE FUNCTION details_widen();
COMMIT;

-- Step 2: the old rows, in batches
DO $$
BEGIN
    FOR i IN (SELECT coalesce(min(id) - 999::bigint, 0) / 1000 FROM masters)
        .. (SELECT coalesce(max(id), 0) / 1000 FROM masters) LOOP
        UPDATE masters SET id_new = id
        WHERE id BETWEEN i * 1000::bigint AND i * 1000::bigint + 999 AND id_new IS NULL;
        COMMIT;
    END LOOP;
    FOR i IN (SELECT coalesce(min(id) - 999::bigint, 0) / 1000 FROM details)
        .. (SELECT coalesce(max(id), 0) / 1000 FROM details) LOOP
        UPDATE details SET id_new = id
        WHERE id BETWEEN i * 1000::bigint AND i * 1000::bigint + 999 AND id_new IS NULL;
        COMMIT;
    END LOOP;
END $$;

-- Step 3: the indexes, without a time-out; one that was interrupted is invalid, so it is
-- dropped first
RESET lock_timeout;
DROP INDEX CONCURRENTLY IF EXISTS masters_id_new;
CREATE UNIQUE INDEX CONCURRENTLY masters_id_new ON masters (id_new);
DROP INDEX CONCURRENTLY IF EXISTS details_id_new;
CREATE UNIQUE INDEX CONCURRENTLY details_id_new ON details (id_new);

-- Step 4: constraints, so that step 5 need not read the rows
SET lock_timeout = '500ms';
ALTER TABLE masters DROP CONSTRAINT IF EXISTS wide,
    ADD CONSTRAINT wide CHECK (id_new IS NOT NULL) NOT VALID;
ALTER TABLE details DROP CONSTRAINT IF EXISTS wide,
    ADD CONSTRAINT wide CHECK (id_new IS NOT NULL AND master_id_new IS NOT NULL) NOT VALID;
ALTER TABLE masters VALIDATE CONSTRAINT wide;
ALTER TABLE details VALIDATE CONSTRAINT wide;

-- Step 5: the exchange, in one transaction that reads no row; masters are locked first,
-- as the application does.  Create other indexes and views with the columns again here.
-- The new columns become the last ones: commands that do not name their columns, such as
-- INSERT INTO masters VALUES (...), must be changed before.
SET lock_timeout = '500ms';
BEGIN;
LOCK TABLE masters, details;
DROP TRIGGER widen ON masters;
DROP TRIGGER widen ON details;
ALTER TABLE details DROP CONSTRAINT details_master_id_fkey, DROP CONSTRAINT details_pkey;
ALTER TABLE masters DROP CONSTRAINT masters_pkey;
ALTER TABLE masters DROP COLUMN id;
ALTER TABLE details DROP COLUMN id, DROP COLUMN master_id;
ALTER TABLE masters RENAME COLUMN id_new TO id;
ALTER TABLE details RENAME COLUMN id_new TO id;
ALTER TABLE details RENAME COLUMN master_id_new TO master_id;
ALTER TABLE masters ALTER COLUMN id SET DEFAULT snowid_next();
ALTER TABLE details ALTER COLUMN id SET DEFAULT snowid_next();
ALTER TABLE masters ADD CONSTRAINT masters_pkey PRIMARY KEY USING INDEX masters_id_new;
ALTER TABLE details ADD CONSTRAINT details_pkey PRIMARY KEY USING INDEX details_id_new,
    ALTER COLUMN master_id SET NOT NULL;
ALTER TABLE details ADD CONSTRAINT details_master_id_fkey
    FOREIGN KEY (master_id) REFERENCES masters NOT VALID;
ALTER TABLE masters DROP CONSTRAINT wide;
ALTER TABLE details DROP CONSTRAINT wide;
COMMIT;

-- Step 6: the rest
SET lock_timeout = '500ms';
ALTER TABLE details VALIDATE CONSTRAINT details_master_id_fkey;
DROP FUNCTION masters_widen, details_widen;
