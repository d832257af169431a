# shellcheck shell=bash disable=SC2154 # $build is of setup.sh, $store_order of engines
# pgbouncer.sh - test/by_hand/engines pgbouncer: many clients share few connections, each
# for a transaction or a statement, and the connections are lost at times.

packages_pgbouncer() { echo pgbouncer; }

start_pgbouncer()
{
	run pgbouncer -q "$build/pgbouncer.ini" >"$build/pgbouncer.log" 2>&1 &
	for _ in {1..100}; do
		[[ $(answer 5649 "SELECT true" 2>/dev/null) != t ]] || return 0
		sleep 0.1
	done
	tail -n 20 "$build/pgbouncer.log"
	die "pgbouncer did not start"
}

# Until this many orders more are stored
wait_for_orders()
{
	local stored

	stored=$(answer 5641 "SELECT count(*) FROM orders")
	wait_until 5641 "SELECT count(*) > $stored + $1 FROM orders" || die "nobody stores orders: $2"
}

prove_pgbouncer()
{
	local round backend connections

	start_shop 5641 "restart_after_crash = on"
	run tee "$build/pgbouncer.ini" >/dev/null <<-END
		[databases]
		postgres = host=$build port=5641 user=postgres
		statements = host=$build port=5641 user=postgres dbname=postgres pool_mode=statement
		[pgbouncer]
		listen_port = 5649
		unix_socket_dir = $build
		auth_type = any
		admin_users = postgres
		pool_mode = transaction
		default_pool_size = 4
		server_reset_query = DISCARD ALL
		server_reset_query_always = 1
		server_lifetime = 2
		server_login_retry = 1
		pidfile = $build/pgbouncer.pid
	END
	start_pgbouncer
	trade 16 "$store_order" -d "$(at 5649)"
	trade 8 'SELECT snowid_next_array(11) AS keys \gset
		\echo made :PORT :keys' -d "$(at 5649) dbname=statements"
	wait_for_orders 200 "through pgbouncer"

	connections=$(answer 5641 "SELECT count(*) FROM pg_stat_activity
		WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()")
	((connections <= 8)) || die "$connections connections, not 8 at most"
	echo "24 clients had $connections connections"

	for round in {1..10}; do
		answer 5641 "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()" >/dev/null
		wait_for_orders 20 "connections were terminated, round $round"
	done
	for round in RECONNECT RELOAD "PAUSE postgres" "RESUME postgres"; do
		run psql -X -q -d "$(at 5649) dbname=pgbouncer" -c "$round"
		[[ $round == PAUSE* ]] || wait_for_orders 20 "$round"
	done
	for round in 1 2 3; do
		backend=$(answer 5641 "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'
			AND pid <> pg_backend_pid() LIMIT 1")
		kill -KILL "$backend"
		wait_for_keys 5641
		wait_for_orders 20 "a backend was killed, round $round"
	done
	kill_server 5641
	start_server 5641
	wait_for_orders 20 "the server was killed"
	kill -KILL "$(<"$build/pgbouncer.pid")"
	start_pgbouncer
	wait_for_orders 20 "pgbouncer was killed"
	stop_trading
	echo "connections were terminated 10 times, a backend killed 3 times, then the server, and pgbouncer"
	prove_keys 5649=1
	prove_rows 5641
	stop_servers 5641
}
