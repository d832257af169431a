# Run by test/by_hand/clients: the type snowid, JSON and arrays through psycopg 2 or 3.
import importlib
import json
import sys

name = sys.argv[1]
psycopg = importlib.import_module(name)
db = psycopg.connect("")
cursor = db.cursor()


def one(sql, *values):
    cursor.execute(sql, values)
    return cursor.fetchone()[0]


key = one("INSERT INTO orders (customer) VALUES ('Ada') RETURNING id")
assert isinstance(key, str) and len(key) == 13, key
rows = one("SELECT json_agg(o) FROM orders o")
again = json.loads(json.dumps(rows))[0]["id"]
assert again == key
assert one("SELECT customer FROM orders WHERE id = %s", again) == "Ada"
assert one("SELECT customer FROM orders WHERE id = ANY(%s::snowid[])", [key]) == "Ada"

# as numbers, however large or small the driver takes them for
number = one("SELECT id::bigint FROM orders")
assert isinstance(number, int)
assert one("SELECT id FROM orders WHERE id = %s", number) == key
for small in (0, 100000, 5000000000):
    assert one("SELECT count(*) FROM orders WHERE id > %s", small) == 1
assert one("SELECT id::bigint FROM orders WHERE id = ANY(%s::bigint[])", [number]) == number
one("INSERT INTO orders VALUES (%s, 'Bob') RETURNING id", number + 1)

# COPY, text and binary
if name == "psycopg":
    with cursor.copy("COPY orders FROM STDIN (FORMAT binary)") as copy:
        copy.set_types(["int8", "text"])
        for i in range(100):
            copy.write_row((number + 2 + i, "Cid"))
    with cursor.copy("COPY orders (id) TO STDOUT") as copy:
        assert len(list(copy.rows())) == 102
    cursor = db.cursor(binary=True)
    assert one("SELECT id::bigint FROM orders WHERE id = %s", number) == number

keys = one("SELECT snowid_next_array(%s)", 11)
assert len(keys) == 11 and keys == sorted(keys)
block = one("SELECT snowid_next_block(%s)", 100)
cursor.executemany("INSERT INTO orders VALUES (%s, 'Dan')", [(block + i,) for i in range(100)])
assert one("SELECT count(*) FROM orders WHERE customer = 'Dan'") == 100
cursor.execute("DELETE FROM orders")
db.commit()
try:
    one("SELECT customer FROM orders WHERE id = %s", "no key")
    raise AssertionError("no error")
except psycopg.Error as error:
    assert (getattr(error, "sqlstate", None) or error.pgcode) == "22P02", error
