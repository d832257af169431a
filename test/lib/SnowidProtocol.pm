# Redis' protocol: strings on their way.

package SnowidProtocol;

use strict;
use warnings;
use Exporter 'import';

our @EXPORT = qw(strings take_strings);

# A list of strings: a request, or an answer like those of registry.lua.
sub strings
{
	return '*' . @_ . "\r\n" . join '',
	  map { '$' . length . "\r\n$_\r\n" } @_;
}

# The strings of a request or an answer, which is taken off the buffer: those of lists one
# after the other, '' where there is none.  Nothing, if it is not there as a whole.
sub take_strings
{
	my ($buffer) = @_;
	my ($want, @strings) = (1);

	pos($$buffer) = 0;
	while ($want-- > 0)
	{
		return if $$buffer !~ /\G([-+:\$*])([^\r]*)\r\n/g;
		my ($type, $rest) = ($1, $2);
		if    ($type eq '*') { $want += $rest if $rest > 0; }
		elsif ($type ne '$') { push @strings, $rest; }
		elsif ($rest < 0)    { push @strings, ''; }
		else
		{
			my $from = pos $$buffer;
			return if length $$buffer < $from + $rest + 2;
			push @strings, substr($$buffer, $from, $rest);
			pos($$buffer) = $from + $rest + 2;
		}
	}
	substr($$buffer, 0, pos $$buffer) = '';
	return \@strings;
}

1;
