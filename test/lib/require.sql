-- Ends a demo whose proof does not hold.
CREATE FUNCTION require(holds boolean, what text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF holds IS NOT TRUE THEN
        RAISE EXCEPTION 'the proof failed: %', what;
    END IF;
END $$;
