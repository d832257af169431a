-- snowid 0.1 in SQL alone, for servers that cannot load the library.  Run this
-- file with psql, or install it as an extension with pg_tle.sql; then
--
--	SELECT snowid_setup(datacenter_id, worker_id);
--
-- The functions have the names, arguments and results of the library's.  Keys
-- have its default layout, "twitter", and its rule: unit = Max(last + 1, now),
-- where a unit is a key's timestamp and sequence in one number.
--
-- How a key is made without a lock.  A sequence gives the next unit, but it cannot
-- jump to the clock's time in one step: between reading it and setval(), other
-- sessions use it.  So there are two sequences, and a number "turn":
--
--	turn even	turn's second bit tells which sequence is in use.  A unit of it
--				counts if it is not behind the clock, and if turn is still the
--				same after it was taken.
--	turn odd	a session jumps, under a lock: last = the greater value of both,
--				and the other sequence is set after it, to the clock's time.
--				Units that are taken meanwhile do not count.
--
-- Every unit that counts was checked before turn became odd, so it is not above
-- "last".  The lock belongs to a subtransaction that is always rolled back, so
-- that no cancel and no error can leave it held; sequences are not rolled back.
-- If a session ends in between, turn stays odd, and the next one jumps again.
--
-- From its bit 52 on, turn holds the pair.  snowid_setup() compiles another one into
-- snowid_next(), which then jumps, to the next ms; from there on no unit counts for
-- a session that still runs the function of before.
--
-- A dump, or CREATE DATABASE ... TEMPLATE, takes the functions along, but a copy must not
-- make keys.  So snowid_setup() gives the sequence snowid_home another file, and what it
-- compiles works only where that sequence has the OID and the file, and the database the
-- OID, of then.  A template's copy has another database OID.  In a restored dump
-- a sequence's file has the number of its OID, which it never has after
-- a set-up.  pg_upgrade keeps all three; nothing rewrites a sequence by itself.
--
-- The functions that make keys run as their owner, and call each other by name: with all
-- their arguments and the exact types, so that nothing can fit better.  The owner of
-- a schema can replace what is in it; so in the end all belongs to who owns the schema,
-- and only then do functions become SECURITY DEFINER, all in one transaction.
--
-- "@schema@" is replaced at the end.  snowid_next() runs as its owner, but has no
-- search_path of its own, which would cost as much as a key; so it names the
-- schema of everything that it uses.

-- The search_path may be of a database's owner.
DO $do$
BEGIN
    PERFORM pg_catalog.set_config('search_path', pg_catalog.quote_ident(pg_catalog.current_schema()), true),
        pg_catalog.set_config('snowid_managed.transaction', pg_catalog.pg_current_xact_id()::pg_catalog.text, true);
END $do$;

CREATE SEQUENCE snowid_home;
-- no table: ANALYZE would lock it
CREATE VIEW snowid_lock AS SELECT;
COMMENT ON VIEW snowid_lock IS 'internal: locked by who jumps to the clock';

-- Units from 0 to 2^53 - 1.
CREATE SEQUENCE snowid_turn MINVALUE 0;
CREATE SEQUENCE snowid_units_0 MINVALUE 0 MAXVALUE 9007199254740991;
CREATE SEQUENCE snowid_units_1 MINVALUE 0 MAXVALUE 9007199254740991;

-- Errors are logged, so they show the beginning of a text alone.
CREATE FUNCTION snowid_shown(str text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN left(str, 100) || CASE WHEN length(str) > 100 THEN '...' ELSE '' END;
END $$;
COMMENT ON FUNCTION snowid_shown(text) IS 'internal: a text as an error shows it';

-- Layouts

CREATE FUNCTION snowid_layout_parts(layout text, OUT epoch bigint, OUT tick int,
        OUT datacenter_bits int, OUT worker_bits int, OUT sequence_bits int,
        OUT sequence_above boolean, OUT timestamp_bits int, OUT last_ms bigint)
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    word text COLLATE "C";
    problem text;
    seen text[] := '{}';
    field text COLLATE "C";
    value text COLLATE "C";
BEGIN
    SELECT n.epoch, n.tick, n.d, n.w, n.s, n.above
    INTO epoch, tick, datacenter_bits, worker_bits, sequence_bits, sequence_above
    FROM (VALUES ('twitter', 1288834974657, 1, 5, 5, 12, false),
                 ('discord', 1420070400000, 1, 5, 5, 12, false),
                 ('instagram', 1314220021721, 1, 0, 13, 10, false),
                 ('mastodon', 0, 1, 0, 0, 16, false),
                 ('sonyflake', 1409529600000, 10, 0, 16, 8, true),
                 ('pgedge', 1672531200000, 1, 0, 10, 12, false),
                 ('leaf', 1288834974657, 1, 0, 10, 12, false),
                 ('baidu', 1463673600000, 1000, 0, 22, 13, false),
                 ('shardingsphere', 1477929600000, 1, 0, 10, 12, false),
                 ('cosid', 1577203200000, 1, 0, 10, 12, false),
                 ('yitter', 1582136402000, 1, 0, 6, 6, false),
                 ('pgdog', 1764184395000, 1, 0, 10, 12, false)) n(name, epoch, tick, d, w, s, above)
    WHERE n.name = lower(layout COLLATE "C");
    IF NOT FOUND THEN
        tick := 1;
        datacenter_bits := 0;
        worker_bits := 0;
        sequence_bits := 0;
        sequence_above := false;
        FOREACH word IN ARRAY regexp_split_to_array(layout COLLATE "C", E'[ \t\n]')
        LOOP
            CONTINUE WHEN word = '';
            field := substring(word FROM '^(epoch|datacenter|worker|sequence)=');
            value := substr(word, length(field) + 2);
            problem := CASE
                WHEN field IS NULL THEN 'neither a named layout nor epoch=, datacenter=, worker= or sequence='
                WHEN field = ANY (seen) THEN 'given twice'
                WHEN field = 'epoch' THEN ("@schema@".snowid_read_epoch(value)).problem
                WHEN value !~ '^0*[0-9]{1,2}$' OR value::int > 31 THEN 'not a width from 0 to 31 bits' END;
            EXIT WHEN problem IS NOT NULL;
            seen := seen || field;
            CASE field
                WHEN 'epoch' THEN epoch := ("@schema@".snowid_read_epoch(value)).ms;
                WHEN 'datacenter' THEN datacenter_bits := value;
                WHEN 'worker' THEN worker_bits := value;
                ELSE sequence_bits := value;
            END CASE;
        END LOOP;
    END IF;
    timestamp_bits := 63 - datacenter_bits - worker_bits - sequence_bits;
    problem := CASE
        WHEN problem IS NOT NULL THEN format('"%s" is %s.', "@schema@".snowid_shown(word), problem)
        WHEN epoch IS NULL THEN 'The epoch is missing.'
        WHEN timestamp_bits < 1 THEN 'The widths leave no bit of 63 for the timestamp.' END;
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('invalid layout "%s"', "@schema@".snowid_shown(layout)),
            DETAIL = problem,
            HINT = 'A layout is a name that snowid_layouts() lists, or spelled out, for instance "epoch=2020-01-01T00:00:00Z datacenter=5 worker=5 sequence=12".';
    END IF;
    -- the last ms of timestamptz
    last_ms := 9224318015999999;
    IF timestamp_bits <= 53 THEN
        last_ms := least(last_ms, epoch + (1::bigint << timestamp_bits) * tick - 1);
    END IF;
END $$;
COMMENT ON FUNCTION snowid_layout_parts(text) IS
    'internal: the fields of a layout, with its epoch and its last ms in Unix ms';

CREATE FUNCTION snowid_read_epoch(epoch text, OUT ms bigint, OUT problem text)
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    part text[] := regexp_match(epoch, '^([0-9]{4})-([0-9]{2})-([0-9]{2})[T ]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:[.]([0-9]{1,3}))?(?:Z|([+-])([0-9]{2})(?::?([0-9]{2}))?)$');
    first_of_month date;
BEGIN
    problem := 'not a time with its zone, such as 2020-01-01T00:00:00Z';
    IF part IS NULL OR part[1] = '0000' OR part[2]::int NOT BETWEEN 1 AND 12 OR part[4] > '23' OR part[5] > '59'
        OR part[6] > '59' OR part[9] > '15' OR part[10] > '59' THEN
        RETURN;
    END IF;
    first_of_month := make_date(part[1]::int, part[2]::int, 1);
    IF part[3]::int NOT BETWEEN 1 AND (first_of_month + interval '1 month')::date - first_of_month THEN
        RETURN;
    END IF;
    ms := (first_of_month - date '1970-01-01' + part[3]::int - 1) * 86400000::bigint
        + (part[4]::int * 60 + part[5]::int
           - CASE part[8] WHEN '-' THEN -1 ELSE 1 END * (coalesce(part[9]::int, 0) * 60 + coalesce(part[10]::int, 0))) * 60000::bigint
        + part[6]::int * 1000 + rpad(left(coalesce(part[7], ''), 3), 3, '0')::int;
    problem := CASE WHEN ms NOT BETWEEN -62135596800000 AND 253402300799999
        THEN 'not in the years from 0001 to 9999 (UTC)' END;
END $$;
COMMENT ON FUNCTION snowid_read_epoch(text) IS
    'internal: an RFC 3339 time in Unix ms, or what the text is instead';

CREATE FUNCTION snowid_time_of_ms(ms bigint) RETURNS timestamptz
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    rest bigint := (ms % 86400000 + 86400000) % 86400000;
BEGIN
    RETURN (timestamp '1970-01-01' + make_interval(days => ((ms - rest) / 86400000)::int, secs => rest / 1000.0)) AT TIME ZONE 'UTC';
END $$;
COMMENT ON FUNCTION snowid_time_of_ms(bigint) IS 'internal: the time of Unix ms';

CREATE FUNCTION snowid_field_of_time(ts timestamptz, layout text) RETURNS bigint
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    l record := "@schema@".snowid_layout_parts(layout);
    ms numeric := extract(epoch FROM date_trunc('milliseconds', ts)) * 1000;
BEGIN
    IF ms NOT BETWEEN l.epoch AND l.last_ms THEN
        RAISE EXCEPTION USING ERRCODE = '22008', MESSAGE = 'time is out of the range of the layout',
            DETAIL = format('The layout''s range is from %s to %s.',
                "@schema@".snowid_time_of_ms(l.epoch), "@schema@".snowid_time_of_ms(l.last_ms));
    END IF;
    RETURN (ms::bigint - l.epoch) / l.tick << 63 - l.timestamp_bits;
END $$;
COMMENT ON FUNCTION snowid_field_of_time(timestamptz, text) IS
    'internal: the timestamp field of a key, at its place';

-- Reading and writing the fields of keys, in a layout that is named or spelled out ...

CREATE FUNCTION snowid_decode(id bigint, layout text,
        OUT created_at timestamptz, OUT datacenter_id int, OUT worker_id int,
        OUT sequence int)
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    l record := "@schema@".snowid_layout_parts(layout);
    ticks bigint := id >> 63 - l.timestamp_bits;
BEGIN
    IF id < 0 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'key must not be negative';
    END IF;
    IF ticks > (l.last_ms - l.epoch) / l.tick THEN
        RAISE EXCEPTION USING ERRCODE = '22008', MESSAGE = format('timestamp of key %s is out of range', id),
            HINT = 'The key is of another layout.';
    END IF;
    created_at := "@schema@".snowid_time_of_ms(l.epoch + ticks * l.tick);
    IF l.datacenter_bits > 0 THEN
        datacenter_id := id >> l.worker_bits + l.sequence_bits & (1::bigint << l.datacenter_bits) - 1;
    END IF;
    IF l.worker_bits > 0 THEN
        worker_id := id >> CASE WHEN l.sequence_above THEN 0 ELSE l.sequence_bits END & (1::bigint << l.worker_bits) - 1;
    END IF;
    IF l.sequence_bits > 0 THEN
        sequence := id >> CASE WHEN l.sequence_above THEN l.worker_bits ELSE 0 END & (1::bigint << l.sequence_bits) - 1;
    END IF;
END $$;
COMMENT ON FUNCTION snowid_decode(bigint, text) IS
    'the fields of a key in a layout: a name that snowid_layouts() lists, or for instance ''epoch=2020-01-01T00:00:00Z datacenter=5 worker=5 sequence=12''';

CREATE FUNCTION snowid_timestamp(id bigint, layout text) RETURNS timestamptz
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN ("@schema@".snowid_decode(id, layout)).created_at;
END $$;
COMMENT ON FUNCTION snowid_timestamp(bigint, text) IS
    'the time of a key in a layout, to the millisecond';

CREATE FUNCTION snowid_min(ts timestamptz, layout text) RETURNS bigint
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN "@schema@".snowid_field_of_time(ts, layout);
END $$;
COMMENT ON FUNCTION snowid_min(timestamptz, text) IS
    'the least key of the millisecond of ts in a layout';

CREATE FUNCTION snowid_max(ts timestamptz, layout text) RETURNS bigint
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN "@schema@".snowid_field_of_time(ts, layout)
        | (1::bigint << 63 - ("@schema@".snowid_layout_parts(layout)).timestamp_bits) - 1;
END $$;
COMMENT ON FUNCTION snowid_max(timestamptz, text) IS
    'the greatest key of the millisecond of ts in a layout';

CREATE FUNCTION snowid_encode(created_at timestamptz, datacenter_id int,
        worker_id int, sequence int, layout text) RETURNS bigint
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    l record := "@schema@".snowid_layout_parts(layout);
    id bigint := "@schema@".snowid_field_of_time(created_at, layout);
    field record;
BEGIN
    FOR field IN VALUES
        ('datacenter_id', datacenter_id, l.datacenter_bits, l.worker_bits + l.sequence_bits),
        ('worker_id', worker_id, l.worker_bits, CASE WHEN l.sequence_above THEN 0 ELSE l.sequence_bits END),
        ('sequence', sequence, l.sequence_bits, CASE WHEN l.sequence_above THEN l.worker_bits ELSE 0 END)
    LOOP
        IF field.column2 < 0 OR field.column2::bigint >> field.column3 <> 0 THEN
            RAISE EXCEPTION USING ERRCODE = '22023',
                MESSAGE = format('%s %s does not fit into %s bits', field.column1, field.column2, field.column3),
                DETAIL = format('The layout''s range is from 0 to %s.', (1::bigint << field.column3) - 1);
        END IF;
        id := id | (field.column2::bigint << field.column4);
    END LOOP;
    RETURN id;
END $$;
COMMENT ON FUNCTION snowid_encode(timestamptz, int, int, int, text) IS
    'the key with these fields in a layout';

CREATE FUNCTION snowid_bits(id bigint, layout text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    l record := "@schema@".snowid_layout_parts(layout);
    bits text := id::bit(64);
    width int;
    result text := left(bits, 1);
BEGIN
    PERFORM "@schema@".snowid_decode(id, layout);    -- throws if it is no key
    bits := substr(bits, 2);
    FOREACH width IN ARRAY ARRAY[l.timestamp_bits, l.datacenter_bits,
        CASE WHEN l.sequence_above THEN l.sequence_bits ELSE l.worker_bits END,
        CASE WHEN l.sequence_above THEN l.worker_bits ELSE l.sequence_bits END]
    LOOP
        CONTINUE WHEN width = 0;
        result := result || ' ' || left(bits, width);
        bits := substr(bits, width + 1);
    END LOOP;
    RETURN result;
END $$;
COMMENT ON FUNCTION snowid_bits(bigint, text) IS
    'the 64 bits, with spaces between the fields of a layout';

CREATE FUNCTION snowid_layouts(OUT name text, OUT epoch timestamptz,
        OUT tick_ms int, OUT timestamp_bits int, OUT datacenter_bits int,
        OUT worker_bits int, OUT sequence_bits int, OUT last_day date)
    RETURNS SETOF record IMMUTABLE PARALLEL SAFE ROWS 12
BEGIN ATOMIC
    SELECT n, snowid_time_of_ms(l.epoch), l.tick, l.timestamp_bits, l.datacenter_bits, l.worker_bits,
        l.sequence_bits, date '1970-01-01' + (l.last_ms / 86400000)::int
    FROM pg_catalog.unnest('{twitter,discord,instagram,mastodon,sonyflake,pgedge,leaf,baidu,
            shardingsphere,cosid,yitter,pgdog}'::text[]) WITH ORDINALITY u(n, i),
        snowid_layout_parts(n) l
    ORDER BY i;
END;
COMMENT ON FUNCTION snowid_layouts() IS
    'the named layouts: epoch, ms in a step of the timestamp, widths in bits, last day (UTC)';

-- ... and in that of this database's keys

CREATE FUNCTION snowid_decode(id bigint, OUT created_at timestamptz,
        OUT datacenter_id int, OUT worker_id int, OUT sequence int)
    STABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    SELECT * FROM snowid_decode(id, 'twitter'::text);
END;
COMMENT ON FUNCTION snowid_decode(bigint) IS
    'the fields of a key, the time to the millisecond';

CREATE FUNCTION snowid_timestamp(id bigint) RETURNS timestamptz
    STABLE STRICT PARALLEL SAFE RETURN snowid_timestamp(id, 'twitter'::text);
COMMENT ON FUNCTION snowid_timestamp(bigint) IS 'the time of a key, to the millisecond';

CREATE FUNCTION snowid_min(ts timestamptz) RETURNS bigint
    STABLE STRICT PARALLEL SAFE RETURN snowid_min(ts, 'twitter'::text);
COMMENT ON FUNCTION snowid_min(timestamptz) IS
    'the least key of the millisecond of ts; throws outside the layout''s range';

CREATE FUNCTION snowid_max(ts timestamptz) RETURNS bigint
    STABLE STRICT PARALLEL SAFE RETURN snowid_max(ts, 'twitter'::text);
COMMENT ON FUNCTION snowid_max(timestamptz) IS
    'the greatest key of the millisecond of ts; throws outside the layout''s range';

CREATE FUNCTION snowid_encode(created_at timestamptz, datacenter_id int,
        worker_id int, sequence int) RETURNS bigint
    STABLE STRICT PARALLEL SAFE RETURN snowid_encode(created_at, datacenter_id, worker_id, sequence, 'twitter'::text);
COMMENT ON FUNCTION snowid_encode(timestamptz, int, int, int) IS
    'the key with these fields; throws if one does not fit';

CREATE FUNCTION snowid_bits(id bigint) RETURNS text
    STABLE STRICT PARALLEL SAFE RETURN snowid_bits(id, 'twitter'::text);
COMMENT ON FUNCTION snowid_bits(bigint) IS
    'the 64 bits, with spaces between the fields: sign, timestamp, datacenter, worker, sequence';

-- Making keys

CREATE FUNCTION snowid_now() RETURNS bigint
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- in units; half a us early, so that it is not rounded up to the next ms
    RETURN (date_part('epoch', clock_timestamp()) - 1288834974.6570005) * 4096000;
END $$;
COMMENT ON FUNCTION snowid_now() IS 'internal: the clock in units';

-- Sends no messages: a client that reads none of them would keep the lock.
CREATE FUNCTION snowid_reserve(count bigint, in_one_ms boolean, lowest bigint,
        OUT first bigint, OUT pair bigint)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
    SET client_min_messages = error AS $$
DECLARE
    max_lead CONSTANT bigint := 1000 * 4096;
    max_wait CONSTANT bigint := 5000 * 4096;
    turn bigint;
    now bigint;
    last bigint;
    wait bigint := 0;
    nap float8;
    napped float8 := 0;
BEGIN
    BEGIN
        LOCK TABLE "@schema@".snowid_lock IN EXCLUSIVE MODE;
        pair := "@schema@".snowid_pair();    -- throws if it is not set up
        turn := coalesce(pg_sequence_last_value('"@schema@".snowid_turn'), 0) | 1;
        PERFORM setval('"@schema@".snowid_turn', turn);
        now := "@schema@".snowid_now();
        last := greatest(pg_sequence_last_value('"@schema@".snowid_units_0'), pg_sequence_last_value('"@schema@".snowid_units_1'), 0);
        IF turn >> 52 <> pair THEN
            last := last | 4095;    -- in one ms a lower pair would make lower keys
        END IF;
        first := greatest(last + 1, now, lowest);
        IF in_one_ms AND (first & 4095) + count > 4096 THEN
            first := (first | 4095) + 1;
        END IF;
        IF count > 0 THEN
            wait := first + count - 1 - max_lead - now;
        END IF;
        IF wait > max_wait THEN
            first := last + 1;
            count := 0;
        END IF;
        IF first + count - 1 > 9007199254740991 THEN
            RAISE EXCEPTION USING ERRCODE = '2200H', MESSAGE = 'the timestamp''s range of the snowid layout has ended';
        END IF;
        turn := pair << 52 | ((turn + 1) & (1::bigint << 52) - 1);
        PERFORM setval(CASE WHEN turn & 2 = 0 THEN '"@schema@".snowid_units_0'::regclass ELSE '"@schema@".snowid_units_1' END,
            first + count - 1);
        PERFORM setval('"@schema@".snowid_turn', turn);
        RAISE SQLSTATE 'SN000';
    EXCEPTION WHEN SQLSTATE 'SN000' THEN
        NULL;    -- which has released the lock
    END;

    -- the units are ours; they are handed out when they are due
    WHILE wait > 0 LOOP
        IF wait > max_wait OR napped > 5 THEN
            RAISE EXCEPTION USING ERRCODE = '58000',
                MESSAGE = format('the next key would lead the clock by %s ms', (wait + max_lead) / 4096),
                DETAIL = 'It may lead the clock by 1000 ms, and a caller waits for at most 5000 ms.',
                HINT = 'The clock was set back, or keys are requested faster than the layout can number them.';
        END IF;
        nap := least(wait / 4096000.0 + 0.0005, 0.1);
        napped := napped + nap;
        PERFORM pg_sleep(nap);
        wait := first + count - 1 - max_lead - "@schema@".snowid_now();
    END LOOP;
END $$;
COMMENT ON FUNCTION snowid_reserve(bigint, boolean, bigint) IS
    'internal: takes count units, in one ms if wanted, from "lowest" on; the first of them, and the pair';

CREATE FUNCTION snowid_pair() RETURNS bigint
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    pair bigint := "@schema@".snowid_compiled_pair();
BEGIN
    IF pair IS NULL THEN
        pair := "@schema@".snowid_compiled_pair();    -- a set-up may have come between the function and the file
    END IF;
    IF pair IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = 'snowid has no worker ID in this database',
            DETAIL = 'The database is new, or a copy of another one, and must not make the same keys.',
            HINT = 'Call snowid_setup(datacenter_id, worker_id) with a worker ID that no other server or database has.';
    END IF;
    RETURN pair;
END $$;
COMMENT ON FUNCTION snowid_pair() IS 'internal: the pair as a number from 0 to 1023; throws if there is none';

CREATE FUNCTION snowid_compile(datacenter_id int, worker_id int) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $compile$
DECLARE
    home CONSTANT regclass := '"@schema@".snowid_home';
    pair CONSTANT bigint := datacenter_id << 5 | worker_id;
    file text := 'none';
BEGIN
    IF pair IS NOT NULL THEN
        LOOP
            ALTER SEQUENCE "@schema@".snowid_home RESTART;
            EXIT WHEN pg_relation_filenode(home) <> home::oid;
        END LOOP;
        file := substring(pg_relation_filepath(home) FROM '/[0-9]+/[0-9]+$');    -- /database/file
    END IF;
    EXECUTE format($format$
CREATE OR REPLACE FUNCTION "@schema@".snowid_compiled_pair() RETURNS bigint
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $pair$
BEGIN
    IF '"@schema@".snowid_home'::regclass::oid = %1$s AND right(pg_relation_filepath('"@schema@".snowid_home'), %2$s) = %3$L THEN
        RETURN %4$s;
    END IF;
    RETURN NULL;
END $pair$;

CREATE OR REPLACE FUNCTION "@schema@".snowid_next() RETURNS bigint
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER PARALLEL UNSAFE AS $next$
DECLARE
    now bigint;
    turn bigint;
    unit bigint;
    pair bigint := %4$s;
BEGIN
    LOOP
        now := ((pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.-) 1288834974.6570005)
                OPERATOR(pg_catalog.*) 4096000)::bigint;
        turn := pg_catalog.pg_sequence_last_value('"@schema@".snowid_turn'::pg_catalog.regclass);
        unit := pg_catalog.nextval(CASE WHEN turn OPERATOR(pg_catalog.&) 2 OPERATOR(pg_catalog.=) 0
            THEN '"@schema@".snowid_units_0'::pg_catalog.regclass ELSE '"@schema@".snowid_units_1'::pg_catalog.regclass END);
        -- a unit may be up to a ms behind the clock, and up to 1 s ahead
        IF '"@schema@".snowid_home'::pg_catalog.regclass::pg_catalog.oid OPERATOR(pg_catalog.=) %1$s
            AND pg_catalog.right(pg_catalog.pg_relation_filepath('"@schema@".snowid_home'::pg_catalog.regclass), %2$s) OPERATOR(pg_catalog.=) %3$L
            AND turn OPERATOR(pg_catalog.>>) 52 OPERATOR(pg_catalog.=) pair
            AND turn OPERATOR(pg_catalog.&) 1 OPERATOR(pg_catalog.=) 0
            AND unit OPERATOR(pg_catalog.>=) (now OPERATOR(pg_catalog.-) 4096)
            AND unit OPERATOR(pg_catalog.<=) (now OPERATOR(pg_catalog.+) 4096000)
        THEN
            CONTINUE WHEN pg_catalog.pg_sequence_last_value('"@schema@".snowid_turn'::pg_catalog.regclass) OPERATOR(pg_catalog.<>) turn;
        ELSE
            SELECT r.first, r.pair INTO unit, pair FROM "@schema@".snowid_reserve(1::bigint, false, 0::bigint) r;
        END IF;
        RETURN unit OPERATOR(pg_catalog.>>) 12 OPERATOR(pg_catalog.<<) 22 OPERATOR(pg_catalog.|) (pair OPERATOR(pg_catalog.<<) 12)
            OPERATOR(pg_catalog.|) (unit OPERATOR(pg_catalog.&) 4095);
    END LOOP;
END $next$;
$format$, home::oid, length(file), file, coalesce(pair::text, 'NULL'));
END $compile$;
COMMENT ON FUNCTION snowid_compile(int, int) IS
    'internal: creates snowid_next() for a pair, or for none';

CREATE FUNCTION snowid_secure() RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    mine oid := (SELECT relowner FROM pg_class WHERE oid = '"@schema@".snowid_home'::regclass);
    -- the owner of public is the role pg_database_owner, which stands for the database's
    owner oid := (SELECT CASE WHEN nspowner = (SELECT oid FROM pg_roles WHERE rolname = 'pg_database_owner')
            THEN (SELECT datdba FROM pg_database WHERE datname = current_database()) ELSE nspowner END
        FROM pg_namespace WHERE oid = '"@schema@"'::regnamespace);
    command text;
BEGIN
    IF NOT pg_has_role(owner, mine, 'USAGE') THEN
        FOR command IN
            SELECT format('ALTER ROUTINE %s OWNER TO %I', p.oid::regprocedure, pg_get_userbyid(owner)) FROM pg_proc p
            WHERE pronamespace = '"@schema@"'::regnamespace AND proname ~ '^snowid_' AND proowner = mine
            UNION ALL
            SELECT format('ALTER %s %s OWNER TO %I', CASE relkind WHEN 'S' THEN 'SEQUENCE' WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END,
                c.oid::regclass, pg_get_userbyid(owner)) FROM pg_class c
            WHERE relnamespace = '"@schema@"'::regnamespace AND relname ~ '^snowid_' AND relkind = ANY ('{S,v,r}') AND relowner = mine
        LOOP
            EXECUTE command;
        END LOOP;
    END IF;
    -- also what default privileges gave
    FOR command IN
        SELECT DISTINCT format('REVOKE ALL ON %s FROM %s CASCADE', object, CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END)
        FROM (SELECT 'ROUTINE ' || p.oid::regprocedure, proowner, coalesce(proacl, acldefault('f', proowner)) FROM pg_proc p
            WHERE pronamespace = '"@schema@"'::regnamespace AND proname = ANY ('{snowid_pair,snowid_compiled_pair,snowid_reserve,snowid_compile,snowid_secure,snowid_setup,snowid_advance}')
            UNION ALL
            SELECT c.oid::regclass::text, relowner, relacl FROM pg_class c
            WHERE relnamespace = '"@schema@"'::regnamespace AND relname = ANY ('{snowid_home,snowid_turn,snowid_units_0,snowid_units_1,snowid_lock}')) o(object, owned_by, acl),
            aclexplode(acl)
        WHERE grantee <> owned_by
    LOOP
        EXECUTE command;
    END LOOP;
END $$;
COMMENT ON FUNCTION snowid_secure() IS
    'internal: all is owned by who owns the schema, and others have only what makes and reads keys';

CREATE FUNCTION snowid_setup(datacenter_id int, worker_id int) RETURNS void
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF datacenter_id BETWEEN 0 AND 31 AND worker_id BETWEEN 0 AND 31 THEN
        PERFORM "@schema@".snowid_compile(datacenter_id, worker_id);
        PERFORM "@schema@".snowid_secure();    -- a dump may have lost it
    ELSE
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'datacenter_id and worker_id must be from 0 to 31';
    END IF;
END $$;
COMMENT ON FUNCTION snowid_setup(int, int) IS
    'gives this database its pair, which no other database or server may have; keys continue above the last one';

CREATE FUNCTION snowid_next_batch(count bigint) RETURNS SETOF bigint
    LANGUAGE plpgsql VOLATILE STRICT ROWS 1000 SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    block bigint;
    taken record;
BEGIN
    PERFORM "@schema@".snowid_pair();    -- throws if it is not set up
    IF count < 0 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'count of keys must not be negative';
    END IF;
    WHILE count > 0 LOOP
        block := least(count, 65536);    -- 16 ms of keys
        taken := "@schema@".snowid_reserve(block, false, 0::bigint);
        RETURN QUERY SELECT unit >> 12 << 22 | (taken.pair << 12) | (unit & 4095)
            FROM generate_series(taken.first, taken.first + block - 1) unit;
        count := count - block;
    END LOOP;
END $$;
COMMENT ON FUNCTION snowid_next_batch(bigint) IS
    'the next count keys (0 or more), increasing, in blocks of consecutive units; waits and throws as snowid_next() does';

CREATE FUNCTION snowid_next_array(count bigint) RETURNS bigint[]
    LANGUAGE plpgsql VOLATILE STRICT SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF count > 67108864 THEN
        RAISE EXCEPTION USING ERRCODE = '54000', MESSAGE = format('an array cannot hold %s keys', count),
            DETAIL = 'It can hold 67108864.', HINT = 'Use snowid_next_batch().';
    END IF;
    RETURN ARRAY(SELECT "@schema@".snowid_next_batch(count));
END $$;
COMMENT ON FUNCTION snowid_next_array(bigint) IS
    'the next count keys (0 to 67108864), increasing, in one array';

CREATE FUNCTION snowid_next_block(count bigint) RETURNS bigint
    LANGUAGE plpgsql VOLATILE STRICT SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    taken record;
BEGIN
    IF count NOT BETWEEN 1 AND 4096 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('a block cannot have %s keys', count),
            DETAIL = 'It has from 1 to 4096, the keys of one millisecond.';
    END IF;
    taken := "@schema@".snowid_reserve(count, true, 0::bigint);
    RETURN taken.first >> 12 << 22 | (taken.pair << 12) | (taken.first & 4095);
END $$;
COMMENT ON FUNCTION snowid_next_block(bigint) IS
    'the first of count keys that are consecutive integers of one millisecond, all of them for the caller; count is from 1 to 4096; waits as snowid_next() does';

CREATE FUNCTION snowid_advance(id bigint) RETURNS void
    LANGUAGE plpgsql VOLATILE STRICT SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    lowest CONSTANT bigint := (id >> 22) + 1 << 12;    -- the next ms: the pairs may differ
    lead CONSTANT bigint := (lowest - "@schema@".snowid_now()) / 4096;
BEGIN
    IF id < 0 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'key must not be negative';
    END IF;
    IF lead > 3600000 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('key %s leads the clock by %s ms, more than an hour', id, lead),
            DETAIL = 'No key could be made until the clock reaches it.', HINT = 'Is it a key of the layout "twitter"?';
    END IF;
    PERFORM "@schema@".snowid_reserve(0::bigint, false, lowest);
    IF lead > 1000 THEN
        RAISE NOTICE 'keys wait until the clock has come within 1 s of key %, in % ms', id, lead - 1000;
    END IF;
END $$;
COMMENT ON FUNCTION snowid_advance(bigint) IS
    'makes every later key greater than id, which may lead the clock by at most an hour';

-- Keys as text

CREATE FUNCTION snowid_write_digits(id bigint, base int, length int) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    digits CONSTANT text := CASE base WHEN 32 THEN '0123456789ABCDEFGHJKMNPQRSTVWXYZ'
        ELSE '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz' END;
    result text := '';
BEGIN
    IF id < 0 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'key must not be negative';
    END IF;
    FOR i IN 1..length LOOP
        result := substr(digits, (id % base)::int + 1, 1) || result;
        id := id / base;
    END LOOP;
    RETURN result;
END $$;
COMMENT ON FUNCTION snowid_write_digits(bigint, int, int) IS 'internal: a key as text';

CREATE FUNCTION snowid_read_digits(str text, base int, length int) RETURNS bigint
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    digits CONSTANT text COLLATE "C" := CASE base WHEN 32 THEN '0123456789ABCDEFGHJKMNPQRSTVWXYZ'
        ELSE '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz' END;
    other CONSTANT int := length(substring(str COLLATE "C" FROM CASE base WHEN 32 THEN '^[-0-9A-TV-Za-tv-z]*' ELSE '^[0-9A-Za-z]*' END)) + 1;
    read text COLLATE "C" := str;
    value numeric := 0;
    problem text;
BEGIN
    IF base = 32 THEN
        read := translate(str COLLATE "C", 'abcdefghijklmnopqrstuvwxyzILO-', 'ABCDEFGH1JK1MN0PQRSTUVWXYZ110');
    END IF;
    IF other <= length(str) THEN
        problem := format('"%s" at position %s is not a digit of base %s.', substr(str, other, 1), other, base);
    ELSIF length(read) <> length THEN
        problem := format('It has %s digits instead of %s.', length(read), length);
    ELSE
        FOR i IN 1..length LOOP
            value := value * base + strpos(digits, substr(read, i, 1)) - 1;
        END LOOP;
        IF value <= 9223372036854775807 THEN
            RETURN value;
        END IF;
        problem := 'It is greater than the greatest key.';
    END IF;
    RAISE EXCEPTION USING ERRCODE = '22P02', MESSAGE = format('invalid key in base %s: "%s"', base, "@schema@".snowid_shown(str)), DETAIL = problem;
END $$;
COMMENT ON FUNCTION snowid_read_digits(text, int, int) IS 'internal: the key of a text';

CREATE FUNCTION snowid_to_base32(id bigint) RETURNS text
    IMMUTABLE STRICT PARALLEL SAFE RETURN snowid_write_digits(id, 32, 13);
COMMENT ON FUNCTION snowid_to_base32(bigint) IS
    'a key as 13 digits of base32 (Douglas Crockford''s: 0 to 9, A to Z without I, L, O, U), as TSIDs are written; sorts as keys do under COLLATE "C" and the collations of most languages (not Czech, where CH comes after H)';

CREATE FUNCTION snowid_from_base32(base32 text) RETURNS bigint
    IMMUTABLE STRICT PARALLEL SAFE RETURN snowid_read_digits(base32, 32, 13);
COMMENT ON FUNCTION snowid_from_base32(text) IS
    'the key of 13 digits of base32, at most 7ZZZZZZZZZZZZ; in either case, with O as 0, I and L as 1, and hyphens ignored';

CREATE FUNCTION snowid_to_base62(id bigint) RETURNS text
    IMMUTABLE STRICT PARALLEL SAFE RETURN snowid_write_digits(id, 62, 11);
COMMENT ON FUNCTION snowid_to_base62(bigint) IS
    'a key as 11 digits of base62 (0 to 9, A to Z, a to z); sorts as keys do under COLLATE "C" only';

CREATE FUNCTION snowid_from_base62(base62 text) RETURNS bigint
    IMMUTABLE STRICT PARALLEL SAFE RETURN snowid_read_digits(base62, 62, 11);
COMMENT ON FUNCTION snowid_from_base62(text) IS
    'the key of 11 digits of base62, at most AzL8n0Y58m7';

-- Keys as serial numbers, in a layout that is named or spelled out ...

CREATE FUNCTION snowid_serial(code text, id bigint, utc_offset text, layout text,
        check_digits boolean DEFAULT false) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    shift CONSTANT bigint := "@schema@".snowid_serial_offset(code, utc_offset);
    l record := "@schema@".snowid_layout_parts(layout);
    parts record := "@schema@".snowid_decode(id, layout);
    local timestamp := (parts.created_at AT TIME ZONE 'UTC') + shift * interval '1 min';
    field record;
    result text COLLATE "C";
BEGIN
    IF local < '0001-01-01' OR local >= '10000-01-01' THEN
        RAISE EXCEPTION USING ERRCODE = '22008', MESSAGE = format('time of key %s has no year of four digits', id),
            HINT = 'The key is of another layout.';
    END IF;
    result := code || to_char(local, 'YYYYMMDDHH24MISSMS');
    FOR field IN
        VALUES (0, parts.datacenter_id, l.datacenter_bits), (2, parts.worker_id, l.worker_bits),
            (CASE WHEN l.sequence_above THEN 1 ELSE 3 END, parts.sequence, l.sequence_bits)
        ORDER BY 1
    LOOP
        CONTINUE WHEN field.column3 = 0;
        result := result || lpad(field.column2::text, length(((1::bigint << field.column3) - 1)::text), '0');
    END LOOP;
    IF check_digits THEN
        result := result || to_char(98 - (
            SELECT string_agg((strpos('0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ', c) - 1)::text, '' ORDER BY n)
            FROM string_to_table(result || '00', NULL) WITH ORDINALITY t(c, n))::numeric % 97, 'FM00');
    END IF;
    RETURN result;
END $$;
COMMENT ON FUNCTION snowid_serial(text, bigint, text, text, boolean) IS
    'a key as a serial number in a layout';

CREATE FUNCTION snowid_serial_offset(code text, utc_offset text) RETURNS bigint
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ms bigint := ("@schema@".snowid_read_epoch('1970-01-01T00:00:00' || utc_offset COLLATE "C")).ms;
BEGIN
    IF code COLLATE "C" !~ '^[0-9A-Z]{0,8}$' THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('invalid code of a serial: "%s"', "@schema@".snowid_shown(code)),
            DETAIL = 'It has up to 8 characters, digits and capital letters from A to Z.';
    END IF;
    IF ms IS NULL OR utc_offset COLLATE "C" !~ '^[-+Z]' THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('invalid offset from UTC: "%s"', "@schema@".snowid_shown(utc_offset)),
            DETAIL = 'It must be a fixed offset of less than 16 hours: in a named zone times repeat at the end of summer time, and so would serials.',
            HINT = 'Write it as "+08" or "-05:30", or "Z" for UTC.';
    END IF;
    RETURN -ms / 60000;
END $$;
COMMENT ON FUNCTION snowid_serial_offset(text, text) IS
    'internal: the minutes of an offset from UTC; throws if it or the code is not valid';

CREATE FUNCTION snowid_serial_id(serial text, code text, utc_offset text, layout text,
        check_digits boolean DEFAULT false) RETURNS bigint
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    shift CONSTANT bigint := "@schema@".snowid_serial_offset(code, utc_offset);
    l record := "@schema@".snowid_layout_parts(layout);
    rest text COLLATE "C" := substr(serial, length(code) + 1);
    size int := length(code) + 17 + CASE WHEN check_digits THEN 2 ELSE 0 END;
    fields int[] := ARRAY[l.datacenter_bits, CASE WHEN l.sequence_above THEN l.sequence_bits ELSE l.worker_bits END,
        CASE WHEN l.sequence_above THEN l.worker_bits ELSE l.sequence_bits END];
    bits int;
    width int;
    value bigint;
    id bigint;
    local timestamp;
    ms bigint;
    again text COLLATE "C";
    problem text;
BEGIN
    SELECT size + sum(length(((1::bigint << b) - 1)::text)) FILTER (WHERE b > 0) INTO size FROM unnest(fields) b;
    size := coalesce(size, length(code) + 17 + CASE WHEN check_digits THEN 2 ELSE 0 END);
    IF left(serial, length(code)) <> code COLLATE "C" THEN
        problem := format('It does not begin with the code "%s".', code);
    ELSIF rest !~ '^[0-9]*$' THEN
        problem := 'After its code it has other characters than digits.';
    ELSIF length(serial) <> size THEN
        problem := format('It has %s characters instead of %s.', length(serial), size);
    ELSE
        local := timestamp '0001-01-01' + make_interval(left(rest, 4)::int - 1, substr(rest, 5, 2)::int - 1, 0,
            substr(rest, 7, 2)::int - 1, substr(rest, 9, 2)::int, substr(rest, 11, 2)::int, 0)
            + substr(rest, 13, 5)::int * interval '1 ms';
        ms := extract(epoch FROM local) * 1000 - shift * 60000;
        IF local < '0001-01-01' OR local >= '10000-01-01' OR ms NOT BETWEEN l.epoch AND l.last_ms THEN
            problem := 'Its time is out of the range of the layout.';
        ELSE
            id := (ms - l.epoch) / l.tick;
            rest := substr(rest, 18);
            FOR i IN 1..3 LOOP
                bits := fields[i];
                width := CASE WHEN bits > 0 THEN length(((1::bigint << bits) - 1)::text) ELSE 0 END;
                value := coalesce(nullif(left(rest, width), '')::bigint, 0);
                rest := substr(rest, width + 1);
                IF value >> bits <> 0 THEN
                    problem := coalesce(problem, format('Its field %s does not fit into %s bits of the layout.', i, bits));
                END IF;
                id := id << bits | value;
            END LOOP;
        END IF;
    END IF;
    IF problem IS NULL THEN
        again := "@schema@".snowid_serial(code, id, utc_offset, layout, check_digits);
        IF again = serial COLLATE "C" THEN
            RETURN id;
        END IF;
        problem := CASE WHEN left(again, length(code) + 17) = left(serial COLLATE "C", length(code) + 17)
            THEN 'Its check digits do not match.' ELSE 'The layout has no such time.' END;
    END IF;
    RAISE EXCEPTION USING ERRCODE = '22P02', MESSAGE = format('invalid serial: "%s"', "@schema@".snowid_shown(serial)), DETAIL = problem;
END $$;
COMMENT ON FUNCTION snowid_serial_id(text, text, text, text, boolean) IS
    'the key of a serial number in a layout';

-- ... and in that of this database's keys

CREATE FUNCTION snowid_serial(code text, id bigint, utc_offset text DEFAULT 'Z',
        check_digits boolean DEFAULT false) RETURNS text
    STABLE STRICT PARALLEL SAFE RETURN snowid_serial(code, id, utc_offset, 'twitter'::text, check_digits);
COMMENT ON FUNCTION snowid_serial(text, bigint, text, boolean) IS
    'a key as a serial number: code (up to 8 characters 0 to 9, A to Z), time at a fixed offset from UTC (yyyymmddhhmissms), datacenter, worker and sequence with leading zeros; two check digits (ISO 7064 MOD 97-10) on request; sorts as keys do under every collation';

CREATE FUNCTION snowid_serial_id(serial text, code text, utc_offset text DEFAULT 'Z',
        check_digits boolean DEFAULT false) RETURNS bigint
    STABLE STRICT PARALLEL SAFE RETURN snowid_serial_id(serial, code, utc_offset, 'twitter'::text, check_digits);
COMMENT ON FUNCTION snowid_serial_id(text, text, text, boolean) IS
    'the key of a serial number that snowid_serial() wrote with the same code, offset and check digits';

-- Puts the schema's name into all functions, and creates snowid_next() without a pair

DO $do$
DECLARE
    target CONSTANT pg_catalog.name := pg_catalog.current_schema();
    stranger pg_catalog.text;
    func pg_catalog.regprocedure;
BEGIN
    IF pg_catalog.to_regprocedure(pg_catalog.format('%I.snowid_next()', target)) IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = '42710', MESSAGE = pg_catalog.format('schema "%s" already contains snowid', target),
            HINT = 'Nothing was changed.';
    END IF;
    IF pg_catalog.concat(pg_catalog.current_setting('snowid_managed.transaction', true))
        OPERATOR(pg_catalog.<>) pg_catalog.pg_current_xact_id()::pg_catalog.text THEN
        RAISE EXCEPTION USING ERRCODE = '25P01', MESSAGE = 'the script of snowid must run in one transaction',
            HINT = 'Drop what it has created, and run it with "psql -1".';
    END IF;
    IF target OPERATOR(pg_catalog.~) '["$''\\%]' THEN
        RAISE EXCEPTION USING ERRCODE = '42602', MESSAGE = pg_catalog.format('invalid name of a schema for snowid: "%s"', target),
            DETAIL = 'It must not have any of the characters "$''\%.';
    END IF;
    SELECT o.name INTO stranger FROM (
        SELECT proname, proowner, pronamespace FROM pg_catalog.pg_proc
        UNION ALL SELECT relname, relowner, relnamespace FROM pg_catalog.pg_class) o(name, owner, schema)
    WHERE o.schema OPERATOR(pg_catalog.=) pg_catalog.quote_ident(target)::pg_catalog.regnamespace
        AND o.name OPERATOR(pg_catalog.~) '^snowid_' AND pg_catalog.pg_get_userbyid(o.owner) OPERATOR(pg_catalog.<>) current_user;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = pg_catalog.format('"%s" in schema "%s" belongs to another role than "%s"', stranger, target, current_user),
            HINT = 'Drop it, or install snowid in another schema.';
    END IF;
    FOR func IN
        SELECT oid FROM pg_catalog.pg_proc
        WHERE pronamespace OPERATOR(pg_catalog.=) pg_catalog.quote_ident(target)::pg_catalog.regnamespace
            AND proname OPERATOR(pg_catalog.~) '^snowid_' AND prosrc OPERATOR(pg_catalog.~) '@schema@'
            AND pg_catalog.pg_get_userbyid(proowner) OPERATOR(pg_catalog.=) current_user
    LOOP
        EXECUTE pg_catalog.replace(pg_catalog.pg_get_functiondef(func), '"@' || 'schema@"', pg_catalog.quote_ident(target));
    END LOOP;
    PERFORM pg_catalog.setval('snowid_turn', 0), pg_catalog.setval('snowid_units_0', 0), pg_catalog.setval('snowid_units_1', 0);
    ALTER FUNCTION snowid_next_batch(bigint) SECURITY DEFINER;
    ALTER FUNCTION snowid_next_block(bigint) SECURITY DEFINER;
    ALTER FUNCTION snowid_advance(bigint) SECURITY DEFINER;
    PERFORM snowid_compile(NULL::int, NULL::int);
    COMMENT ON FUNCTION snowid_compiled_pair() IS 'internal: the pair that was set up here, or NULL';
    COMMENT ON FUNCTION snowid_next() IS
        'the next key: 64 bits, positive, greater than every key this database made before; waits for up to 5 s, then throws an error that says why';
    PERFORM snowid_secure();
END $do$;
