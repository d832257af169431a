# Tags, the process that fetches their numbers, and servers that have these from one
# central server.

package SnowidSegments;

use strict;
use warnings;
use Exporter 'import';
use SnowidSession;
use SnowidTest;

our @EXPORT =
  qw(source_in fake_source use_central add_tag max_id number segment_status poll_segment fetchers fetcher_pid ask_in_background);

# The processes that fetch, of one database or of all; the reserve is in none.
sub fetchers
{
	my ($database) = @_;
	return
	  "FROM pg_stat_activity WHERE backend_type = 'snowid segments' AND datname "
	  . ($database ? "= '$database'" : 'IS NOT NULL');
}

sub fetcher_pid
{
	my ($node, $database) = @_;
	return query($node, 'SELECT pid ' . fetchers($database // 'postgres'));
}

# A session that is sent a statement, and has its outcome later.
sub ask_in_background
{
	my ($node, $sql, $database) = @_;
	my $session = SnowidSession->new($node, $database // 'postgres');
	$session->ask($sql);
	return $session;
}

# SQL for a source of this name: a database that is reached with these options.
sub source_at
{
	my ($name, %options) = @_;
	my $options = join ', ', map { "$_ '$options{$_}'" } sort keys %options;
	return <<~EOF;
		CREATE SERVER $name FOREIGN DATA WRAPPER postgres_fdw OPTIONS ($options);
		CREATE USER MAPPING FOR CURRENT_USER SERVER $name;
		EOF
}

# The same, for a database of one of the test's own servers.
sub source_in
{
	my ($name, $node, $database) = @_;
	return source_at(
		$name,
		host   => $node->host,
		port   => $node->port,
		dbname => $database);
}

# In this database, ranges are what a function of the test says: "LANGUAGE ...".
sub fake_source
{
	my ($node, $database, $body) = @_;
	$node->safe_psql($database, <<~EOF);
		CREATE OR REPLACE FUNCTION snowid_segment_take(tag text, kind text, label int, seen int,
		    high bigint, upto bigint, length bigint,
		    OUT first bigint, OUT last bigint, OUT period int, OUT problem text)
		$body
		EOF
	return;
}

# From here on, the tags of this server are those of another one, which is reached
# at this host and port.
sub use_central
{
	my ($node, $host, $port, @tags) = @_;
	query(
		$node,
		'CREATE EXTENSION IF NOT EXISTS snowid_segments; CREATE EXTENSION postgres_fdw;'
		  . source_at(
			'central',
			host    => $host,
			port    => $port,
			dbname  => 'postgres',
			options => '-c statement_timeout=4s'));
	add_tag($node, $_, step => 100, cover => 0, source => 'central')
	  foreach @tags;
	return;
}

# A row of the table, with these columns.
sub add_tag
{
	my ($node, $tag, %columns) = @_;
	my @names  = sort keys %columns;
	my $names  = join ', ', 'biz_tag', @names;
	my $values = join ', ', map { "'$_'" } $tag, @columns{@names};
	query($node, "INSERT INTO snowid_segments ($names) VALUES ($values)");
	return;
}

sub max_id
{
	my ($node, $tag) = @_;
	return query($node,
		"SELECT max_id FROM snowid_segments WHERE biz_tag = '$tag'");
}

sub number
{
	my ($node, $tag) = @_;
	return query($node, "SELECT snowid_number('$tag')");
}

# A column of a tag's status.
sub segment_status
{
	my ($node, $tag, $column) = @_;
	return query($node,
		"SELECT $column FROM snowid_segment_status() WHERE biz_tag = '$tag'");
}

# Waits until this is so in the status.
sub poll_segment
{
	my ($node, $tag, $condition) = @_;
	wait_for($node,
		"SELECT $condition FROM snowid_segment_status() WHERE biz_tag = '$tag'"
	);
	return;
}

1;
