#!/usr/bin/env python3
"""surface.py - a model of snowid's SQL surface in whole numbers of any size.

  surface.py SECONDS SEED     against the server that PGHOST, PGPORT ... name

Makes calls at random, near the edges of random layouts mostly, computes what each
must give (a value, NULL or an SQLSTATE) from the manual's rules alone, and compares.
Prints what differs; the seed makes the same calls again.
"""
import random
import subprocess
import sys
import time

BASE32 = '0123456789ABCDEFGHJKMNPQRSTVWXYZ'
BASE62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
DAY = 86400000
UNIX_2000 = 946684800000
BAD, RANGE, TEXT = '22023', '22008', '22P02'


class Refused(Exception):
    """An error, with its SQLSTATE."""


# ---- The calendar, for years beyond Python's own

def days_of(year, month, day):
    """Days since 1970-01-01 of the proleptic Gregorian calendar."""
    year -= month <= 2
    era, yoe = divmod(year, 400)
    doy = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + yoe * 365 + yoe // 4 - yoe // 100 + doy - 719468


def date_of(days):
    era, doe = divmod(days + 719468, 146097)
    yoe = (doe - doe // 1460 + doe // 36524 - doe // 146096) // 365
    doy = doe - (365 * yoe + yoe // 4 - yoe // 100)
    mp = (5 * doy + 2) // 153
    month = mp + (3 if mp < 10 else -9)
    return yoe + era * 400 + (month <= 2), month, doy - (153 * mp + 2) // 5 + 1


LAST_MS = days_of(294277, 1, 1) * DAY - 1
FIRST_US = days_of(-4713, 11, 24) * DAY * 1000
EPOCHS = (days_of(1, 1, 1) * DAY, days_of(10000, 1, 1) * DAY - 1)


def timestamp_text(us):
    """A timestamptz in UTC as PostgreSQL writes it, of microseconds since 1970."""
    days, rest = divmod(us, DAY * 1000)
    year, month, day = date_of(days)
    seconds, fraction = divmod(rest, 1000000)
    text = '%04d-%02d-%02d %02d:%02d:%02d' % (
        year if year > 0 else 1 - year, month, day, seconds // 3600, seconds // 60 % 60, seconds % 60)
    if fraction:
        text += ('.%06d' % fraction).rstrip('0')
    return text + '+00' + ('' if year > 0 else ' BC')


# ---- Layouts

class Layout:
    def __init__(self, epoch, datacenter, worker, sequence, tick=1, sequence_above=False):
        self.epoch, self.tick = epoch, tick
        self.datacenter, self.worker, self.sequence = datacenter, worker, sequence
        self.tail = datacenter + worker + sequence
        self.last = min(LAST_MS, epoch + (1 << max(63 - self.tail, 0)) * tick - 1)
        self.order = ['datacenter', 'worker', 'sequence']
        if sequence_above:
            self.order = ['datacenter', 'sequence', 'worker']


NAMED = {
    'twitter': Layout(1288834974657, 5, 5, 12),
    'discord': Layout(1420070400000, 5, 5, 12),
    'instagram': Layout(1314220021721, 0, 13, 10),
    'mastodon': Layout(0, 0, 0, 16),
    'sonyflake': Layout(1409529600000, 0, 16, 8, 10, True),
    'pgedge': Layout(1672531200000, 0, 10, 12),
    'leaf': Layout(1288834974657, 0, 10, 12),
    'baidu': Layout(1463673600000, 0, 22, 13, 1000),
    'shardingsphere': Layout(1477929600000, 0, 10, 12),
    'cosid': Layout(1577203200000, 0, 10, 12),
    'yitter': Layout(1582136402000, 0, 6, 6),
    'pgdog': Layout(1764184395000, 0, 10, 12),
}


def is_digits(text):
    return text != '' and all(c in '0123456789' for c in text)


def zone_of(text):
    """Minutes ahead of UTC; None: no zone."""
    if text == 'Z':
        return 0
    digits = text[1:3] + (text[4:] if text[3:4] == ':' else text[3:])
    if text[:1] not in ('+', '-') or not is_digits(digits) or len(text[1:3]) != 2:
        return None
    if len(digits) not in (2, 4) or (text[3:4] == ':' and len(digits) != 4):
        return None
    hours, minutes = int(digits[:2]), int(digits[2:] or 0)
    if hours > 15 or minutes > 59:
        return None
    return (hours * 60 + minutes) * (-1 if text[0] == '-' else 1)


def epoch_of(text):
    """Unix ms; None: not one."""
    if len(text) < 20 or text[4] + text[7] + text[13] + text[16] != '--::' or text[10] not in 'T ':
        return None
    parts = [text[0:4], text[5:7], text[8:10], text[11:13], text[14:16], text[17:19]]
    if not all(map(is_digits, parts)):
        return None
    year, month, day, hour, minute, second = map(int, parts)
    rest, ms = text[19:], 0
    if rest[0] == '.':
        n = 0
        while n < 3 and is_digits(rest[n + 1:n + 2]):
            n += 1
        if n == 0:
            return None
        ms = int(rest[1:n + 1].ljust(3, '0'))
        rest = rest[n + 1:]
    zone = zone_of(rest)
    if zone is None or not (year >= 1 and 1 <= month <= 12 and day >= 1 and hour < 24 and minute < 60 and second < 60):
        return None
    days = days_of(year, month, day)
    if date_of(days) != (year, month, day):
        return None
    at = days * DAY + (hour * 60 + minute - zone) * 60000 + second * 1000 + ms
    return at if EPOCHS[0] <= at <= EPOCHS[1] else None


def layout_of(text):
    if text.lower() in NAMED:
        return NAMED[text.lower()]
    found = {}
    for word in text.replace('\t', ' ').replace('\n', ' ').split(' '):
        if word == '':
            continue
        name, equals, value = word.partition('=')
        if not equals or name in found:
            raise Refused(BAD)
        if name == 'epoch':
            found[name] = epoch_of(value)
        elif name in ('datacenter', 'worker', 'sequence') and is_digits(value) and int(value) <= 31:
            found[name] = int(value)
        if found.get(name) is None:
            raise Refused(BAD)
    layout = Layout(found.get('epoch', 0), *(found.get(f, 0) for f in ('datacenter', 'worker', 'sequence')))
    if 'epoch' not in found or layout.tail > 62:
        raise Refused(BAD)
    return layout


# ---- Keys

def unpack(layout, key):
    if key < 0:
        raise Refused(BAD)
    ms = layout.epoch + (key >> layout.tail) * layout.tick
    if ms > layout.last:
        raise Refused(RANGE)
    parts, rest = {'ms': ms}, key & ((1 << layout.tail) - 1)
    for field in reversed(layout.order):
        width = getattr(layout, field)
        parts[field] = rest & ((1 << width) - 1)
        rest >>= width
    return parts


def bound(layout, us, greatest):
    """us: microseconds since 1970, or None at infinity."""
    if us is None or not layout.epoch <= us // 1000 <= layout.last:
        raise Refused(RANGE)
    return ((us // 1000 - layout.epoch) // layout.tick << layout.tail) + (greatest and (1 << layout.tail) - 1)


def encode(layout, us, values):
    key = bound(layout, us, False)
    place = layout.tail
    for field in layout.order:
        width = getattr(layout, field)
        if not 0 <= values[field] < 1 << width:
            raise Refused(BAD)
        place -= width
        key += values[field] << place
    return key


def decode(layout, key):
    parts = unpack(layout, key)
    fields = [str(parts[f]) if getattr(layout, f) else '' for f in ('datacenter', 'worker', 'sequence')]
    return '("%s",%s)' % (timestamp_text(parts['ms'] * 1000), ','.join(fields))


def bits(layout, key):
    unpack(layout, key)
    text = '%064d' % int(bin(key)[2:])
    parts, place = [text[0], text[1:64 - layout.tail]], 64 - layout.tail
    for field in layout.order:
        parts.append(text[place:place + getattr(layout, field)])
        place += getattr(layout, field)
    return ' '.join(p for p in parts if p)


# ---- Text

def write(value, digits, length):
    text = ''
    for _ in range(length):
        value, digit = divmod(value, len(digits))
        text = digits[digit] + text
    return text


def base32_value(text, greatest):
    value, n = 0, 0
    for c in text:
        if c == '-':
            continue
        c = {'O': '0', 'I': '1', 'L': '1'}.get(c.upper(), c.upper()) if c.isascii() else c
        if c not in BASE32:
            raise Refused(TEXT)
        value, n = value * 32 + BASE32.index(c), n + 1
    if n != 13 or value > greatest:
        raise Refused(TEXT)
    return value


def base62_value(text):
    if len(text) != 11 or any(c not in BASE62 for c in text):
        raise Refused(TEXT)
    value = 0
    for c in text:
        value = value * 62 + BASE62.index(c)
    if value >= 1 << 63:
        raise Refused(TEXT)
    return value


def text_of_key(key, digits, length):
    if key < 0:
        raise Refused(BAD)
    return write(key, digits, length)


def check_form(code, offset):
    if len(code) > 8 or any(c not in BASE62[:36] for c in code) or zone_of(offset) is None:
        raise Refused(BAD)


def field_width(width):
    return len(str((1 << width) - 1)) if width else 0


def serial(layout, code, key, offset, check):
    check_form(code, offset)
    parts = unpack(layout, key)
    local = parts['ms'] + zone_of(offset) * 60000
    if not EPOCHS[0] <= local <= EPOCHS[1]:
        raise Refused(RANGE)
    days, rest = divmod(local, DAY)
    text = code + '%04d%02d%02d' % date_of(days) + '%02d%02d%02d%03d' % (
        rest // 3600000, rest // 60000 % 60, rest // 1000 % 60, rest % 1000)
    for field in layout.order:
        if getattr(layout, field):
            text += str(parts[field]).zfill(field_width(getattr(layout, field)))
    if check:
        number = int(''.join(str(int(c, 36)) for c in text) + '00')
        text += '%02d' % (98 - number % 97)
    return text


def serial_key(layout, text, code, offset, check):
    """The key that is written so, if there is one."""
    check_form(code, offset)
    digits = text[len(code):]
    widths = [field_width(getattr(layout, field)) for field in layout.order]
    if not text.startswith(code) or not is_digits(digits) or len(digits) != 17 + sum(widths) + 2 * check:
        raise Refused(TEXT)
    n = [int(digits[i:j]) for i, j in ((0, 4), (4, 6), (6, 8), (8, 10), (10, 12), (12, 14), (14, 17))]
    if n[0] < 1 or not 1 <= n[1] <= 12:
        raise Refused(TEXT)
    ms = days_of(n[0], n[1], n[2]) * DAY + ((n[3] * 60 + n[4]) * 60 + n[5]) * 1000 + n[6] - zone_of(offset) * 60000
    values, place = {}, 17
    for field, width in zip(layout.order, widths):
        values[field] = int(digits[place:place + width] or 0)
        place += width
    try:
        key = encode(layout, ms * 1000, values)
        if serial(layout, code, key, offset, check) == text:
            return key
    except Refused:
        pass
    raise Refused(TEXT)


# ---- What to call

class Calls:
    def __init__(self, rng, server_layout):
        self.rng, self.server = rng, layout_of(server_layout)

    def near(self, *edges):
        return self.rng.choice(edges) + self.rng.choice([0, 0, 0, 1, -1, 2, -2, self.rng.randint(-5000, 5000)])

    def spoil(self, text, alphabet):
        """Now and then another text."""
        if self.rng.random() < 0.7:
            return text
        at = self.rng.randint(0, len(text))
        return text[:at] + self.rng.choice([self.rng.choice(alphabet), '']) + text[at + self.rng.randint(0, 2):]

    def layout_text(self):
        rng = self.rng
        if rng.random() < 0.2:
            return self.spoil(rng.choice([str.upper, str])(rng.choice(list(NAMED))), 'ab \n')
        widths = [rng.choice([0, 5, 10, 12, 31, rng.randint(0, 31)]) for _ in range(3)]
        if sum(widths) > 63 and rng.random() < 0.9:
            widths = [w // 2 for w in widths]
        epoch = rng.choice([self.near(*EPOCHS), self.near(0, UNIX_2000), rng.randint(*EPOCHS)])
        days, rest = divmod(min(max(epoch, EPOCHS[0]), EPOCHS[1]), DAY)
        text = '%04d-%02d-%02dT' % date_of(days) + '%02d:%02d:%02d' % (
            rest // 3600000, rest // 60000 % 60, rest // 1000 % 60)
        text += rng.choice(['', '.%03d' % (rest % 1000), '.%d' % (rest % 10)])
        words = ['epoch=' + text + rng.choice(['Z', 'Z', '+00', '-0530', '+15:59'])]
        words += ['%s=%d' % (f, w) for f, w in zip(('datacenter', 'worker', 'sequence'), widths)
                  if w or rng.random() < 0.5]
        rng.shuffle(words)
        return self.spoil(rng.choice([' ', ' ', '  ', '\t', '\n']).join(words), '0123456789=TZ.:+-e \ré')

    def key(self, layout):
        rng = self.rng
        top = ((layout.last - layout.epoch) // layout.tick + 1 << layout.tail) - 1
        field = sum(1 << rng.randint(0, 62) for _ in range(3))
        key = rng.choice([self.near(0, top, (1 << 63) - 1, -1 << 63), rng.randint(0, max(top, 0)),
                          rng.randint(0, (1 << 63) - 1), field, -rng.randint(0, 1 << 63)])
        return min(max(key, -1 << 63), (1 << 63) - 1)

    def time(self, layout):
        if self.rng.random() < 0.05:
            return None
        ms = self.rng.choice([self.near(layout.epoch, layout.last), self.near(0, UNIX_2000),
                              self.rng.randint(layout.epoch, layout.last)])
        return min(max(ms * 1000 + self.rng.choice([0, 999, self.rng.randint(0, 999)]), FIRST_US),
                   LAST_MS * 1000 + 999)

    def one(self):
        """An SQL expression, and the function that computes what it is to give."""
        rng = self.rng
        by_server = rng.random() < 0.2
        text = None if by_server else self.layout_text()
        try:
            layout = guess = self.server if by_server else layout_of(text)
        except Refused:
            layout, guess = None, NAMED['twitter']
        last = '' if by_server else ', ' + literal(text)

        def by_layout(code):
            def compute():
                if layout is None:
                    raise Refused(BAD)
                return code(layout)
            return compute

        kind = rng.randrange(15)
        key, us = self.key(guess), self.time(guess)
        at = "timestamptz '%s'" % ('-infinity' if us is None else timestamp_text(us))
        if kind == 0:
            return 'snowid_decode(%s%s)' % (number(key), last), by_layout(lambda f: decode(f, key))
        if kind == 1:
            return 'snowid_timestamp(%s%s)' % (number(key), last), by_layout(
                lambda f: timestamp_text(unpack(f, key)['ms'] * 1000))
        if kind in (2, 3):
            return 'snowid_%s(%s%s)' % (('min', 'max')[kind - 2], at, last), by_layout(
                lambda f: bound(f, us, kind == 3))
        if kind in (4, 5):
            values = {f: rng.choice([0, (1 << getattr(guess, f)) - 1, rng.randint(0, (1 << getattr(guess, f)) - 1),
                                     self.near(1 << getattr(guess, f), 0)])
                      for f in ('datacenter', 'worker', 'sequence')}
            values = {f: min(max(v, -1 << 31), (1 << 31) - 1) for f, v in values.items()}
            args = ', '.join(number(v, 'int') for v in values.values())
            return 'snowid_encode(%s, %s%s)' % (at, args, last), by_layout(lambda f: encode(f, us, values))
        if kind == 6:
            return 'snowid_bits(%s%s)' % (number(key), last), by_layout(lambda f: bits(f, key))
        if kind == 7:
            return 'snowid_to_base32(%s)' % number(key), lambda: text_of_key(key, BASE32, 13)
        if kind == 8:
            return 'snowid_to_base62(%s)' % number(key), lambda: text_of_key(key, BASE62, 11)
        if kind == 9:
            written = self.spoil(write(key % (1 << 64), BASE32, 13), BASE32 + 'iloILO-uU é😀')
            return 'snowid_from_base32(%s)' % literal(written), lambda: base32_value(written, (1 << 63) - 1)
        if kind == 10:
            written = self.spoil(write(key % (1 << 64), BASE62, 11), BASE62 + '- é😀')
            return 'snowid_from_base62(%s)' % literal(written), lambda: base62_value(written)
        if kind == 11:
            written = self.spoil(write(key % (1 << 64), BASE32, 13).lower(), BASE32 + 'iloILO-uU é😀')
            return '%s::snowid' % literal(written), lambda: write(base32_value(written, (1 << 63) - 1), BASE32, 13)
        if kind == 12:
            other = rng.choice([key, self.key(guess), rng.randint(-3, 3), rng.randint(-1 << 31, (1 << 31) - 1)])
            types = ['bigint', 'snowid']
            if abs(other) < 1 << 15:
                types.append('smallint')
            if -1 << 31 <= other < 1 << 31:
                types.append('int')
            pair = [number(key) + '::bigint::snowid', number(other, rng.choice(types[:1] + types[2:]))]
            if rng.random() < 0.3:
                pair[1] = number(other) + '::bigint::snowid'
            a, b = key, other
            if rng.random() < 0.5:
                pair.reverse()
                a, b = b, a
            op, result = rng.choice([('=', a == b), ('<>', a != b), ('<', a < b), ('<=', a <= b), ('>', a > b),
                                     ('>=', a >= b)])
            return '%s %s %s' % (pair[0], op, pair[1]), lambda: 'true' if result else 'false'
        code = self.spoil(rng.choice(['', 'ORD', 'A1', 'ABCDEFGH']), 'AZ09aé')
        offset = self.spoil(rng.choice(['Z', '+08', '-0530', '+15:59', '-15:59', '+16']), '0Z:+-')
        check = rng.random() < 0.5
        tail = ', %s' % ('true' if check else 'false')
        if kind == 13:
            return 'snowid_serial(%s, %s, %s%s%s)' % (literal(code), number(key), literal(offset), last, tail), \
                by_layout(lambda f: serial(f, code, key, offset, check))
        try:
            written = serial(guess, code, abs(key) % (1 << 63), offset, check)
        except Refused:
            written = code + '2016022923595999900000000'
        written = self.spoil(written, '0123456789A')
        return 'snowid_serial_id(%s, %s, %s%s%s)' % (literal(written), literal(code), literal(offset), last, tail), \
            by_layout(lambda f: serial_key(f, written, code, offset, check))


def literal(text):
    return "'%s'" % text.replace("'", "''")


def number(value, type_name='bigint'):
    return "'%d'::%s" % (value, type_name)


def sql(statements):
    done = subprocess.run(['psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', 'postgres'], input=statements,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding='utf-8', check=False)
    if done.returncode:
        sys.exit('the server: ' + done.stderr)
    return done.stdout


ATTEMPT = r"""
SET TimeZone = 'UTC'; SET DateStyle = 'ISO';
CREATE FUNCTION pg_temp.attempt(expression text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    result text;
BEGIN
    EXECUTE 'SELECT (' || expression || ')::text' INTO result;
    RETURN coalesce(result, 'NULL');
EXCEPTION WHEN OTHERS THEN
    RETURN '!' || SQLSTATE;
END $$;
"""


def main():
    seconds, seed = float(sys.argv[1]), int(sys.argv[2])
    ends, done, wrong = time.monotonic() + seconds, 0, 0
    calls = Calls(random.Random(seed), sql("SELECT layout FROM snowid_status()").strip())
    errors = 0
    while done == 0 or (time.monotonic() < ends and wrong < 20):
        batch = [calls.one() for _ in range(1000)]
        answers = sql(ATTEMPT + "SELECT pg_temp.attempt(e) FROM unnest(ARRAY[%s]) e;\n" %
                      ',\n'.join(literal(expression) for expression, _ in batch)).split('\n')
        for (expression, compute), answer in zip(batch, answers):
            try:
                expected = str(compute())
            except Refused as refused:
                expected = '!' + str(refused)
                errors += 1
            if answer != expected:
                wrong += 1
                print('%s\n   gives %s\n   model %s' % (expression, answer, expected))
        done += len(batch)
    print('%d calls, %d of them refused, %d wrong, seed %d' % (done, errors, wrong, seed))
    sys.exit(wrong > 0)


main()
