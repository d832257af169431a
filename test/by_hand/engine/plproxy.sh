# shellcheck shell=bash disable=SC2154 # $build is of setup.sh
# plproxy.sh - test/by_hand/engines plproxy: two partitions, and a server without rows
# that sends each call to one of them; keys are made by all three.

packages_plproxy() { echo "postgresql-$pg_major-plproxy"; }

prove_plproxy()
{
	local proxy=5653 partition number

	for partition in 5651 5652; do
		start_shop $partition
		sql $partition -f test/by_hand/engine/plproxy_partition.sql
	done
	start_shop $proxy
	sql $proxy -v first="$(at 5651)" -v second="$(at 5652)" -f test/by_hand/engine/plproxy_proxy.sql

	# the proxy makes the keys; the first of them says where the order goes
	trade 2 'SELECT snowid_next_array(4) AS keys \gset
		\echo made proxy :keys
		SELECT FROM store_order(:'"'keys'"');
		\echo stored proxy :keys' -d "$(at $proxy)"
	# the partition of the customer does
	trade 2 'SELECT (random() * 1000)::int AS customer \gset
		SELECT maker, keys FROM new_order(:customer) \gset
		\echo made :maker :keys
		\echo stored :maker :keys' -d "$(at $proxy)"
	# any partition does
	trade 1 'SELECT maker, keys FROM any_order() \gset
		\echo made :maker :keys
		\echo stored :maker :keys' -d "$(at $proxy)"
	# a partition on its own
	trade 1 'SELECT maker, keys FROM new_order(1) \gset
		\echo made :maker :keys
		\echo stored :maker :keys' -d "$(at 5652)"
	for number in 200 400; do
		for partition in 5651 5652; do
			wait_until $partition "SELECT count(*) > $number FROM orders" ||
				die "server $partition stores no orders"
		done
		((number > 200)) || { run pg_ctl -D "$build/5652" -m immediate stop >/dev/null; start_server 5652; }
	done
	stop_trading
	echo "meanwhile a partition crashed"

	prove_keys proxy=3 s5651=1 s5652=2
	: >"$build/all_rows"
	for partition in 5651 5652; do
		require "server $partition has keys of the other partition, or orders without their lines" $partition "
			SELECT bool_and((id >> 12) & 1023 IN (3, $((partition % 10)))) AND count(*) * 3 =
				(SELECT count(*) FROM order_lines JOIN orders ON orders.id = order_id)
			FROM orders"
		answer $partition "SELECT id FROM orders UNION ALL SELECT id FROM order_lines" >>"$build/all_rows"
	done
	sort -o "$build/all_rows" "$build/all_rows"
	[[ ! $(comm -23 <(keys stored) "$build/all_rows") ]] || die "orders that were stored are lost"

	# by the key alone the proxy finds each order, whichever server made its key
	answer $proxy "SELECT server, count(*), count(*) FILTER (WHERE find_order(id) = server)
		FROM all_orders() GROUP BY 1 ORDER BY 1" | while IFS='|' read -r partition number found; do
		((number == found)) || die "of $number orders of server $partition the proxy finds $found"
		echo "all $number orders of server $partition are found by their keys"
	done
	sql $proxy -c "SELECT server, count(*) AS \"orders with a key of the proxy\"
		FROM all_orders() WHERE (id >> 12) & 1023 = 3 GROUP BY 1 ORDER BY 1"
	require "keys of the proxy are not spread over the partitions" $proxy "
		SELECT min(count) * 1.5 > max(count) AND count(*) = 2 FROM
			(SELECT count(*) FROM all_orders() WHERE (id >> 12) & 1023 = 3 GROUP BY server) AS partitions"
	stop_servers 5651 5652 $proxy
}
