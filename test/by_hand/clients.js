// Run by test/by_hand/clients: the type snowid, JSON and arrays through node's pg.
const assert = require('node:assert');
const { Client } = require('pg');

async function main() {
    const db = new Client();
    await db.connect();
    const one = async (sql, values) => (await db.query(sql, values)).rows[0];

    // a row's key is text, also in JSON, and survives JSON.parse
    const { id } = await one("INSERT INTO orders (customer) VALUES ('Ada') RETURNING id");
    assert.match(id, /^[0-9A-HJKMNP-TV-Z]{13}$/);
    const { json } = await one("SELECT json_agg(o) AS json FROM orders o");
    assert.strictEqual(json[0].id, id);
    const again = JSON.parse(JSON.stringify(json));
    assert.strictEqual((await one('SELECT customer FROM orders WHERE id = $1', [again[0].id])).customer, 'Ada');
    assert.strictEqual((await one('SELECT customer FROM orders WHERE id = ANY($1::snowid[])', [[id]])).customer, 'Ada');
    assert.strictEqual((await one('SELECT * FROM json_populate_record(NULL::orders, $1)', [JSON.stringify(json[0])])).id, id);

    // as a number: BigInt is exact, JSON of a bigint column is not
    const { number } = await one('SELECT id::bigint AS number FROM orders');
    assert.strictEqual((await one('SELECT id FROM orders WHERE id = $1::bigint', [BigInt(number)])).id, id);
    await db.query("INSERT INTO numbers VALUES ($1, 'Ada')", [BigInt(number)]);
    const rounded = (await one('SELECT json_agg(n) AS json FROM numbers n')).json[0].id;
    assert.strictEqual(typeof rounded, 'number');
    assert.strictEqual((await one("SELECT json_agg(json_build_object('id', id::snowid)) AS json FROM numbers")).json[0].id, id);

    // keys first: one array; a block to count in
    const { keys } = await one('SELECT snowid_next_array($1)::snowid[]::text[] AS keys', [3]);
    assert.strictEqual(keys.length, 3);
    assert.deepStrictEqual([...keys].sort(), keys);
    const { block } = await one('SELECT snowid_next_block($1) AS block', [100]);
    await db.query("INSERT INTO orders SELECT n, 'Bob' FROM unnest($1::bigint[]) n",
        [Array.from({ length: 100 }, (_, i) => BigInt(block) + BigInt(i))]);
    assert.strictEqual((await one("SELECT count(*)::int FROM orders WHERE customer = 'Bob'")).count, 100);

    await assert.rejects(db.query('SELECT * FROM orders WHERE id = $1', ['no key']), { code: '22P02' });
    await db.query('DELETE FROM orders; DELETE FROM numbers');
    await db.end();
}

main().catch((error) => {
    console.error(error);
    process.exit(1);
});
