-- The public form of keys: snowid.public_key_file is the file "public_keys" in the
-- data directory, which this test writes.
CREATE EXTENSION snowid;
\set ECHO none
\getenv dir PG_ABS_SRCDIR
\i :dir/test/lib/try.sql
\set ECHO all
CREATE FUNCTION keep(lines text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('COPY (SELECT unnest(string_to_array(%L, ''|''))) TO PROGRAM ''umask 077; tr @~ \\t\\r >public_keys.new; mv public_keys.new public_keys''', lines);
END $$;

-- There is no such file yet; one that is there now needs no reload
CALL try(
    $$snowid_to_public(1, 'ord')$$,
    $$snowid_from_public('ord_0j8nm6zv7335k3j5', 'ord')$$);
SELECT keep('# of the tests|31 2b7e151628aed2a6abf7158809cf4f3cef4359d8d580aa4f7f036d6f04fc6a94 read||0 2b7e151628aed2a6abf7158809cf4f3c|');

-- What @noble/ciphers (FF1, npm) makes of the same secrets
CREATE TABLE answers (prefix text, id bigint, public text);
INSERT INTO answers VALUES
    ('ord', 0, 'ord_0j8nm6zv7335k3j5'),
    ('ord', 2124696200530788326, 'ord_0m5mtv09dyesv705'),
    ('ord', 9223372036854775807, 'ord_014vd21gn860cjpp'),
    ('c', 0, 'c_0ybde23x5jgemqvs'),
    ('c', 2124696200530788326, 'c_0aabzfyrkk6sje2h'),
    ('c', 9223372036854775807, 'c_0nwfwca4665vt12n'),
    ('customer9', 0, 'customer9_01f85x0fgst3dn4c'),
    ('customer9', 2124696200530788326, 'customer9_0f9kak4wnh4a0f1b'),
    ('customer9', 9223372036854775807, 'customer9_0e5w95exzde5n75k'),
    ('customer_1', 0, 'customer_1_071b3sscdc8432s9'),
    ('customer_1', 2124696200530788326, 'customer_1_0g7ptr3jzaghae8c'),
    ('customer_1', 9223372036854775807, 'customer_1_02v3pbphywbd4b65'),
    ('abcdefghijklmnopqrst', 0, 'abcdefghijklmnopqrst_0yhns0m8ky9narna'),
    ('abcdefghijklmnopqrst', 2124696200530788326, 'abcdefghijklmnopqrst_0cb78pvgg5d86r9c'),
    ('abcdefghijklmnopqrst', 9223372036854775807, 'abcdefghijklmnopqrst_02w60z78wy12aypr'),
    ('ord', 0, 'ord_z7nxdkd77mqfmvrd'),
    ('ord', 2124696200530788326, 'ord_z3nj5aje7p8w4xn6'),
    ('ord', 9223372036854775807, 'ord_zedvxsbchap406mr'),
    ('c', 0, 'c_z0kapn1951pa1bxb'),
    ('c', 2124696200530788326, 'c_zbcmdd6fxjz45r1a'),
    ('c', 9223372036854775807, 'c_z6h15xngtr2j763s'),
    ('customer9', 0, 'customer9_zrs32x9jb0trp0dm'),
    ('customer9', 2124696200530788326, 'customer9_z73c83z8ewkrj21d'),
    ('customer9', 9223372036854775807, 'customer9_za1xvpcnnhf2gpwm'),
    ('customer_1', 0, 'customer_1_znx7fdyeqstwrmrw'),
    ('customer_1', 2124696200530788326, 'customer_1_znbe2nk7wqc5farm'),
    ('customer_1', 9223372036854775807, 'customer_1_zf19bm332p17fb85'),
    ('abcdefghijklmnopqrst', 0, 'abcdefghijklmnopqrst_z170v1xmjr3fqfns'),
    ('abcdefghijklmnopqrst', 2124696200530788326, 'abcdefghijklmnopqrst_zt1vp3tzkv8h6f22'),
    ('abcdefghijklmnopqrst', 9223372036854775807, 'abcdefghijklmnopqrst_z2jp5d5sfbdmph4m');
SELECT prefix, id, public FROM answers WHERE snowid_from_public(public, prefix) <> id;
SELECT prefix, id, public FROM answers
WHERE public LIKE '%\_0%' AND snowid_to_public(id, prefix) <> public;
SELECT snowid_to_public(2124696200530788326, 'ord');

-- Every length of a prefix, keys all over the range
SELECT count(*), bool_and(snowid_from_public(snowid_to_public(id, prefix), prefix) = id) AS back,
       bool_and(snowid_to_public(id, prefix) ~ ('^' || prefix || '_0[0-9a-hjkmnp-tv-z]{15}$')) AS form
FROM (SELECT (power(1.7::numeric, n) + i)::bigint AS id, repeat('p', i) AS prefix
      FROM generate_series(0, 82) n, generate_series(1, 20) i) s;
SELECT snowid_from_public(snowid_to_public(7, 'a0_9z'), 'a0_9z') AS by_the_ends_of_the_alphabet;

-- People's spelling, as the type snowid reads it
SELECT snowid_from_public(t, 'ord') AS id
FROM unnest(ARRAY['ord_0M5MTV09DYESV705', 'ORD_0m5mtv09dyesv705', 'ord_Om5m-tvo9-dyes-v7o5', 'ord_-0m5mtv09dyesv705--']) t;
SELECT snowid_from_public(t, 'ord') AS id FROM unnest(ARRAY['ord_0i4vd2lgn860cjpp', 'ord_0L4VD2IGN860CJPP']) t;

-- Keys that follow each other have forms that do not
SELECT snowid_to_public(n, 'ord') FROM generate_series(1, 3) n;

-- A row is found by the index of its key
CREATE TABLE orders (id bigint PRIMARY KEY);
SET enable_seqscan = off;
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT * FROM orders WHERE id = snowid_from_public('ord_0m5mtv09dyesv705', 'ord');
RESET enable_seqscan;
RESET enable_bitmapscan;
SELECT provolatile, proisstrict, proparallel, count(*) FROM pg_proc
WHERE proname IN ('snowid_to_public', 'snowid_from_public') GROUP BY 1, 2, 3;
SELECT snowid_to_public(NULL, 'ord'), snowid_to_public(1, NULL), snowid_from_public(NULL, 'ord'), snowid_from_public('x', NULL);

-- What is none
CALL try(
    $$snowid_to_public(-1, 'ord')$$,
    $$snowid_from_public('ord_0m5mtv09dyesv705', 'usr')$$,
    $$snowid_from_public('', 'ord')$$,
    $$snowid_from_public('ord', 'ord')$$,
    $$snowid_from_public('ord_', 'ord')$$,
    $$snowid_from_public('ord0m5mtv09dyesv705', 'ord')$$,
    $$snowid_from_public('ord_0m5mtv09dyesv70', 'ord')$$,
    $$snowid_from_public('ord_0m5mtv09dyesv7055', 'ord')$$,
    $$snowid_from_public('ord_0m5mtv09dyesv70u', 'ord')$$,
    $$snowid_from_public(' ord_0m5mtv09dyesv705', 'ord')$$,
    $$snowid_from_public('ord_0m5mtv09dyesv705' || chr(10), 'ord')$$,
    -- one digit is another one
    $$snowid_from_public('ord_0m5mtv09dyesv706', 'ord')$$,
    -- the number of a secret that is there, and of one that is not
    $$snowid_from_public('ord_zm5mtv09dyesv705', 'ord')$$,
    $$snowid_from_public('ord_2m5mtv09dyesv705', 'ord')$$,
    -- Prefixes that are none
    $$snowid_to_public(1, p) FROM (VALUES ('')) v(p)$$,
    $$snowid_to_public(1, 'Ord')$$,
    $$snowid_to_public(1, '_ord')$$,
    $$snowid_to_public(1, 'ord_')$$,
    $$snowid_to_public(1, 'or-d')$$,
    $$snowid_to_public(1, 'abcdefghijklmnopqrstu')$$,
    $$snowid_from_public('ORD_0m5mtv09dyesv705', 'ORD')$$);

-- Bad files.  A session that has read a file reads it again after a reload
-- (test/t/forms/public.pl); where it could not, at the next call.
SELECT keep('0 2b7e151628aed2a6abf7158809cf4f3c|# next|1 2b7e151628aed2a6abf7158809cf4f3');
\c -
SELECT snowid_to_public(1, 'ord');
\echo :LAST_ERROR_SQLSTATE
DO $$
DECLARE
    line text;
    detail text;
BEGIN
    FOREACH line IN ARRAY ARRAY['32 2b7e151628aed2a6abf7158809cf4f3c', '-1 2b7e151628aed2a6abf7158809cf4f3c',
        '001 2b7e151628aed2a6abf7158809cf4f3c', '1', '2b7e151628aed2a6abf7158809cf4f3c', '1 2b7e151628aed2a6abf7158809cf4f3g',
        '1 2b7e151628aed2a6abf7158809cf4f3c write', '1 2b7e151628aed2a6abf7158809cf4f3c read it',
        '1 2b7e151628aed2a6abf7158809cf4f3cef4359d8d580aa4f', '1=2b7e151628aed2a6abf7158809cf4f3c',
        '0 2b7e151628aed2a6abf7158809cf4f3c|00 2b7e151628aed2a6abf7158809cf4f3c',
        '', '# nothing', '0 2b7e151628aed2a6abf7158809cf4f3c read']
    LOOP
        PERFORM keep(line);
        BEGIN
            PERFORM snowid_to_public(1, 'ord');
            RAISE NOTICE '%: no error', line;
        EXCEPTION WHEN config_file_error THEN
            GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
            RAISE NOTICE '%: %', line, detail;
        END;
    END LOOP;
END $$;

-- Spaces, tabs and the ends of lines of Windows do not matter, nor the case of digits
SELECT keep('  9@2B7E151628AED2A6ABF7158809CF4F3C@@read ~| ~|5 2b7e151628aed2a6abf7158809cf4f3c~');
SELECT left(snowid_to_public(1, 'ord'), 5) AS of_the_highest_that_writes;

COPY (SELECT) TO PROGRAM 'rm public_keys';
DROP TABLE answers, orders;
DROP FUNCTION keep;
DROP PROCEDURE try;
DROP EXTENSION snowid;
