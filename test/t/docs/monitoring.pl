# doc/monitoring/: every query for the exporter runs with pg_monitor alone, gives
# the metrics that it declares, and asks Redis only if it answers; alerts and
# dashboard name those metrics and no others; each alert is in the manual,
# and has tests in alerts.yaml beside this file, which promtool runs.  With a real exporter
# and a real Prometheus, too, where these packages are installed, which are large:
# prometheus, prometheus-postgres-exporter.
# needs: libyaml-libyaml-perl
use strict;
use warnings;

use Cwd 'abs_path';
use File::Basename 'dirname';
use HTTP::Tiny;
use IPC::Run;
use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidRedis;
use SnowidTest;
use Test::More;

plan skip_all => 'YAML::XS is not installed' if !eval { require YAML::XS };

my $top = abs_path(dirname(__FILE__) . '/../../..');
my %file =
  map { $_ => "$top/doc/monitoring/$_" }
  qw(postgres_exporter.yaml postgres_exporter_segments.yaml alerts.yaml dashboard.json);
my $cases_file = "$top/test/t/docs/alerts.yaml";

#---- The files ----

my $of_keys = YAML::XS::LoadFile($file{'postgres_exporter.yaml'});
my $queries = {
	%$of_keys,
	%{ YAML::XS::LoadFile($file{'postgres_exporter_segments.yaml'}) }
};
my $alerts = YAML::XS::LoadFile($file{'alerts.yaml'});
my $cases  = YAML::XS::LoadFile($cases_file);
my $board  = decode_json(slurp_file($file{'dashboard.json'}));

# The columns that a query declares, with their usage.
sub columns
{
	my ($name) = @_;
	return map {
		my ($column) = keys %$_;
		($column => $_->{$column}{usage})
	} @{ $queries->{$name}{metrics} };
}

my (@metrics, @labels);
foreach my $name (sort keys %$queries)
{
	my %columns = columns($name);
	push @labels, grep { $columns{$_} eq 'LABEL' } keys %columns;
	push @metrics,
	  map { "${name}_$_" } grep { $columns{$_} ne 'LABEL' } keys %columns;
	is( join(' ',
			grep { ($columns{$_} eq 'COUNTER') != /_total$/ }
			sort keys %columns),
		'',
		"$name: counters, and they alone, end in _total");
}

# The metrics that a text names, sorted.
sub named
{
	my %named = map { $_ => 1 } join(' ', @_) =~ /\b(snowid_\w+)/g;
	return [ sort keys %named ];
}

my @rules = map { @{ $_->{rules} } } @{ $alerts->{groups} };
my @exprs =
  map { $_->{expr} } map { @{ $_->{targets} } } @{ $board->{panels} };
my %there = map { $_ => 1 } @metrics;

sub not_there
{
	return join ' ', grep { !$there{$_} } @{ named(@_) };
}
is(not_there(map { ($_->{expr}, values %{ $_->{annotations} }) } @rules),
	'', 'alerts name metrics that are there');
is_deeply(
	named(@exprs),
	[ sort @metrics ],
	'the dashboard shows all metrics, and no others');
my %known = map { $_ => 1 } qw(instance), @labels;
is( join(' ',
		grep { !$known{$_} } map { $_->{legendFormat} =~ /\{\{(\w+)\}\}/g }
		map { @{ $_->{targets} } } @{ $board->{panels} }),
	'',
	"the dashboard's labels are there");
my @ids = map { $_->{id} } @{ $board->{panels} };
is_deeply(\@ids, [ 1 .. @ids ], 'its panels are numbered');

my @names = sort map { $_->{alert} } @rules;
my (%fires, %silent);
foreach my $case (map { @{ $_->{alert_rule_test} } } @{ $cases->{tests} })
{
	(@{ $case->{exp_alerts} } ? \%fires : \%silent)->{ $case->{alertname} }++;
}
is( join(' ',
		map { abs_path(dirname($cases_file) . "/$_") // $_ }
		  @{ $cases->{rule_files} }),
	$file{'alerts.yaml'},
	'the cases are those of the alerts of the manual');
is_deeply([ sort keys %fires ],
	\@names, 'each alert has a case in which it fires');
is_deeply([ sort keys %silent ],
	\@names, 'each alert has a case in which it does not fire');
foreach my $name ('doc/monitoring.md', 'doc/zh/monitoring.md')
{
	my $page = slurp_file("$top/$name");
	my @rows = $page =~ /^\| (`\w+` \| (?:critical|warning)) \|/mg;
	is_deeply(
		[ sort @rows ],
		[ sort map { "`$_->{alert}` | $_->{labels}{severity}" } @rules ],
		"$name: each alert has its row");
}

sub is_installed
{
	my ($program) = @_;
	my $out;
	return eval { IPC::Run::run([ $program, '--version' ], '>&', \$out) };
}

SKIP:
{
	skip 'promtool is not installed', 3 if !is_installed('promtool');

	my $out;
	foreach my $check ([ 'check', 'rules', $file{'alerts.yaml'} ],
		[ 'test', 'rules', $cases_file ])
	{
		ok(IPC::Run::run([ 'promtool', @$check ], '>&', \$out),
			"promtool @$check[0, 1]")
		  or diag($out);
	}

	# the cases notice each alert whose first condition is turned round
	my $dir    = PostgreSQL::Test::Utils::tempdir;
	my %turned = ('>' => '<=', '<' => '>=', '<=' => '>', '==' => '!=');
	my @unnoticed;
	foreach my $rule (@rules)
	{
		my $alert = $rule->{alert};
		my $expr  = $rule->{expr} =~ s/ (==|<=|[<>]) / $turned{$1} /r;
		my @own   = grep {
			grep { $_->{alertname} eq $alert } @{ $_->{alert_rule_test} }
		} @{ $cases->{tests} };

		YAML::XS::DumpFile(
			"$dir/$alert.rules",
			{
				groups => [
					{
						name  => 'turned',
						rules => [ { %$rule, expr => $expr } ]
					}
				]
			});
		YAML::XS::DumpFile("$dir/$alert.cases",
			{ %$cases, rule_files => ["$alert.rules"], tests => \@own });
		push @unnoticed,
		  $alert
		  if IPC::Run::run(
			[ 'promtool', 'test', 'rules', "$dir/$alert.cases" ],
			'>&', \$out)
		  || $out !~ /alertname: $alert,/;
	}
	is("@unnoticed", '', 'a condition turned round is noticed');
}

#---- The queries ----

my $redis = SnowidRedis->start('redis');
my $node  = claiming_cluster('watched', $redis, '', allows_streaming => 1);
$node->start;
$node->safe_psql('postgres', <<~EOF);
	CREATE SCHEMA snowid;
	CREATE EXTENSION snowid SCHEMA snowid;
	CREATE EXTENSION snowid_segments SCHEMA snowid;
	ALTER ROLE postgres SET search_path = public, snowid;
	CREATE ROLE exporter LOGIN IN ROLE pg_monitor;
	GRANT USAGE ON SCHEMA snowid TO exporter;
	ALTER ROLE exporter SET search_path = snowid;
	EOF
wait_for_claim($node);

# The rows that a query gives to that role, as hashes; undef with its error in $@.
sub rows
{
	my ($server, $name) = @_;
	my ($rc, $out, $err) = $server->psql('postgres', $queries->{$name}{query},
		extra_params =>
		  [ '-U', 'exporter', '-P', 'tuples_only=off', '-P', 'footer=off' ]);
	$@ = $err;
	return if $rc != 0;
	my ($head, @rows) = map { [ split /\|/, $_, -1 ] } split /\n/, $out;
	return map {
		my %row;
		@row{@$head} = @$_;
		\%row
	} @rows;
}

# Its only row, with the columns that it declares.
sub row
{
	my ($server, $name)   = @_;
	my ($row,    @others) = rows($server, $name);
	my %columns = columns($name);

	ok($row && !@others, "$name gives one row") or diag($@);
	is_deeply(
		[ sort keys %$row ],
		[ sort keys %columns ],
		"$name gives the columns that it declares");
	is( join(
			' ',
			grep {
					 $columns{$_} ne 'LABEL'
				  && $row->{$_} !~ /^$|^-?\d+(?:\.\d+)?(?:e[-+]\d+)?$/
			  }
			  sort keys %columns),
		'',
		"$name gives numbers");
	return $row;
}

# Columns of a row, as text.
sub values_of
{
	my ($row, @columns) = @_;
	return join '|', map { "$_=" . ($row->{$_} // 'absent') } @columns;
}

next_key($node);
my $row = row($node, 'snowid');
is( values_of(
		$row,
		qw(is_open in_recovery keys_total max_lead_seconds registry_interval_seconds lease_seconds lease_left_seconds)
	),
	'is_open=1|in_recovery=0|keys_total=1|max_lead_seconds=0.2|registry_interval_seconds=5|lease_seconds=0|lease_left_seconds=',
	'a server that makes keys');
is( $row->{last_day_timestamp_seconds},
	query(
		$node,
		"SELECT extract(epoch FROM timestamptz '2080-07-10 00:00Z')::float8"),
	'the last day is that of the layout');
is( values_of(
		row($node, 'snowid_server'),
		qw(datacenter_id worker_id worker_id_source layout reason registry info)
	),
	'datacenter_id=0|worker_id=0|worker_id_source=claim|layout=epoch=2010-11-04T01:42:54.657Z datacenter=5 worker=5 sequence=12|reason=|registry=claimed|info=1',
	'the server shows its identity');
is(values_of(row($node, 'snowid_worker_ids'), qw(taken places)),
	'taken=1|places=32', 'the places of worker IDs are counted');

my ($host, $port) = ($node->host, $node->port);
query($node, <<~EOF);
	INSERT INTO snowid_segments (biz_tag, limit_id) VALUES ('few', 5000);
	CREATE EXTENSION postgres_fdw;
	CREATE SERVER far FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '$host', port '$port', dbname 'nowhere');
	CREATE USER MAPPING FOR CURRENT_USER SERVER far;
	INSERT INTO snowid_segments (biz_tag, source) VALUES ('far', 'far');
	EOF
query($node, "SELECT snowid_number('few')");
like(
	values_of(
		row($node, 'snowid_segment'),
		qw(database biz_tag is_failing waits_total reserved)),
	qr/^database=postgres\|biz_tag=few\|is_failing=0\|waits_total=1\|reserved=[1-9]/,
	'a segment shows its state');
$row = row($node, 'snowid_tag');
is( values_of($row, qw(database biz_tag last_number)),
	'database=postgres|biz_tag=few|last_number=5000',
	'a segment shows its end');
cmp_ok($row->{untaken}, '<', 5000, 'of which some are taken');

query($node, <<~EOF);
	INSERT INTO snowid_segments (biz_tag, period, format) VALUES ('daily', 'day', '{YYYYMMDD}-{N:4}'), ('new', 'day', '{YYYYMMDD}-{N:2}');
	INSERT INTO snowid_segments (biz_tag) VALUES ('endless');
	INSERT INTO snowid_segment_periods (biz_tag, period, max_id) VALUES ('daily', '2020-01-01', 9000), ('daily', '2020-01-02', 1000);
	EOF
is( join(' ',
		map  { "$_->{biz_tag}=$_->{untaken}/$_->{last_number}" }
		sort { $a->{biz_tag} cmp $b->{biz_tag} }
		grep { $_->{biz_tag} ne 'few' } rows($node, 'snowid_tag')),
	'daily=8999/9999 new=99/99',
	'of tags with periods, the newest; by their format');

settings($node, "snowid.max_wait = '10ms'");
$node->reload;
isnt(sql_error($node, "SELECT snowid_number('far')"), '', 'a source fails');
is( join(' ',
		map    { "$_->{biz_tag}=$_->{is_failing}" }
		  sort { $a->{biz_tag} cmp $b->{biz_tag} }
		  rows($node, 'snowid_segment')),
	'far=1 few=0',
	'the tag of a source that fails shows it');

#---- A real exporter and a real Prometheus ----

# The content of a page of this machine; undef: there is none yet.
sub page
{
	my ($port, $path, $query) = @_;
	my $http = HTTP::Tiny->new(timeout => 30);
	my $answer =
		$query
	  ? $http->post_form("http://127.0.0.1:$port$path", { query => $query })
	  : $http->get("http://127.0.0.1:$port$path");
	return $answer->{success} ? $answer->{content} : undef;
}

# Starts a program that serves pages, and waits for this one of them.
my @served;

sub serve
{
	my ($port, $path, $log, @command) = @_;
	push @served, IPC::Run::start(\@command, '<', '/dev/null', '>&', $log);
	wait_until("$command[0]: $path", sub { page($port, $path) });
	return;
}

my $keeper;

END
{
	local $?;
	kill 'CONT', $keeper if $keeper;
	$_->kill_kill foreach @served;
}

SKIP:
{
	skip 'exporter or Prometheus are not installed', 8
	  if grep { !is_installed($_) }
	  qw(prometheus prometheus-postgres-exporter);

	my $dir = PostgreSQL::Test::Utils::tempdir;
	my ($exporter, $prometheus) =
	  map { PostgreSQL::Test::Cluster::get_free_port() } 1, 2;
	append_to_file("$dir/queries.yaml", slurp_file($file{$_}))
	  foreach 'postgres_exporter.yaml', 'postgres_exporter_segments.yaml';
	{
		local $ENV{DATA_SOURCE_NAME} =
			'user=exporter dbname=postgres sslmode=disable host='
		  . $node->host
		  . ' port='
		  . $node->port;
		serve(
			$exporter,
			'/metrics',
			"$dir/exporter.log",
			'prometheus-postgres-exporter',
			"--extend.query-path=$dir/queries.yaml",
			"--web.listen-address=127.0.0.1:$exporter");
	}
	my $scrape = page($exporter, '/metrics');
	my %scraped =
	  map { $_ => 1 } $scrape =~ /^(snowid_\w+)(?:\{.*\})? \S+$/mg;
	is_deeply(
		[ sort keys %scraped ],
		[ sort @metrics ],
		'the exporter gives these metrics');
	like($scrape, qr/^pg_exporter_last_scrape_error 0$/m, 'without an error');
	like(
		$scrape,
		qr/^snowid_segment_is_failing\{biz_tag="far",database="postgres",server=".*"\} 1$/m,
		'the metrics of segments have their labels');

	append_to_file(
		"$dir/prometheus.yml",
		YAML::XS::Dump(
			{
				global => {
					scrape_interval     => '1s',
					evaluation_interval => '1s'
				},
				rule_files     => [ $file{'alerts.yaml'} ],
				scrape_configs => [
					{
						job_name       => 'postgres',
						static_configs =>
						  [ { targets => ["127.0.0.1:$exporter"] } ]
					}
				]
			}));
	serve(
		$prometheus,
		'/-/ready',
		"$dir/prometheus.log",
		'prometheus',
		"--config.file=$dir/prometheus.yml",
		"--storage.tsdb.path=$dir/data",
		"--web.listen-address=127.0.0.1:$prometheus");

	# the rows that Prometheus has for a query, or dies
	my $ask = sub {
		my $answer = page($prometheus, '/api/v1/query', $_[0]) // return;
		return @{ decode_json($answer)->{data}{result} };
	};
	my $pending = sub {
		return join ' ',
		  sort map { $_->{metric}{alertname} } $ask->('ALERTS');
	};
	foreach my $expr (@exprs)
	{
		my $query =
		  $expr =~ s/\$instance/.*/gr =~ s/\$__rate_interval/1m/gr =~
		  s/ > 0$//r;
		wait_until("an answer to $query", sub { $ask->($query) });
	}
	pass('every query of the dashboard has an answer');
	is( join(
			' ',
			map { $_->{health} eq 'ok' ? () : "$_->{name}: $_->{lastError}" }
			  map { @{ $_->{rules} } } @{
				decode_json(page($prometheus, '/api/v1/rules'))
				  ->{data}{groups}
			  }),
		'',
		'every alert can be evaluated');
	my $expected = 'SnowidSegmentEmpty SnowidSegmentFails';
	wait_until('the first alerts', sub { $pending->() eq $expected });
	pass('the tag whose source fails, and nothing else, has its alerts');

	$redis->stop;
	settings($node, 'snowid.datacenter_id = 3');
	$node->restart;
	wait_until('the alerts',
		sub { $pending->() =~ /SnowidClosed.* SnowidRegistrySilent/ });
	pass('without Redis, and with a pair to claim: its alerts');
	like(
		page($exporter, '/metrics'),
		qr/^snowid_server_info\{.*reason="snowid has not claimed a worker ID yet",registry="waits",/m,
		'a server without Redis shows the reason');
	$_->kill_kill foreach splice @served;
	$redis->run;
	settings($node, '');
	$node->restart;
	wait_for_claim($node);
}

#---- Keys without segments ----

$node->safe_psql('postgres', 'CREATE DATABASE keys');
$node->safe_psql('keys',     'CREATE EXTENSION snowid');
foreach my $name (sort keys %$of_keys)
{
	my ($rc, $out, $err) = $node->psql('keys', $of_keys->{$name}{query});
	is($err, '', "$name: the query does not need snowid_segments");
}

#---- A standby ----

$node->backup('standby');
my $standby = server_from_backup(
	'standby', $node, 'standby',
	claim_settings('standby', $redis, ''),
	has_streaming => 1);
$standby->start;
is(values_of(row($standby, 'snowid'), qw(is_open in_recovery)),
	'is_open=0|in_recovery=1', 'a standby shows that it makes no keys');
is( row($standby, 'snowid_server')->{reason},
	'snowid makes no keys during recovery',
	'a standby shows why it makes no keys');
is_deeply([ rows($standby, 'snowid_segment') ],
	[], 'a standby has no segments');
$standby->stop;

#---- What snowid_status() has for it ----

is(status($node, 'registry_error_at IS NULL'), 't', 'no error yet');
$redis->stop;
poll($node, 'registry_error_at > registry_ok_at');
is($node->psql('postgres', "SELECT 1"),
	0, 'Redis is away: the server answers');
is_deeply([ rows($node, 'snowid_worker_ids') ],
	[], 'Redis is away: it is not asked for worker IDs');
is($@, '', 'Redis is away: the query for worker IDs is no error');
my $error_at = status($node, 'registry_error_at');
poll($node, "registry_error_at > '$error_at'");
pass('registry_error_at is that of the last error');
$node->restart;
poll($node, "is_open AND registry = 'remembered'");
is(status($node, 'registry_ok_at IS NULL'),
	't', 'not one answer since the start');
isnt(row($node, 'snowid')->{registry_age_seconds},
	'', 'not one answer: the age is counted from the start');
is(row($node, 'snowid_server')->{registry},
	'remembered', 'a remembered claim is reported');
$redis->run;
wait_for_claim($node);
is( status(
		$node,
		'registry_ok_at > registry_error_at AND registry_error IS NOT NULL'),
	't',
	'both are reported after it is over');

# grants: the age of the last one rises while the keeper does not run
next_key($node);
$keeper = keeper_pid($node);
stop_process($node, $keeper);
poll($node, 'grant_age_ms > 300');
my $age = status($node, 'grant_age_ms');
set_skew($node, 7200);
cmp_ok(
	status($node, 'grant_age_ms'),
	'<',
	$age + 3_600_000,
	'the age does not follow a clock that was set forward');
set_skew($node, -7200);
cmp_ok(status($node, 'grant_age_ms'),
	'>=', $age, 'the age does not follow a clock that was set back');
set_skew($node, 0);
kill 'CONT', $keeper;
next_key($node);
poll($node, 'grant_age_ms < 300');
pass('the age begins again with the next grant');

# counters
is( status(
		$node,
		"stats_reset > '$error_at' AND stats_reset <= pg_postmaster_start_time()"
	),
	't',
	'the counters count from the start');
cmp_ok(status($node, 'keys'), '>', 0, 'the keys since the start are counted');
my $reset = status($node, 'stats_reset');
$node->safe_psql('postgres', 'ALTER SYSTEM SET restart_after_crash = on');
$node->reload;
wait_for($node, "SELECT current_setting('restart_after_crash') = 'on'");
kill 'KILL', process_pid($node, 'background writer');
wait_for($node, "SELECT stats_reset > '$reset' FROM snowid_status()");
poll($node, 'is_open');
is(status($node, 'keys'), 0, 'the counters count from the last crash');
$node->stop;

#---- Without Redis, on lease, and where nothing can be made ----

configure($node, '');
$node->start;
poll($node, "reason = 'snowid has no worker ID'");
is( values_of(row($node, 'snowid'), qw(is_open registry_age_seconds)),
	'is_open=0|registry_age_seconds=',
	'a server without worker ID has its gate closed');
is( values_of(row($node, 'snowid_server'), qw(worker_id reason registry)),
	'worker_id=|reason=snowid has no worker ID|registry=',
	'a server without worker ID shows it');
is_deeply([ rows($node, 'snowid_worker_ids') ],
	[], 'a server without Redis gives no row of worker IDs');
is($@, '', 'a server without Redis: the query for worker IDs is no error');
$node->stop;

# as if the registry had been there for long
$redis->edit('meta', since => 0);
settings($node, "snowid.redis_lease = '600s'\n");
$node->start;
wait_for_claim($node);
$row = row($node, 'snowid');
is( values_of($row, qw(lease_seconds registry_interval_seconds)),
	'lease_seconds=600|registry_interval_seconds=5',
	'the lease and its interval are reported');
cmp_ok($row->{lease_left_seconds}, '>', 300, 'more than half of it is left');
$node->stop;
done_testing();
