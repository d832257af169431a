-- two_ways.sql - what servers have beside shop.sql in test/engines logical and
-- pglogical.

CREATE TABLE stock (id int PRIMARY KEY, item text);

-- Tries to drop and to move the origins of snowid: how often, and how often that
-- worked.
CREATE FUNCTION molest(OUT tried int, OUT done int) LANGUAGE plpgsql AS $$
DECLARE
    command text;
BEGIN
    tried := 0;
    done := 0;
    FOR command IN
        SELECT format(molestation, roname)
        FROM pg_replication_origin, unnest(ARRAY[
            'SELECT pg_replication_origin_drop(%L)',
            'SELECT pg_replication_origin_advance(%L, ''0/1'')']) AS molestation
        WHERE roname LIKE 'snowid\_%'
    LOOP
        tried := tried + 1;
        BEGIN
            EXECUTE command;
            done := done + 1;
        EXCEPTION WHEN object_in_use THEN NULL;
        END;
    END LOOP;
END $$;
