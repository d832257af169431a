# shellcheck shell=bash disable=SC2154 # $build, $bindir are of setup.sh, $store_order of engines
# timescaledb.sh - test/by_hand/engines timescaledb: the recipe of doc/engines.md as it stands
# there, and orders in a hypertable by key, under load and after a crash.
#
# Debian has TimescaleDB from 13 on.

packages_timescaledb() { echo "postgresql-$pg_major-timescaledb?"; }

# The Nth SQL block of the page's section
timescaledb_block()
{
	awk -v n="$1" '
		/^## /  { here = $0 == "## TimescaleDB" }
		/^```/  { inside = here && !inside && (/^```sql/ && ++seen == n); next }
		inside' "$top/doc/engines.md" | grep . || die "doc/engines.md has no block $1 under TimescaleDB"
}

prove_timescaledb()
{
	compgen -G "$("$bindir/pg_config" --pkglibdir)/timescaledb*.so" >/dev/null ||
		skip "there is no TimescaleDB for PostgreSQL $pg_major here"
	start_shop 5671 "shared_preload_libraries = 'timescaledb, snowid'" "timescaledb.telemetry_level = off" \
		"restart_after_crash = on"
	answer 5671 "SET client_min_messages = warning; CREATE EXTENSION timescaledb" >/dev/null

	timescaledb_block 1 >"$build/recipe.sql"
	sql 5671 -q -f "$build/recipe.sql" >/dev/null
	answer 5671 "INSERT INTO readings SELECT snowid_min(now() - day * interval '1 day'), day FROM generate_series(0, 5) day;
		INSERT INTO readings (value) SELECT 7 FROM generate_series(1, 100)"
	require "the hypertable has no chunk for each day" 5671 "SELECT count(*) = 6 FROM show_chunks('readings')"
	answer 5671 "EXPLAIN (COSTS OFF) SELECT * FROM readings WHERE id >= snowid_min(now() - interval '1 second')" |
		tee "$build/plan"
	(($(grep -c '_hyper_[0-9_]*chunk' "$build/plan") <= 2)) || die "chunks of other days are read"
	timescaledb_block 2 >"$build/drop.sql"
	sed "s/90 days/3 days/" "$build/drop.sql" >"$build/drop3.sql"
	grep -q "3 days" "$build/drop3.sql" || die "the page drops something else"
	sql 5671 -q -f "$build/drop3.sql" >/dev/null
	require "old chunks are still there" 5671 "SELECT count(*) BETWEEN 3 AND 4 FROM show_chunks('readings')"

	answer 5671 "SELECT create_hypertable('orders', by_range('id', 362387865600000))" >/dev/null
	trade 4 "$store_order" -d "$(at 5671)"
	wait_until 5671 "SELECT count(*) > 100 FROM orders" || die "nobody stores orders"
	kill_server 5671
	start_server 5671
	wait_until 5671 "SELECT count(*) > 300 FROM orders" || die "nobody stores orders after the crash"
	stop_trading
	prove_keys 5671=1
	prove_rows 5671
	stop_servers 5671
}
