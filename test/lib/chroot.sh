# shellcheck shell=bash
# chroot.sh - bare Debian systems in a directory, for test/release/matrix and test/release/package;
# sourced by them, behind setup.sh.
#
# Needs root and debootstrap.  Packages come from where this machine has its own.
# CHROOTS=DIR keeps the systems, with what was installed in them, for the next
# time; without it they are removed at the end.  Whatever runs in one is in
# namespaces of its own, so that its processes and mounts end with it.

chroots=${CHROOTS:-}

require_debootstrap()
{
	[[ $EUID == 0 ]] || die "this needs root"
	command -v debootstrap >/dev/null || die "this needs the package debootstrap"
	if [[ ! $chroots ]]; then
		chroots=$(mktemp -d "${TMPDIR:-/tmp}/snowid-chroots.XXXXXX")
		trap 'rm -rf --one-file-system "$chroots"' EXIT
		trap 'exit 130' INT TERM HUP
	fi
}

# in_chroot root command...: bash is the first process there, which collects those
# whose parents have gone.
in_chroot()
{
	# shellcheck disable=SC2016 # expanded in there
	unshare --mount --pid --ipc --fork --kill-child bash -c '
		set -e
		mount -t proc proc "$0/proc"
		mount --rbind /dev "$0/dev"
		mount -t tmpfs tmpfs "$0/dev/shm"
		chroot "$0" env -i --default-signal=INT,QUIT HOME=/root \
			PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
			DEBIAN_FRONTEND=noninteractive "$@" || exit
		exit 0' "$@"
}

# Where this machine's own packages come from
mirror()
{
	# shellcheck disable=SC2016 # apt's own names
	apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' |
		head -n 1
}

# In a system: PostgreSQL 19 comes from Debian experimental, and nothing else does but
# what it depends on.
add_experimental()
{
	echo "deb $(mirror) experimental main" >"$1/etc/apt/sources.list.d/experimental.list"
	cat >"$1/etc/apt/preferences.d/experimental" <<-END
		Package: *
		Pin: release a=experimental
		Pin-Priority: 100

		Package: postgresql-19 postgresql-server-dev-19 postgresql-client-19 libpq5 libpq-dev libpgtypes3
		Pin: release a=experimental
		Pin-Priority: 990
	END
}

# Makes a bare system of that Debian release, and sets $bare to it.  "experimental" is
# forky with PostgreSQL 19.
make_bare()
{
	local release=${1/experimental/forky} script='' new=$chroots/$1.new

	bare=$chroots/$1
	[[ ! -e $bare ]] || return 0
	[[ -e /usr/share/debootstrap/scripts/$release ]] ||
		script=/usr/share/debootstrap/scripts/sid
	rm -rf --one-file-system "$new"
	unshare --mount debootstrap --variant=minbase "$release" "$new" "$(mirror)" \
		${script:+"$script"} >"$bare.log" 2>&1 ||
		{ tail -n 30 "$bare.log"; die "debootstrap of $1 failed"; }
	printf '#!/bin/sh\nexit 101\n' >"$new/usr/sbin/policy-rc.d"
	chmod 755 "$new/usr/sbin/policy-rc.d"
	# the way to the packages: proxies, and what is believed of dates
	apt-config dump | grep -E '^Acquire::(https?::|Check-|Retries)' \
		>"$new/etc/apt/apt.conf.d/99host" || :
	[[ $1 == "$release" ]] || add_experimental "$new"
	mv "$new" "$bare"
}

# use_copy name: sets $root to the copy of $bare that has this name, with the
# checkout at /snowid.
use_copy()
{
	root=$bare.$1
	[[ -e $root ]] || cp -a "$bare" "$root"
	cp /etc/resolv.conf "$root/etc/resolv.conf"
	rm -rf --one-file-system "$root/snowid"
	mkdir "$root/snowid"
	pack_checkout | tar -C "$root/snowid" --no-same-owner -xf -
}

# install_old log: installs Debian 12's PostgreSQL in $root, beside the one that is there,
# with the checkout's snowid.  The headers come without the compiler on which their package
# depends.
install_old()
{
	step "installing PostgreSQL 15 with snowid, too"
	# shellcheck disable=SC2016 # expanded in there
	in_chroot "$root" bash -euc '
		echo "deb $1 bookworm main" >/etc/apt/sources.list.d/bookworm.list
		apt-get update
		apt-get install -y --no-install-recommends postgresql-15 gcc make libhiredis-dev libpq-dev libssl-dev
		(cd /tmp && apt-get download postgresql-server-dev-15)
		dpkg -x /tmp/postgresql-server-dev-15_*.deb /
		rm /tmp/postgresql-server-dev-15_*.deb /etc/apt/sources.list.d/bookworm.list
		apt-get update
		make -C /snowid with_llvm=no PG_CONFIG=/usr/lib/postgresql/15/bin/pg_config install clean' \
		bash "$(mirror)" >"$1" 2>&1 || { tail -n 30 "$1"; die "failed"; }
}
