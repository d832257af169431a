# shellcheck shell=bash disable=SC2154 # $build is of setup.sh
# fdw.sh - test/by_hand/engines fdw: tables of another server by postgres_fdw, and which
# of the two makes the keys.

packages_fdw() { :; }

# explain port query: what postgres_fdw sends
explain() { answer "$1" "EXPLAIN (VERBOSE, COSTS OFF) $2" | sed -n 's/.*Remote SQL: //p'; }

prove_fdw()
{
	local here=5631 there=5632 route who query

	start_shop $there
	start_shop $here
	sql $there -f test/by_hand/engine/fdw_there.sql
	sql $here -v directory="$build" -v port=$there -f test/by_hand/engine/fdw_here.sql

	# keys of both, at the same time
	for route in default_here imported.notes partitioned; do
		trade 1 "INSERT INTO $route (route) VALUES ('$route') RETURNING format('made here {%s}', id);" -d "$(at $here)"
	done
	trade 1 "INSERT INTO trigger_there (route) VALUES ('trigger_there') RETURNING format('made there {%s}', id);" -d "$(at $here)"
	trade 1 "INSERT INTO default_there (route) VALUES ('default_there');" -d "$(at $here)"
	trade 1 "INSERT INTO notes (route) VALUES ('native_there') RETURNING format('made there {%s}', id);" -d "$(at $there)"
	wait_until $there "SELECT min(count) > 300 AND count(*) = 6
		FROM (SELECT count(*) FROM all_notes GROUP BY route) AS routes" || die "not enough rows come"
	stop_trading
	prove_keys here=1 there=2

	# many rows in one statement keep their order; an UPDATE is computed here
	answer $here "
		INSERT INTO default_here (route, nr) SELECT 'batch', i FROM generate_series(1, 5000) i ORDER BY i;
		COPY default_here (route, nr) FROM PROGRAM 'seq -f \"copy	%g\" 5000';
		INSERT INTO default_there (route, nr) SELECT 'batch_there', i FROM generate_series(1, 5000) i ORDER BY i;
		INSERT INTO default_here (route) SELECT 'update' FROM generate_series(1, 100);
		UPDATE default_here SET id = snowid_next() WHERE route = 'update'"
	require "the order of rows and keys differs" $there "
		SELECT bool_and(id > before AND nr > before_nr) FROM
			(SELECT id, nr, lag(id, 1, 0::bigint) OVER same AS before, lag(nr, 1, 0::bigint) OVER same AS before_nr
			FROM notes WHERE nr IS NOT NULL WINDOW same AS (PARTITION BY route ORDER BY id)) AS notes"
	sql $there -c "SELECT route, count(*), min(id >> 12 & 1023) AS \"worker ID\" FROM all_notes GROUP BY 1 ORDER BY 3, 1"
	require "a key was not made where it should be" $there "
		SELECT bool_and((id >> 12) & 1023 = CASE WHEN route LIKE '%there' THEN 2 ELSE 1 END)
			AND count(DISTINCT id) = count(*) FROM all_notes"

	# a foreign table with the column and without a default sends NULL
	query=$(answer $here "INSERT INTO no_default (route) VALUES ('none')" 2>&1) &&
		die "a row without a key was stored"
	[[ $query == *'null value in column "id"'* ]] || die "another error: $query"

	# what the manual says of conditions
	while IFS='|' read -r who query; do
		[[ $(explain $here "SELECT count(*) FROM default_here WHERE $query") == *WHERE* ]] || who=-$who
		[[ $who != -sent && $who != not ]] || die "sent or not, other than the manual says: $query"
	done <<-END
		not|id >= snowid_min(now() - interval '1 hour')
		sent|id >= (SELECT snowid_min(now() - interval '1 hour'))
		sent|id >= snowid_min('2026-01-01 00:00Z', 'twitter')
	END
	echo "each row has its key from where its default is; the conditions of the manual are sent, or not, as it says"
	stop_servers $here $there
}
