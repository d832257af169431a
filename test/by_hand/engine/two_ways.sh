# shellcheck shell=bash disable=SC2154,SC2034 # $build, $pg_major are of setup.sh
# two_ways.sh - test/by_hand/engines logical, and pglogical: two servers that replicate to
# each other, under load, while subscriptions come and go, and one of the servers crashes.
#
# What differs is in functions named by the engine: its settings, what a server
# publishes, a subscription that begins, and one that ends.  A subscription's
# name is what it subscribes to: orders (and their lines), or stock.

#---- Logical replication ----

packages_logical() { :; }

logical_settings() { :; }

# From 16 on a subscription can leave out what came from elsewhere; until then
# each server publishes what it made itself.
logical_publish()
{
	local own="((id >> 12) & 1023 = $(($1 % 10)))"

	if ((pg_major < 16)); then
		answer "$1" "CREATE PUBLICATION orders FOR TABLE orders WHERE $own, order_lines WHERE $own"
	else
		answer "$1" "CREATE PUBLICATION orders FOR TABLE orders, order_lines"
	fi
	answer "$1" "CREATE PUBLICATION stock FOR TABLE stock"
}

# subscriber what provider copy-rows
logical_subscribe()
{
	local origin=

	((pg_major < 16)) || origin=', origin = none'
	sql "$1" -c "SET client_min_messages = warning" -c "
		CREATE SUBSCRIPTION $2 CONNECTION '$(at "$3")' PUBLICATION $2
		WITH (copy_data = $4$origin)"
	wait_until "$1" "SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel
		JOIN pg_subscription ON pg_subscription.oid = srsubid WHERE subname = '$2'" ||
		die "server $1: the subscription $2 does not begin: $(tail -n 5 "$build/$1.log")"
}

logical_unsubscribe()
{
	sql "$1" -c "SET client_min_messages = warning" -c "DROP SUBSCRIPTION $2"
}

prove_logical() { prove_two_ways logical 5611 5612; }

#---- pglogical ----

packages_pglogical() { echo "postgresql-$pg_major-pglogical"; }

pglogical_settings()
{
	echo "shared_preload_libraries = 'snowid,pglogical'"
	# the newest minor releases ask for consent
	[[ $(run postgres --describe-config) != *output_plugin_libraries* ]] ||
		echo "output_plugin_libraries = 'pgoutput, pglogical_output'"
}

pglogical_publish()
{
	answer "$1" "CREATE EXTENSION pglogical"
	answer "$1" "SELECT pglogical.create_node('server_$1', '$(at "$1")'),
		pglogical.create_replication_set('orders'),
		pglogical.replication_set_add_table('orders', 'orders'),
		pglogical.replication_set_add_table('orders', 'order_lines'),
		pglogical.create_replication_set('stock'),
		pglogical.replication_set_add_table('stock', 'stock')" >/dev/null
}

pglogical_subscribe()
{
	answer "$1" "SELECT pglogical.create_subscription('$2', '$(at "$3")',
		replication_sets := '{$2}', synchronize_data := $4, forward_origins := '{}')" >/dev/null
	wait_until "$1" "SELECT status = 'replicating' FROM pglogical.show_subscription_status('$2')" ||
		die "server $1: the subscription $2 does not begin: $(tail -n 5 "$build/$1.log")"
}

pglogical_unsubscribe() { answer "$1" "SELECT pglogical.drop_subscription('$2')" >/dev/null; }

prove_pglogical() { prove_two_ways pglogical 5621 5622; }

#---- Both ----

# The rows of a table, in order.
rows() { answer "$1" "SELECT * FROM $2 ORDER BY 1"; }

# require_same what table server server
require_same()
{
	rows "$3" "$2" >"$build/rows.$3"
	rows "$4" "$2" >"$build/rows.$4"
	cmp -s "$build/rows.$3" "$build/rows.$4" ||
		{ diff "$build/rows.$3" "$build/rows.$4" | head -n 5 || :; die "$1"; }
}

# The query of doc/engines.md for the lag of subscriptions: it shows so many, and
# none of their positions is ahead of its provider.
require_lag()
{
	local shown

	shown=$(answer "$1" "SELECT count(*) || ' ' || max(remote_lsn)
		FROM pg_replication_origin_status
		WHERE external_id IS NOT NULL AND remote_lsn <> '0/0'")
	require "server $1 shows $shown, not $2 subscriptions" "$3" "
		SELECT '${shown% *}' = '$2' AND '${shown#* }'::pg_lsn <= pg_current_wal_insert_lsn()"
}

prove_two_ways()
{
	local engine=$1 a=$2 b=$3 port round

	for port in "$a" $b; do
		start_shop "$port" "snowid.max_lead = 10ms" "wal_level = logical" \
			"track_commit_timestamp = on" "max_worker_processes = 30" \
			"max_replication_slots = 20" "max_wal_senders = 20" "$("${engine}_settings")"
		sql "$port" -f test/by_hand/engine/two_ways.sql
		"${engine}_publish" "$port"
	done

	# the rows of one server are copied while it stores; then the other stores, too
	trade 2 "$store_order" -d "$(at "$a")"
	wait_until "$a" "SELECT count(*) > 200 FROM orders" || die "server $a does not store"
	"${engine}_subscribe" "$b" orders "$a" true
	"${engine}_subscribe" "$a" orders "$b" false
	trade 2 "$store_order" -d "$(at "$b")"

	for round in 1 2 3 4; do
		answer "$a" "INSERT INTO stock SELECT i, 'round $round' FROM generate_series($round * 1000, $round * 1000 + 499) i"
		answer "$b" "TRUNCATE stock"
		"${engine}_subscribe" "$b" stock "$a" true
		answer "$a" "INSERT INTO stock SELECT i, 'round $round' FROM generate_series($round * 1000 + 500, $round * 1000 + 999) i"
		wait_until "$b" "SELECT count(*) = $round * 1000 FROM stock" ||
			die "round $round: server $b got $(answer "$b" "SELECT count(*) FROM stock") of $((round * 1000)) rows"
		require_same "round $round: the stock differs" stock "$a" "$b"
		require_lag "$b" 2 "$a"
		"${engine}_unsubscribe" "$b" stock
	done
	require_lag "$b" 1 "$a"
	echo "4 subscriptions came and went: no row was skipped; the query for lag shows them, and not snowid's ceilings"

	# a crash, while both of them continue
	run pg_ctl -D "$build/$b" -m immediate stop >/dev/null
	start_server "$b"
	wait_for_keys "$b"
	round=$(answer "$b" "SELECT count(*) FROM orders WHERE server = $b")
	wait_until "$b" "SELECT count(*) > $round + 200 FROM orders WHERE server = $b" ||
		die "server $b does not store after its crash"
	stop_trading

	prove_keys "$a=$((a % 10))" "$b=$((b % 10))"
	for port in "$a" $b; do
		wait_until "$port" "SELECT (SELECT count(*) FROM orders) >= $(keys stored | wc -l) / 4" ||
			echo "not everything came to server $port within two minutes"
		prove_rows "$port"
		require "server $port has orders with the worker ID of another server" "$port" \
			"SELECT bool_and((id >> 12) & 1023 = server % 10) FROM orders"
		require "server $port: a key is above the ceiling" "$port" "
			SELECT bool_and(id <= remote_lsn - '0/0')
			FROM (SELECT max(id) AS id FROM orders WHERE server = $port) AS last,
			pg_replication_origin_status WHERE local_id = 65533"
	done
	require_same "orders differ" orders "$a" "$b"
	require_same "lines differ" order_lines "$a" "$b"
	echo "both servers have the same rows, and every key is below its ceiling"
	stop_servers "$a" "$b"
}
