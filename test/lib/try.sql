-- Tells what each of these calls, or statements, ends with: its result, or its error.
CREATE PROCEDURE try(VARIADIC calls text[]) LANGUAGE plpgsql AS $$
DECLARE
    call text;
    result text;
    detail text;
    hint text;
BEGIN
    FOREACH call IN ARRAY calls LOOP
        BEGIN
            EXECUTE CASE WHEN call ~ '^(INSERT|UPDATE) ' THEN call ELSE 'SELECT ' || call END INTO result;
            RAISE INFO '%: %', call, result;
        EXCEPTION WHEN OTHERS THEN
            GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
            -- core's detail of a constraint is the row, with the time
            RAISE INFO '%: % %', call, sqlstate,
                concat_ws(' / ', sqlerrm, CASE WHEN sqlstate !~ '^23' THEN nullif(detail, '') END, nullif(hint, ''));
        END;
    END LOOP;
END $$;
