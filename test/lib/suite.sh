# shellcheck shell=bash
# suite.sh - what test/run and test/release/sanitize share: sourced by them.
#
# Owns the count of results: builds, runs the tests, and shows the logs of what failed.
# The last line is "N passed, N failed".
# shellcheck source=test/lib/setup.sh
source "${BASH_SOURCE[0]%/*}/setup.sh"

# What a TAP test may take, in s: for one that hangs, since a busy machine may take 20
# times what a free one does.
time_limit=${TIME_LIMIT:-3600}

passed=0
failed=0

# One result of ours: its name, and why it failed if it did.
result()
{
	printf '   %-40s %s\n' "$1" "${2:-ok}"
	if [[ ${2:-} ]]; then
		failed=$((failed + 1))
	else
		passed=$((passed + 1))
	fi
}

# Builds and installs with these flags: from "clean" on, or from what is there where the
# second argument is '', or the directory was kept, or is a copy of BUILT.
# test/lib/ff1 and test/lib/opening are linked from its object files, so with their flags.
build()
{
	local log=$build/build.log

	# shellcheck disable=SC2086 # nothing, or a word
	if { [[ ! ${2-$clean} || ${BUILT:-} ]] || make_there clean; } >"$log" 2>&1 &&
		make_there all install test/lib/ff1 test/lib/opening COPT="$1" >>"$log" 2>&1; then
		return
	fi
	head -n 40 "$log"
	result "build" FAILED
	return 1
}

# Servers of tests begin as copies of one, since initdb takes a second of a processor;
# with WAL in small files, but kept and checkpointed as by default, and without the maps of
# free space and of what is visible, a quarter of the files: the server makes them again.
# PostgreSQL 15 does not know INITDB_TEMPLATE: its initdb is a script that does.
make_template()
{
	local initdb=$bindir/initdb

	template=$build/template
	[[ -e $initdb.real && -e $initdb ]] && return
	[[ -e $initdb.real ]] || run mv "$initdb" "$initdb.real"
	run rm -rf "$template"
	run "$initdb.real" -D "$template" -A trust -N --wal-segsize=1 >/dev/null
	run find "$template" \( -name '*_fsm' -o -name '*_vm' \) -delete
	printf '%s\n' 'max_wal_size = 1GB' 'wal_keep_size = 64MB' |
		run sh -c 'cat >>"$1"' sh "$template/postgresql.conf"
	# shellcheck disable=SC2016 # expanded in there
	printf '%s\n' '#!/bin/sh' \
		'[ "$*" != "-D $2 -A trust -N" ] || exec cp -RPp "$INITDB_TEMPLATE" "$2"' \
		'exec "$0.real" "$@"' | run sh -c 'cat >"$1.new"; chmod 755 "$1.new"; mv "$1.new" "$1"' sh "$initdb"
}

# Runs one half of `make installcheck`, whose output goes through a filter, and counts by
# the "passed failed" in $totals: its name, the filter, then make's variables.
installcheck()
{
	local name=$1 filter=$2 log=$build/installcheck.log p=0 f=0
	shift 2

	totals=$build/totals
	rm -rf "$totals" "$work"/{regression.diffs,log,tmp_regress}
	make_template
	make_there installcheck INITDB_TEMPLATE="$template" "$@" 2>"$log" | "$filter" &
	wait $! || :
	[[ ! -s $totals ]] || read -r p f <"$totals"
	passed=$((passed + p))
	failed=$((failed + f))
	((p + f > 0)) || result "$name" "FAILED: no test was run"
	((p > 0 && f == 0)) || show_logs
}

regression_tests() { installcheck "pg_regress" count_regression TAP_TESTS=; }

# A line for each test of pg_regress: of PostgreSQL 15 ("test a ... ok") and later ("ok 1 - a")
count_regression()
{
	awk -v totals="$totals" '
		/^(test|    ) +[^ ]+ +\.\.\. (ok|FAILED)/ { sub(/^test/, ""); count($1, $3 == "ok") }
		/^(not )?ok +[0-9]+ +[-+] / { good = !sub(/^not /, ""); count($4, good) }
		function count(name, good) {
			good ? passed++ : failed++
			printf "   %-40s %s\n", name, good ? "ok" : "FAILED"
			fflush()
		}
		END { print passed + 0, failed + 0 >totals }'
}

# The names of all TAP tests: SUBJECT/NAME
test_names()
{
	(cd "$top/test/t" && printf '%s\n' */*.pl | sed 's/\.pl$//')
}

# Sets $tests to what is named: subjects, names, or both as in SUBJECT/NAME
find_tests()
{
	local word found

	tests=()
	for word; do
		word=${word#test/t/}
		word=${word%.pl}
		mapfile -t found < <(test_names | awk -F/ -v word="${word%/}" \
			'$0 == word || $1 == word || $2 == word')
		((${#found[@]} > 0)) ||
			die "there is no test $word; see test/t"
		tests+=("${found[@]}")
	done
}

# The packages that these tests need: what their heads name, and Redis
needed_by()
{
	echo libipc-run-perl procps
	(cd "$top/test/t" && sed -n -e 's/^# needs: //p' -e "s/^use SnowidRedis;/redis-server/p" \
		"${@/%/.pl}" | sed "s/\bredis-server\b/$redis_server/" | sort -u)
}

# Runs TAP tests, this many at a time: the number, then their names.
tap_tests()
{
	local jobs=$1
	shift

	installcheck "TAP tests" of_tap_tests REGRESS= TAP_TESTS=1 PROVE_TESTS="$(printf 'test/t/%s.pl ' "$@")" \
		PROVE="perl test/lib/tap.pl --jobs=$jobs --limit=$time_limit --totals=$build/totals"
}

of_tap_tests() { grep --line-buffered -v '+++ tap install-check in' || :; }

# The files that explain a failure, while they are there.
show_logs()
{
	if [[ -s $work/regression.diffs ]]; then
		head -n 200 "$work/regression.diffs"
	fi
	show_end "$log" "$work"/{,tmp_regress/}log/postmaster.log
}

show_end()
{
	local file

	for file; do
		[[ -s $file ]] || continue
		echo "--- end of ${file##*/}"
		tail -n 25 "$file"
	done
}

finish()
{
	echo "$passed passed, $failed failed"
	exit $((failed > 0))
}
