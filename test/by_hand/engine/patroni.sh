# shellcheck shell=bash disable=SC2154 # $build, $bindir are of setup.sh, $store_order of engines
# patroni.sh - test/by_hand/engines patroni: three servers with doc/patroni.yml, that
# claim their worker IDs from one Redis, and clients that look for the leader: switchover,
# crash, failover, pg_rewind, a replica that is set up again.
#
# A server's name is s and its number.  Of the file, the addresses of Redis and
# etcd are replaced.

packages_patroni() { printf '%s\n' patroni python3-etcd etcd-server "$redis_server"; }

free_ports()
{
	perl -MIO::Socket::INET -e 'print map { $_->sockport . "\n" }
		map { IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1") } 1 .. shift' "$1"
}

start_etcd()
{
	run etcd --name etcd --data-dir "$build/etcd" \
		--listen-client-urls "http://$1" --advertise-client-urls "http://$1" \
		--listen-peer-urls "http://$2" --initial-advertise-peer-urls "http://$2" \
		--initial-cluster "etcd=http://$2" >"$build/etcd.log" 2>&1 &
}

# start_patroni number
# shellcheck disable=SC2016 # the inner shell expands that
start_patroni()
{
	run env PATRONI_NAME="s$1" PATRONI_ETCD3_HOSTS="$etcd" \
		PATRONI_RESTAPI_LISTEN="127.0.0.1:${rest_port[$1]}" \
		PATRONI_RESTAPI_CONNECT_ADDRESS="127.0.0.1:${rest_port[$1]}" \
		PATRONI_POSTGRESQL_LISTEN="127.0.0.1:${sql_port[$1]}" \
		PATRONI_POSTGRESQL_CONNECT_ADDRESS="127.0.0.1:${sql_port[$1]}" \
		PATRONI_POSTGRESQL_DATA_DIR="$build/${sql_port[$1]}" \
		PATRONI_POSTGRESQL_BIN_DIR="$bindir" \
		PATRONI_POSTGRESQL_PGPASS="$build/pgpass.$1" \
		PATRONI_SUPERUSER_USERNAME=postgres PATRONI_SUPERUSER_PASSWORD=secret \
		PATRONI_REPLICATION_USERNAME=replicator PATRONI_REPLICATION_PASSWORD=secret \
		bash -c 'echo $$ >"$1.pid"; exec patroni "$2"' bash "$build/patroni.$1" "$build/patroni.yml" \
		>>"$build/patroni.$1.log" 2>&1 &
}

ctl()
{
	local command=$1
	shift

	run env PATRONI_ETCD3_HOSTS="$etcd" patronictl -c "$build/patroni.yml" "$command" "$@" \
		>"$build/ctl.log" 2>&1 || { cat "$build/ctl.log"; die "patronictl $command failed"; }
}

# The number of the server that is not in recovery, if there is one.
leader()
{
	local number

	for number in 1 2 3; do
		[[ $(answer "${sql_port[number]}" "SELECT pg_is_in_recovery()" 2>/dev/null) != f ]] || echo $number
	done
}

# Until so many replicas follow a leader that makes keys, each server has an ID, and
# clients store.  Sets $leader; $workers are the IDs that each server has had.
wait_for_cluster()
{
	local orders number

	for _ in {1..900}; do
		leader=$(leader)
		if [[ $leader == [123] && (! ${2:-} || $leader == "$2") && $(answer "${sql_port[leader]}" "
			SELECT count(*) = $1 AND (SELECT is_open FROM snowid_status()) AND
				(SELECT count(*) > $1 FROM snowid_claims() WHERE state = 'live')
			FROM pg_stat_replication WHERE state = 'streaming'" 2>/dev/null) == t ]]; then
			for number in 1 2 3; do
				workers[number]+=,$(workers_of $number)
			done
			[[ ${clients[*]} ]] || return 0
			orders=$(answer "${sql_port[leader]}" "SELECT count(*) FROM orders")
			wait_until "${sql_port[leader]}" "SELECT count(*) > $orders + 100 FROM orders" || break
			return 0
		fi
		sleep 0.2
	done
	tail -n 10 "$build"/patroni.*.log
	die "no leader ${2:-} with $1 replicas that makes keys"
}

event()
{
	echo "$(date +%s%3N) $*" >>"$build/events"
	echo "$(date +%T) $*"
}

# The worker IDs that a server has now.
workers_of()
{
	answer "${sql_port[leader]}" "SELECT string_agg(worker_id::text, ',') FROM snowid_claims()
		WHERE server_name LIKE '%:${sql_port[$1]}' AND state = 'live'"
}

switch_to()
{
	event "switchover to s$1${2:-}"
	ctl switchover --force --candidate "s$1"
	wait_for_cluster 2 "$1"
}

prove_patroni()
{
	echo "doc/patroni.yml, on lease:"
	(prove_cluster lease) & wait $!
	stop_processes
	rm -rf "$build/etcd" "$build/events" "$build"/client.* "$build"/patroni.[123].*
	echo "The same, claimed for good:"
	prove_cluster "for good"
}

prove_cluster()
{
	local etcd leader number old spare senders sql_port rest_port lost had workers=()

	mapfile -t sql_port < <(free_ports 8)
	etcd=127.0.0.1:${sql_port[0]}
	rest_port=(0 "${sql_port[@]:4:3}")
	start_redis
	start_etcd "$etcd" "127.0.0.1:${sql_port[7]}"
	sed "s,^\( *\)snowid.redis_url: redis://redis:6379,\1unix_socket_directories: $build\n\1snowid.redis_url: unix://$build/redis.sock," \
		"$top/doc/patroni.yml" | sed "$([[ $1 == lease ]] || echo /redis_lease/d)" |
		run tee "$build/patroni.yml" >/dev/null
	grep -q "unix://$build" "$build/patroni.yml" || die "doc/patroni.yml has another address of Redis"
	echo '*:*:*:postgres:secret' | run tee "$build/.pgpass" >/dev/null
	run chmod 600 "$build/.pgpass"
	start_patroni 1
	wait_until "${sql_port[1]}" "SELECT NOT pg_is_in_recovery()" 2>/dev/null ||
		{ tail -n 20 "$build/patroni.1.log"; die "the first server does not start"; }
	sql "${sql_port[1]}" -f test/by_hand/engine/shop.sql
	start_patroni 2
	start_patroni 3
	wait_for_cluster 2
	sql "${sql_port[leader]}" -c "SELECT worker_id, server_name, state FROM snowid_claims()"

	trade 4 "$store_order" -d "host=127.0.0.1,127.0.0.1,127.0.0.1 port=${sql_port[1]},${sql_port[2]},${sql_port[3]}
		user=postgres dbname=postgres target_session_attrs=read-write connect_timeout=3"
	wait_for_cluster 2

	switch_to 2
	event "kill -9 of the leader's PostgreSQL, which its Patroni starts again"
	kill_server "${sql_port[leader]}"
	wait_for_cluster 2

	# what the leader writes last reaches nobody, so that it must be rewound
	old=$leader
	mapfile -t senders < <(answer "${sql_port[old]}" "SELECT pid FROM pg_stat_replication")
	number=$(answer "${sql_port[old]}" "SELECT count(*) FROM orders")
	kill -STOP "${senders[@]}"
	wait_until "${sql_port[old]}" "SELECT count(*) > $number + 50 FROM orders" || die "the leader does not store"
	event "kill -9 of PostgreSQL and Patroni of the leader, s$old"
	kill -KILL "$(<"$build/patroni.$old.pid")" "$(run head -n 1 "$build/${sql_port[old]}/postmaster.pid")" "${senders[@]}"
	wait_for_cluster 1
	start_patroni "$old"
	wait_for_cluster 2
	grep -q 'running pg_rewind' "$build/patroni.$old.log" || die "s$old was not rewound"
	spare=$((6 - old - leader))
	switch_to "$old" ", which was rewound"

	event "s$spare is set up again"
	ctl reinit shop "s$spare" --force --wait
	wait_for_cluster 2
	switch_to "$spare" ", which was set up again"
	stop_trading

	sql "${sql_port[leader]}" -c "SELECT worker_id, server_name, state FROM snowid_claims()"
	for number in 1 2 3; do
		mapfile -t had < <(tr , '\n' <<<"${workers[number]}" | grep . | sort -nu)
		workers[number]=$(IFS=,; echo "${had[*]}")
		# of the same directory: unless its lease is too far ahead
		[[ $1 == lease ]] || ((${#had[@]} == (number == spare ? 2 : 1))) ||
			die "s$number had the worker IDs ${workers[number]}"
	done
	echo "s1 had the worker IDs ${workers[1]}; s2 ${workers[2]}; s3 ${workers[3]}"
	[[ $1 == lease || ! $(tr , '\n' <<<"${workers[*]:1}" | tr ' ' '\n' | sort | uniq -d) ]] ||
		die "a worker ID had two owners"
	prove_keys "${sql_port[1]}=${workers[1]}" "${sql_port[2]}=${workers[2]}" "${sql_port[3]}=${workers[3]}"
	answer "${sql_port[leader]}" "SELECT id FROM orders UNION ALL SELECT id FROM order_lines ORDER BY 1" >"$build/rows"
	[[ ! $(comm -13 <(keys made) "$build/rows") ]] || die "there are keys that nobody was given"
	lost=$(comm -23 <(keys stored) "$build/rows" | wc -l)
	((lost > 0)) || die "no order was lost: nothing was rewound"
	echo "$((lost / 4)) orders were lost with the leader, as replication is asynchronous; their keys were not made again"
	echo "Nobody got a key:"
	keys pauses "$build/events"
}
