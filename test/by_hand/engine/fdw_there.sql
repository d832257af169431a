-- fdw_there.sql - test/by_hand/engines fdw: the tables where the rows are.

SET client_min_messages = warning;
CREATE TABLE notes (
    id bigint PRIMARY KEY DEFAULT snowid_next(),
    route text NOT NULL,                -- the table it came through
    nr bigint
);

-- NULL for the key gets one, too.  postgres_fdw's sessions have an empty path.
CREATE TABLE triggered (LIKE notes);
CREATE FUNCTION give_key() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.id := coalesce(NEW.id, public.snowid_next());
    RETURN NEW;
END $$;
CREATE TRIGGER give_key BEFORE INSERT ON triggered
    FOR EACH ROW EXECUTE FUNCTION give_key();

CREATE VIEW all_notes AS TABLE notes UNION ALL TABLE triggered;
