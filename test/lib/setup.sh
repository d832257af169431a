# shellcheck shell=bash
# setup.sh - what test/run, test/demo and test/demo-cluster share; sourced by them.
#
# Owns everything that touches the machine: the packages, the build directory,
# the private copy of PostgreSQL in it, the unprivileged user, and the end of
# all of them.  Nothing is written outside of the build directory, except that
# apt-get installs what is missing.
#
#   $top    the checkout, which is only read
#   $build  the build directory; removed at the end, with every process in it.  With
#           $kept_build it is this one, which stays, and is used again
#   $work   the copy of the checkout in it
#   $bindir the programs of the private PostgreSQL, where `make install` goes
#   $redis_server  the program, and its package: redis-server, or REDIS_SERVER=...

top=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P)
oldest_postgresql=15
redis_server=${REDIS_SERVER:-redis-server}
kept_build=
clean=clean						# where a build begins; '' if it was built before
exec </dev/null
umask 022

step() { printf '== %s\n' "$*"; }
die() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }

# Every script explains itself by the comment that it begins with.
if [[ ${1:-} == @(-h|--help) ]]; then
	sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
	exit
fi

# Makes $build and sees to its end.  As root, everything in there is done by
# another user, since PostgreSQL refuses root.
make_build_directory()
{
	if [[ $kept_build ]]; then
		use_kept_build
	else
		build=$(mktemp -d "${TMPDIR:-/tmp}/snowid.XXXXXX")
	fi
	trap remove_build_directory EXIT
	trap 'exit 129' HUP
	trap 'exit 130' INT
	trap 'exit 131' QUIT
	trap 'exit 141' PIPE
	trap 'exit 143' TERM
	work=$build/snowid
	bindir=
	as_user=()
}

# A directory that is not ours stays as it is.
use_kept_build()
{
	local lock

	mkdir -p "$kept_build"
	build=$(cd "$kept_build" && pwd -P)
	[[ -e $build/for || ! $(ls -A "$build") ]] ||
		die "KEEP_BUILD=$kept_build is neither empty nor a build directory of this script"
	touch "$build/for"
	exec {lock}<"$build"
	flock -n "$lock" || die "another run uses KEEP_BUILD=$kept_build"
}

remove_build_directory()
{
	local status=$?

	trap '' HUP INT QUIT PIPE TERM
	stop_processes
	if [[ $kept_build ]]; then
		exit "$status"
	elif [[ $status != 0 && ${KEEP:-0} == 1 ]]; then
		echo "kept: $build" >&2
	else
		rm -rf "$build"
	fi
	exit "$status"
}

# Every process that we start, and every server that those start, has its
# working directory below $build.  SIGQUIT is an immediate shutdown to a server,
# which removes its shared memory.
stop_processes()
{
	local turn cwd pid found

	for turn in {1..80}; do
		found=
		for cwd in /proc/[0-9]*/cwd; do
			[[ $(readlink "$cwd") == "$build"/* ]] || continue
			found=1
			pid=${cwd#/proc/}
			pid=${pid%/cwd}
			case $turn in
				1) kill -QUIT "$pid" || : ;;
				60) kill -KILL "$pid" || : ;;
			esac
		done 2>/dev/null
		[[ $found ]] || return 0
		sleep 0.1
	done
}

# Runs a command to its end without privileges, in the copy of the checkout and
# with a clean environment.
run()
{
	"${as_user[@]}" env -i --chdir="$work" --default-signal=INT,QUIT \
		PATH="${bindir:+$bindir:}$PATH" HOME="$build" TMPDIR="$build/tmp" \
		LC_ALL=C.UTF-8 HARNESS_VERBOSE=1 REDIS_SERVER="$redis_server" OLD_INSTALL="${OLD_INSTALL:-}" \
		CHOSEN_PG_CONFIG="${PG_CONFIG:-}" \
		PG_TEST_TIMEOUT_DEFAULT="${PG_TEST_TIMEOUT_DEFAULT:-180}" \
		PGCTLTIMEOUT="${PG_TEST_TIMEOUT_DEFAULT:-180}" "$@"
}

# The same for what takes long: a signal to us does not wait for its end.
run_long()
{
	run setsid "$@" &
	wait $!
}

#---- Packages ----

is_installed()
{
	[[ $(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null) == installed ]]
}

# Is the package known to apt, by the lists that it has now?
is_offered()
{
	[[ $(apt-cache search --names-only "^$1\$") ]]
}

newest() { grep -oE '\b[0-9]+\b' | sort -n | tail -n 1 || :; }

# Sets $pg_config and $pg_major: PG_CONFIG's, or the newest major that is
# installed and new enough, or the newest that apt offers ("" if none).
choose_postgresql()
{
	if [[ ${PG_CONFIG:-} ]]; then
		pg_config=$("$PG_CONFIG" --bindir)/pg_config || die "PG_CONFIG=$PG_CONFIG does not run"
		pg_major=$("$pg_config" --version | sed 's/[^0-9]*\([0-9]*\).*/\1/')
		return
	fi
	pg_major=$(printf '%s\n' /usr/lib/postgresql/*/bin | newest)
	((${pg_major:-0} >= oldest_postgresql)) ||
		pg_major=$(apt-cache search --names-only '^postgresql-server-dev-[0-9]+$' | newest)
	pg_config=/usr/lib/postgresql/$pg_major/bin/pg_config
}

check_major()
{
	((${pg_major:-0} >= oldest_postgresql)) ||
		die "PostgreSQL $oldest_postgresql or later is needed, found: ${pg_major:-none};" \
			"set PG_CONFIG, or add a package source that has one"
}

# Sets $missing.  A ? after a package's name says that the tests can do without it.
list_missing()
{
	local package

	missing=()
	needed=
	[[ ${PG_CONFIG:-} ]] || set -- "postgresql-${pg_major:-NN}" "$@"
	for package; do
		if is_installed "${package%\?}"; then
			continue
		elif [[ $package != *\? ]]; then
			needed=1
		elif ! is_offered "${package%\?}"; then
			continue
		fi
		missing+=("${package%\?}")
	done
}

# Runs as root, one run at a time.  For as long as this takes, no package may start a
# service, and PostgreSQL's does not create a cluster.
install_as_root()
{
	set -e
	exec {lock}</var/lib/dpkg
	flock "$lock"
	policy=/usr/sbin/policy-rc.d
	clusters=/etc/postgresql-common/createcluster.d
	[[ ! -e $policy ]] || policy=
	trap 'rm -f $policy $clusters/snowid-test.conf
		rmdir -p --ignore-fail-on-non-empty $clusters' EXIT
	mkdir -p $clusters
	echo 'create_main_cluster = false' >$clusters/snowid-test.conf
	if [[ $policy ]]; then
		printf '#!/bin/sh\nexit 101\n' >$policy
		chmod 755 $policy
	fi
	DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 apt-get -qq -y \
		-o DPkg::Lock::Timeout=300 --no-install-recommends install "$@"
}

# Installs what is missing of the named packages and of PostgreSQL.
install_packages()
{
	local sudo=() line log=$build/apt.log

	command -v apt-get >/dev/null || die "this needs Debian or Ubuntu (apt-get)"
	choose_postgresql
	list_missing "$@"
	[[ ${missing[*]} ]] || return 0
	line="apt-get install -y --no-install-recommends ${missing[*]}"
	if [[ $EUID != 0 ]]; then
		[[ $needed ]] || return 0
		if ! command -v sudo >/dev/null || ! sudo true; then
			[[ $pg_major ]] || line="apt-get update (then start this again)"
			die "packages are missing; as root, run: $line"
		fi
		sudo=(sudo)
	fi

	step "installing with apt-get (some minutes on a fresh machine)"
	"${sudo[@]}" apt-get -qq -o DPkg::Lock::Timeout=300 update 2>&1 || die "apt-get update failed"
	choose_postgresql
	list_missing "$@"
	[[ ${missing[*]} ]] || return 0
	check_major
	echo "${missing[*]}"
	"${sudo[@]}" bash -c "$(declare -f install_as_root); install_as_root ${missing[*]}" \
		>"$log" 2>&1 || { tail -n 30 "$log"; die "apt-get install failed"; }
}

#---- The private copy ----

# The server's headers, in the private copy alone: their package depends on clang, half a
# gigabyte that no test uses.  They are those of the server that is installed, or of its
# next minor release.
unpack_headers()
{
	local package=postgresql-server-dev-$pg_major version log=$build/apt.log

	version=$(dpkg-query -W -f='${Version}' "postgresql-$pg_major" 2>/dev/null || :)
	mkdir "$build/headers"
	if ! (download "$package=$version" || download "$package" || download_anew "$package") >"$log" 2>&1; then
		tail -n 30 "$log"
		die "$package could not be fetched; as root, run: apt-get update, or install it"
	fi
	run dpkg -x "$build/headers"/*.deb "$root"
	rm -r "$build/headers"
}

# Not as apt's own user, who cannot write there.
download() { (cd "$build/headers" && apt-get -q -o APT::Sandbox::User=root download "$1"); }

download_anew() { [[ $EUID == 0 ]] && apt-get -qq -o DPkg::Lock::Timeout=300 update && download "$1"; }

# PostgreSQL finds its files relative to its programs, so a copy under another
# root works, and an extension installed there is seen by nobody else.  Links are
# followed: the official image has its postgresql.conf.sample behind one.
copy_postgresql()
{
	local root=$build/root dir option copied=(bindir pkglibdir sharedir)

	bindir=$root$("$pg_config" --bindir)
	[[ $clean ]] || return 0
	if [[ ! -e $("$pg_config" --includedir-server)/postgres.h ]]; then
		[[ ! ${PG_CONFIG:-} ]] || die "PG_CONFIG=$PG_CONFIG is a PostgreSQL without the server's headers"
		# beside those of libpq
		copied+=(includedir)
		unpack_headers
	fi
	# where the one is in the other, a link would not do
	[[ $("$pg_config" --pkglibdir) != "$("$pg_config" --libdir)"/* ]] || copied+=(libdir)
	for option in "${copied[@]}"; do
		dir=$("$pg_config" "--$option")
		run mkdir -p "$root$dir"
		run cp -aL "$dir/." "$root$dir"
	done
	for option in includedir pkgincludedir includedir-server libdir; do
		dir=$("$pg_config" "--$option")
		[[ -e $root$dir ]] && continue
		run mkdir -p "$root${dir%/*}"
		run ln -s "$dir" "$root$dir"
	done
}

# What is installed of snowid in the private copy: the machine's own, or what the
# last build left there
uninstall_snowid()
{
	rm -f "$build/root$("$pg_config" --pkglibdir)"/snowid*.so \
		"$build/root$("$pg_config" --sharedir)"/extension/snowid[._-]*
}

# The copy of the checkout, with what was built in the former one, or in the directory
# BUILT, which test/run and docs/first_screen have for what they start.
copy_checkout()
{
	local former=$build/former

	if [[ ! $clean && ! -e $former ]]; then
		mv "$work" "$former"
	fi
	rm -rf "$work"
	"${as_user[@]}" mkdir "$work"
	pack_checkout | run tar -xf -
	if [[ ! $clean ]]; then
		copy_objects "$former"
		rm -rf "$former"
	elif [[ ${BUILT:-} ]]; then
		copy_objects "$BUILT"
	fi
}

copy_objects()
{
	run sh -c 'cd "$1" && find . -name "*.o" -o -name "*.so" -o -name "*.lua.h" -o -path ./test/lib/keys |
		tar -cf - -T -' sh "$1" | run tar -xf -
}

# The sources as git sees them, without what earlier builds left, as a tar file.  It does not
# have the directory itself, in which other tests make files meanwhile.
pack_checkout()
{
	(cd "$top" && shopt -s dotglob &&
		tar --exclude=.git --exclude-from=<(sed 's,/$,,' .gitignore) -cf - -- *)
}

# The private PostgreSQL, or a kept one if it is the same and was finished
prepare_build_directory()
{
	local same

	[[ -x $pg_config ]] || die "no such program: $pg_config"
	check_major
	same=$("$pg_config" --version --bindir)
	if [[ $kept_build && $(<"$build/for") == "$same" ]]; then
		clean=
	else
		find "$build" -mindepth 1 ! -name for ! -name '*.log' -delete
	fi
	"${as_user[@]}" mkdir -p "$work" "$build/tmp"
	copy_postgresql
	uninstall_snowid
	[[ ! $kept_build ]] || echo "$same" >"$build/for"
}

# make in the copy, against the private PostgreSQL
make_there()
{
	run_long make -s -j "$(nproc)" PG_CONFIG="$bindir/pg_config" with_llvm=no "$@"
}

# All of the above.  The arguments are the packages that the caller needs beside
# those that a build takes.
set_up()
{
	local user

	make_build_directory
	install_packages gcc libc6-dev make perl libhiredis-dev libpq-dev libssl-dev "$@"
	if [[ $EUID == 0 ]]; then
		user=postgres
		id "$user" >/dev/null 2>&1 || user=nobody
		as_user=(setpriv "--reuid=$user" "--regid=$(id -g "$user")" --init-groups)
		chown "$user:" "$build"
		"${as_user[@]}" test -x "$build" ||
			die "user $user cannot enter $build: set TMPDIR to a directory that it can"
	fi
	prepare_build_directory
	copy_checkout
}

#---- What the programs that use it do ----

install_snowid()
{
	step "building snowid, and installing it in a private copy of PostgreSQL"
	make_there all install >"$build/build.log" 2>&1 || build_failed
}

build_failed() { tail -n 30 "$build/build.log"; die "the build failed"; }

# init_server name option...: makes $build/NAME, with these options of initdb; its
# configuration is the input.
init_server()
{
	run initdb -D "$build/$1" -A trust -U postgres "${@:2}" >"$build/initdb.$1" 2>&1 </dev/null ||
		{ cat "$build/initdb.$1"; die "initdb failed"; }
	run tee -a "$build/$1/postgresql.conf" >/dev/null
}

# start_postgres name option...: starts the server there, with these of its own.
start_postgres()
{
	run pg_ctl -D "$build/$1" -l "$build/$1.log" -w -o "${*:2}" start >"$build/pg_ctl.log" 2>&1 ||
		{ cat "$build/$1.log"; die "server $1 did not start"; }
}
