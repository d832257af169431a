# shellcheck shell=bash disable=SC2154 # $build and $redis_server are of setup.sh
# servers.sh - the servers and the Redis of test/demo-cluster and test/by_hand/engines;
# sourced by them behind setup.sh.
#
# A server's port is a part of its socket's name, and names its data directory
# and its log in $build.  Patroni's servers alone use it as a TCP port.

# start_server port option...
start_server() { start_postgres "$1" "-p $*"; }

# As a crash of the machine would; what the kernel keeps of it goes as well.
kill_server()
{
	local pid segment

	pid=$(run head -n 1 "$build/$1/postmaster.pid")
	segment=$(run awk 'NR == 7 { print $2 }' "$build/$1/postmaster.pid")
	kill -KILL "$pid"
	run ipcrm -m "$segment"
	# PostgreSQL does not start while there is a process of that number
	for _ in {1..300}; do
		kill -0 "$pid" 2>/dev/null || return 0
		sleep 0.1
	done
}

sql()
{
	local port=$1
	shift
	run_long psql -X -q -h "$build" -p "$port" -U postgres -d postgres -P pager=off \
		-P footer=off -v ON_ERROR_STOP=1 "$@" 2>&1
}

answer() { run psql -X -qAt -h "$build" -p "$1" -U postgres -d postgres -v ON_ERROR_STOP=1 -c "$2"; }

# Until the query gives true, for two minutes.
wait_until()
{
	for _ in {1..600}; do
		[[ $(answer "$1" "$2") != t ]] || return 0
		sleep 0.2
	done
	return 1
}

# A new Redis that keeps what it gets, at $build/redis.sock; one before it has ended.
start_redis()
{
	run rm -rf "$build"/redis{,.sock}
	run mkdir "$build/redis"
	run tee "$build/redis.conf" >/dev/null <<-END
		port 0
		unixsocket $build/redis.sock
		dir $build/redis
		logfile $build/redis.log
		appendonly yes
		maxmemory-policy noeviction
	END
	run "$redis_server" "$build/redis.conf" >"$build/redis.out" 2>&1 &
	for _ in {1..600}; do
		[[ -S $build/redis.sock ]] && return
		sleep 0.1
	done
	cat "$build/redis.out" "$build/redis.log"
	die "Redis did not start"
}
