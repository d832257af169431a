# packages.awk - the installed packages of /var/lib/dpkg/status as CSV: a line for
# each of a package's dependencies, or one if there is none.  Run with
# awk -v RS= -F '\n' by test/demo and test/demo-cluster.

!/\nStatus: [^\n]* installed\n/ { next }
{
	name = needs = ""
	for (i = 1; i <= NF; i++) {
		if ($i ~ /^Package: /)
			name = substr($i, 10)
		else if ($i ~ /^(Pre-)?Depends: /)
			needs = needs ", " substr($i, index($i, ":") + 2)
		else if ($i ~ /^Architecture: /)
			architecture = substr($i, 15)
	}
	if (/\nMulti-Arch: same\n/)
		name = name ":" architecture
	n = split(substr(needs, 3), need, /, */)
	if (n == 0)
		printf "\"%s\",\n", name
	for (i = 1; i <= n; i++)
		printf "\"%s\",\"%s\"\n", name, need[i]
}
