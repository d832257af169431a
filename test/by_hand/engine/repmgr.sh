# shellcheck shell=bash disable=SC2154 # $build, $bindir are of setup.sh, $store_order of engines
# repmgr.sh - test/by_hand/engines repmgr: two servers that claim their worker IDs from one
# Redis, on lease; the primary is killed, the standby promoted by repmgr, and the former
# primary rewound and rejoined, four times, under load.

packages_repmgr() { printf '%s\n' "postgresql-$pg_major-repmgr" "$redis_server"; }

# repmgr number command...
repmgr_on()
{
	run "$bindir/repmgr" -f "$build/repmgr.$1" "${@:2}" >"$build/repmgr.log" 2>&1 ||
		{ cat "$build/repmgr.log"; die "repmgr ${*:2} failed"; }
}

configure_repmgr()
{
	run tee "$build/repmgr.$1" >/dev/null <<-END
		node_id = $1
		node_name = 's$1'
		conninfo = '$(at "566$1")'
		data_directory = '$build/566$1'
		pg_bindir = '$bindir'
		service_start_command = '$bindir/pg_ctl -D $build/566$1 -l $build/566$1.log -w -o "-p 566$1" start'
	END
}

worker_of() { answer "$1" "SELECT worker_id FROM snowid_status()"; }

prove_repmgr()
{
	local turn old new=1 ids=()

	[[ -x $bindir/repmgr ]] || skip "there is no repmgr for PostgreSQL $pg_major here"
	start_redis
	init_server 5661 -N <<-END
		shared_preload_libraries = 'repmgr, snowid'
		snowid.redis_url = 'unix://$build/redis.sock'
		snowid.redis_lease = '10s'
		listen_addresses = ''
		unix_socket_directories = '$build'
		wal_log_hints = on
		wal_keep_size = 1GB
	END
	configure_repmgr 1
	configure_repmgr 2
	start_server 5661
	sql 5661 -f test/by_hand/engine/shop.sql
	repmgr_on 1 primary register
	repmgr_on 2 -h "$build" -p 5661 -U postgres -d postgres standby clone --fast-checkpoint
	start_server 5662
	repmgr_on 2 standby register
	wait_for_keys 5661
	ids[1]=$(worker_of 5661)

	trade 4 "$store_order" -d "host=$build,$build port=5661,5662 user=postgres dbname=postgres target_session_attrs=read-write connect_timeout=3"
	for turn in 1 2 3 4; do
		old=$new
		new=$((3 - old))
		wait_until "566$old" "SELECT count(*) > $turn * 100 FROM orders" || die "nobody stores orders"
		wait_until "566$old" "SELECT count(*) = 1 FROM pg_stat_replication WHERE state = 'streaming'" ||
			die "the standby does not follow"
		kill_server "566$old"
		repmgr_on $new standby promote
		wait_for_keys "566$new"
		ids[new]+=,$(worker_of "566$new")
		# before 16 pg_rewind finds the new timeline only after a checkpoint
		answer "566$new" CHECKPOINT
		repmgr_on $old node rejoin -d "$(at "566$new")" --force-rewind
		echo "turn $turn: s$new was promoted, s$old rejoined; IDs of s1: ${ids[1]}; of s2: ${ids[2]#,}"
	done
	wait_until "566$new" "SELECT count(*) > 500 FROM orders" || die "nobody stores orders after the last turn"
	stop_trading
	prove_keys "5661=${ids[1]}" "5662=${ids[2]#,}"
	answer "566$new" "SELECT id FROM orders UNION ALL SELECT id FROM order_lines ORDER BY 1" >"$build/rows"
	[[ ! $(comm -13 <(keys made) "$build/rows") ]] || die "there are keys that nobody was given"
	echo "$(($(comm -23 <(keys stored) "$build/rows" | wc -l) / 4)) orders were lost with their primaries"
	stop_servers 5661 5662
}
