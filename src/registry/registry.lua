-- registry.lua
--		The holders of the worker IDs: the script that Redis runs for snowid.
--
-- The registry is one hash, so that Redis keeps it, evicts it or loses it as a
-- whole:
--
--		meta			see below
--		<dc>:<w>		the record of a worker ID
--		mark:<...>		what each mark changes, separated by spaces: of a record n, seen and
--						ceiling; of meta the last call
--		taken:<dc>:<n>	a character for each worker ID of the nth 512: '0', it has no owner;
--						'1', it has one for good; '2', it has one that may lapse
--		next:<dc>		the round over all worker IDs: where it continues, when it
--						began, and the nearest ceiling that was ahead so far
--		server:<id>		the <dc>:<w> of a server's records, separated by spaces
--		place:<place>	the same of a data directory's
--
-- A call reads the records of the caller, and a few more: its cost does not depend
-- on how many there are.  A record stays when its owner has gone, because of its
-- ceiling: the next owner begins above it.  Its fields are strings, times are in
-- Unix ms:
--
--		v			version of the format
--		registry	the registry's name when it was written
--		owner		random ID of the server; '': the ID is free
--		name		the server's name, for people
--		place		fingerprint of the owner's data directory; '': that does not
--					tell it from others
--		claim		random ID of this ownership
--		generation	of this ownership; higher than those of the ID before
--		instance	the instance of Redis that the owner last wrote to
--		floor		the owner begins above it: keys of others, and of its former starts
--		starts		the owner's count of starts; a lower one is refused
--		token		random ID of that start
--		boot		the machine's boot, as the owner saw it
--		n			number of the owner's last write; a write with the same or a
--					lower number came late
--		since seen	when the ID was claimed and last written, by the registry's clock
--		ceiling		the owner's keys are not above it, by the owner's clock
--		lease		ms; 0: for good
--		interval	ms; the longest that the owner is silent when all is well
--		revoked		'1': an administrator has taken the ID back
--
-- A record that cannot be read is damaged: its ID counts as taken until an
-- administrator releases it, and operations on other IDs continue.  An owner
-- that is connected then puts its claim back, even if the ID had been taken back before the damage.
--
-- A server lets go of records that it does not use when it claims, not when it marks.
-- If Redis forgets that, or the answer to a claim was lost and the server then left that
-- ID, such a record stays until the server's next claim, or until an administrator releases it.
--
-- Redis may forget any of its last writes, at any time.  Then it is another
-- instance (another process, or a replica that was promoted), or all data is
-- gone.  A new instance begins with a time of settling: each owner that is
-- connected puts its claim back, and no server gets an ID that it did not have.
-- Why two servers never share an ID, even if Redis forgets:
--
--	- An ID changes hands only after its owner gave it up, or its lease lapsed, or
--	  the owner was silent and the ID was released.
--	- A server that gives an ID up says so in its own state file first, and never
--	  resumes it.  It sends Redis a list of past claims, which corrects records
--	  that say otherwise.
--	- Each ownership has a higher generation than those of the ID before.  So if
--	  two owners put a claim back, the later one wins; unless the earlier one has
--	  written to this instance and the later one was cut off.
--	- The settling lasts longer than any connected owner can be silent: never less
--	  than by the constants, whatever is stored; and with any lease and time-outs, since
--	  owners bring back the longest span that they have heard of, and the highest
--	  generation.
--	- A server that cannot be sure of its ID, because it has just started or was
--	  cut off for a lease, waits for the end of the settling, if Redis may have
--	  forgotten the ID's present owner.
--	- A registry has a name.  A claim of another registry does not count here.  One
--	  that is empty gets its name back from the first owner, at the latest from one
--	  that uses its claim.
--
-- So two servers use one ID, or one makes a key twice, only in the cases A1 to A6 of
-- test/model/world.lua.
--
-- The same place and the same boot mean that the former process of the directory
-- is gone, since it held a lock: the new one gets the ID at once.
--
-- Clocks: silence and leases are measured by the registry's clock alone, which is
-- that of Redis, and stands still when that is set back; ceilings are compared
-- with keys alone.  A ceiling is lowered only when its owner releases the ID, since
-- only the owner knows its last key; and raised by the owner alone, since keys of others,
-- which are below the floor, may be far ahead of its clock.  Times of records that are
-- further ahead than the caller's clock can be ("latest") are no server's keys: the caller
-- gets an answer that says so, and neither uses nor repeats them.
--
-- ARGV: name, value, name, value ...  Each call has version, operation, layout,
-- server (its random ID), name, place, token, starts, n, interval, lease, latest,
-- boot and dc; count, of worker IDs in the layout; least, the shortest settling, which
-- is the same for all servers; registry, the name of the one whose claim it has, or '';
-- span and high, the longest span and the highest generation that it heard of; deadline,
-- the Unix ms by Redis' clock up to which it waits; and the arguments of the operation.
-- The answer is an array of strings, the outcome first.

local VERSION = '4'
local FIELDS = {'v', 'registry', 'owner', 'name', 'place', 'claim', 'generation', 'instance',
	'floor', 'starts', 'token', 'boot', 'since', 'lease', 'interval', 'revoked',
	'n', 'seen', 'ceiling', marks = 3}

-- name and rank: of the registry; '0': given by itself, '1': by an owner that started,
-- '2': by one that used its claim.  instance: that wrote last.  layout, pinned_by: the
-- one in use, and who set it.  since, span: when the settling began, and how long it
-- lasts.  longest, window: the longest span that was heard of since then.  heard:
-- since when calls have come without a gap.  beat: the last call.  offset: the
-- registry's clock less Redis'.  high: the highest generation.
local META_FIELDS = {'v', 'name', 'rank', 'instance', 'layout', 'pinned_by', 'since', 'span',
	'longest', 'window', 'heard', 'offset', 'high', 'beat', marks = 1}

-- The most digits of each number; a field with more is damaged.  A span or generation
-- that cannot be would otherwise be brought back by its owners for ever.
local DIGITS = {generation = 14, floor = 16, starts = 16, n = 16, since = 15, seen = 15,
	ceiling = 16, lease = 8, interval = 8, span = 9, longest = 9, window = 15, heard = 15,
	beat = 15, offset = 15, high = 14}

-- How many IDs a claim looks at, three times; of a great table, a part of as many.
local LOOKS = 16

-- How many worker IDs are in a field of those that are taken: a claim writes it whole.
local PART = 512

local key = KEYS[1]
local arg = {}
for i = 1, #ARGV, 2 do arg[ARGV[i]] = ARGV[i + 1] end
if arg.version ~= VERSION then return {'version', VERSION, tostring(arg.version)} end

local time = redis.call('TIME')
local clock = time[1] * 1000 + math.floor(time[2] / 1000)

-- The caller does not wait for this any more.
if clock > tonumber(arg.deadline) then return {'expired'} end

local function str(number)
	return string.format('%.0f', number)
end

local function num(s)
	return tonumber(s) or 0
end

local function info(section, name, length)
	local text = redis.call('INFO', section)
	local _, last = string.find(text, name, 1, true)
	return string.sub(text, last + 1, last + length)
end

-- The process; and the replication ID, which changes when a replica is promoted.
local instance = info('server', 'run_id:', 40) .. '/' .. info('replication', 'master_replid:', 16)

-- Raises a field to this, if that is greater.  Most are equal, and no numbers are made.
local function raise(r, field, value)
	if value ~= r[field] and num(value) > num(r[field]) then r[field] = value end
end

local function field(worker)
	return arg.dc .. ':' .. worker
end

---- Records

local function is_whole(r, fields)
	local numbers = {}
	for i = 1, #fields do
		local value, digits = r[fields[i]], DIGITS[fields[i]]
		if type(value) ~= 'string' or digits and (value == '' or #value > digits) then return false end
		if digits then numbers[#numbers + 1] = value end
	end
	return not string.find(table.concat(numbers), '%D')
end

-- A record; nil: there is none.  A record that cannot be read is {bad = reason}.
local function decode(at, text, fields, marks)
	if not text then return nil end
	local ok, r = pcall(cjson.decode, text)
	r = ok and type(r) == 'table' and r or {}
	if r.v and r.v ~= VERSION then return {bad = 'version', v = tostring(r.v)} end
	local next_mark = string.gmatch(marks or '', '%S+')
	for i = #fields - fields.marks + 1, #fields do r[fields[i]] = next_mark() end
	r.text = text
	return is_whole(r, fields) and r or {bad = 'damaged', v = ''}
end

local function read(at, fields)
	return decode(at, redis.call('HGET', key, at), fields, redis.call('HGET', key, 'mark:' .. at))
end

-- Writes what differs.
local function put_fields(at, r, fields)
	local rest, marks, last = {}, {}, #fields - fields.marks
	r.v = VERSION
	for i = 1, last do rest[fields[i]] = r[fields[i]] end
	for i = 1, fields.marks do marks[i] = r[fields[last + i]] end
	local text = cjson.encode(rest)
	if text ~= r.text then redis.call('HSET', key, at, text) end
	redis.call('HSET', key, 'mark:' .. at, table.concat(marks, ' '))
	r.text = text
end

local function bad(at, r)
	return {r.bad, at, r.v}
end

local meta = read('meta', META_FIELDS)
if not meta then
	meta = {name = string.sub(redis.sha1hex(instance .. clock .. arg.token), 1, 16), rank = '0',
		instance = '', layout = '', pinned_by = '', since = '0', span = '0', longest = '0',
		window = '0', heard = '0', beat = '0', offset = '0', high = '0'}
end
if meta.bad then return bad('meta', meta) end

if meta.layout ~= '' and meta.layout ~= arg.layout then
	return {'layout', meta.layout, meta.pinned_by}
end

---- The registry's clock, its name, and the settling

local passed = clock + num(meta.offset) - num(meta.beat)
if passed < 0 then meta.offset = str(num(meta.beat) - clock) end
local now = clock + num(meta.offset)
-- a generation from there on would have more digits than it may
if now >= 1e13 then return bad('meta', {bad = 'damaged', v = ''}) end

-- How long an owner may be silent and still make keys, or come back.
local own_span = num(arg.interval) + math.max(num(arg.interval), num(arg.lease))

if meta.instance ~= instance then
	meta.instance, meta.since = instance, str(now)
end
if math.abs(passed) > num(arg.interval) then
	-- a jump of Redis' clock does not shorten the settling, and nobody knows how long one back took
	if num(meta.beat) < num(meta.since) + num(meta.span) then meta.since = str(now) end
	meta.heard = str(now)
end
meta.beat = str(now)
local least = str(math.max(own_span, num(arg.least)))
raise(meta, 'longest', least)
raise(meta, 'span', least)
if now < num(meta.since) + num(meta.span) then
	raise(meta, 'span', arg.span)
	meta.window = str(now)
elseif now - math.max(num(meta.window), num(meta.heard)) > 2 * num(meta.span) then
	-- each connected owner was heard in that time
	meta.span, meta.longest, meta.window = meta.longest, '0', str(now)
end
raise(meta, 'high', arg.high)
local settled = num(meta.since) + num(meta.span)
local settling = now < settled

-- Does the caller make keys with its claim: without a gap ("sure"), or at all?
local sure = arg.resume == 'now'
local uses = sure or arg.resume == 'held'

if settling and arg.resume and arg.registry ~= '' then
	local rank = uses and '2' or '1'
	if meta.name == arg.registry or num(meta.rank) < num(rank) then
		meta.name = arg.registry
		raise(meta, 'rank', rank)
	end
elseif not settling then
	meta.rank = '2'
end
local knows = arg.registry == meta.name

---- Records, as they count

-- The keys of the next owner are above it.
local function floor(r)
	return r and math.max(num(r.ceiling) + num(r.lease), num(r.floor)) or 0
end

local function list_of(index)
	local found = {}
	for at in string.gmatch(redis.call('HGET', key, index) or '', '%S+') do table.insert(found, at) end
	return found
end

local function index(name, at, is_in)
	local found = {}
	for _, other in ipairs(list_of(name)) do
		if other ~= at then table.insert(found, other) end
	end
	if is_in then table.insert(found, at) end
	if #found > 0 then
		redis.call('HSET', key, name, table.concat(found, ' '))
	else
		redis.call('HDEL', key, name)
	end
end

-- The characters of a part's IDs, read once, and their field.
local parts = {}
local function part_of(dc, worker)
	local name = 'taken:' .. dc .. ':' .. math.floor(worker / PART)
	if not parts[name] then
		local part = redis.call('HGET', key, name) or ''
		parts[name] = part .. string.rep('0', PART - #part)
	end
	return parts[name], name
end

-- An ID's character in that.
local function kind_in_part(at, kind)
	local worker = num(string.match(at, '%d+$'))
	local part, name = part_of(string.match(at, '^%d+'), worker)
	local i = worker % PART
	if kind then
		parts[name] = string.sub(part, 1, i) .. kind .. string.sub(part, i + 2)
		redis.call('HSET', key, name, parts[name])
	end
	return string.sub(part, i + 1, i + 1)
end

local function kind_of(r)
	return r.owner == '' and '0' or (r.lease ~= '0' or r.revoked == '1') and '2' or '1'
end

-- A name that no owner has brought back is not the records'.
local function put(at, r)
	local kind = kind_of(r)
	if kind ~= r.kind then kind_in_part(at, kind) end
	r.kind = kind
	if not r.registry or meta.rank ~= '0' then r.registry = meta.name end
	put_fields(at, r, FIELDS)
end

-- Gives the record's ID to an owner, or to none.
local function hand(at, r, owner, place)
	if r.owner ~= owner or r.place ~= place then
		index('server:' .. r.owner, at, false)
		index('server:' .. owner, at, owner ~= '')
		index('place:' .. r.place, at, false)
		index('place:' .. place, at, place ~= '')
	end
	r.owner, r.place = owner, place
end

-- The ID has no owner any more.
local function let_go(at, r)
	r.ceiling = str(floor(r))
	hand(at, r, '', '')
	r.claim, r.lease = '', '0'
	put(at, r)
end

-- The answer where a record has a time beyond what can be; nil: it has none.
local function beyond(at, r)
	local last = math.max(num(r.ceiling), num(r.floor))
	return last > num(arg.latest) and {'beyond', at, str(last), r.claim == arg.ownership and 'own' or ''} or nil
end

local function get(at)
	local r = read(at, FIELDS)
	if r and r.bad then
		if kind_in_part(at) == '0' then kind_in_part(at, '1') end	-- an administrator is to see it
		return r
	end
	if not r then return nil end
	r.kind = kind_of(r)
	-- by a clock that was forgotten with "meta"
	if num(r.seen) > now then r.seen = meta.heard end
	if r.registry ~= meta.name and meta.rank ~= '0' then
		-- of the registry whose name this one had for a moment: its owners and its
		-- generations do not count here, and no time that cannot be
		r.generation = '0'
		if beyond(at, r) then r.ceiling, r.floor = '0', '0' end
		let_go(at, r)
	end
	return r
end

-- Was the record written under this boot of the machine?  Then its writer is the
-- caller, or is gone.  If not, and the caller has the owner's ID, it may be a copy
-- by block, and the owner alive.
local function same_boot(r) return r.boot == arg.boot end

-- Was the record written after the call was made: by this start, or a copy of its memory; or
-- by a later start?
local function is_late(r)
	if r.token == arg.token then return num(arg.n) <= num(r.n) end
	return num(arg.starts) <= num(r.starts)
end

-- Was the record written by this start, or by an earlier one under this boot?
local function is_again(r)
	return r.token == arg.token or r.boot == arg.boot and num(arg.starts) > num(r.starts)
end

-- For how long the owner could have written and did not.  The time in which Redis
-- was stalled, or had no calls, does not count.
local function unheard(r)
	return now - math.max(num(r.seen), num(meta.heard))
end

-- Not before a lease after its end, since Redis may have forgotten a renewal.
local function lapsed(r)
	return num(r.lease) > 0 and unheard(r) > 2 * num(r.lease)
end

-- Would a living owner have written by now?
local function silent(r)
	if num(r.lease) > 0 then return lapsed(r) end
	return unheard(r) > 2 * num(r.interval)
end

-- The caller has the owner's ID, and gave the claim up.  A lease whose time cannot
-- be stays, so that an administrator sees it; if the time comes, it has lapsed.
local function may_let_go(r)
	return (same_boot(r) or silent(r)) and not (num(r.lease) > 0 and beyond('', r))
end

local function blank()
	return {owner = '', name = '', place = '', claim = '', instance = instance,
		generation = '0', floor = '0', starts = '0', token = '', boot = '', n = '0',
		since = str(now), seen = str(now), ceiling = '0', lease = '0', interval = '0', revoked = '0'}
end

-- In place of the owner of a record that was damaged.
local UNKNOWN = string.rep('0', 32)

-- The owner is alive, even if it has an answer that it cannot use: nobody is to release its
-- ID as silent.
local function note_alive(at, r)
	if r.token ~= arg.token then r.boot = arg.boot end
	r.token, r.starts, r.n, r.seen = arg.token, arg.starts, arg.n, str(now)
	put(at, r)
end

-- Writes the caller into the record, with an ownership.
local function own_record(at, r, claim, generation, begin)
	hand(at, r, arg.server, arg.place)
	r.name, r.claim, r.generation, r.instance = arg.name, claim, generation, instance
	r.interval, r.lease, r.revoked, r.floor = arg.interval, arg.lease, '0', begin
	raise(r, 'ceiling', arg.ceiling)
	raise(meta, 'high', generation)
	note_alive(at, r)
	if meta.layout == '' then meta.layout, meta.pinned_by = arg.layout, arg.name end
end

-- Restores a claim that Redis forgot.
local function put_back(at, r)
	r = r or blank()
	r.since = str(now)
	raise(r, 'ceiling', arg.used)
	raise(r, 'floor', arg.floor)
	own_record(at, r, arg.ownership, arg.generation, r.floor)
	return r
end

-- Did Redis forget this generation?  Not if the owner of an earlier one is
-- connected, and the caller was not: then that one has it.
local function forgotten(r, generation)
	return r == nil or not r.bad and num(r.generation) < num(generation) and
		(sure or r.owner == '' or r.owner == arg.server or r.instance ~= instance or silent(r))
end

-- The claim is another server's, or no server's.  The next owner begins above the keys made
-- with it; if the record was damaged and released, no owner before the caller gets it back.
-- The answer says whether another server has the caller's ID.
local function lost(at, r)
	if r.owner == UNKNOWN then raise(r, 'generation', arg.generation) end
	raise(r, 'floor', arg.used)
	put(at, r)
	return {'lost', r.name, r.owner == arg.server and 'server' or ''}
end

-- Who gets the ID from now on, begins above these keys: the present owner, too, which may be a
-- copy that does not know of them.
local function leave_floor(at, r, generation, last)
	if not r then
		r = blank()
		r.generation = str(generation)
	end
	local before = r.floor
	raise(r, 'floor', last)
	if not r.bad and r.floor ~= before then put(at, r) end
end

-- The same, for a caller that does not get its claim back, or not yet.
local function leave_used(at, r)
	leave_floor(at, r, math.max(num(arg.generation) - 1, 0), str(math.max(num(arg.used), num(arg.floor))))
end

-- Lets go of records of this server's past claims, each time, since Redis may forget that:
-- <registry>/<dc>:<w>/<ownership>/<ceiling>/<'1': no key is above that>, separated
-- by spaces.
local function let_go_of_past()
	for registry, at, claim, ceiling, exact in
		string.gmatch(arg.past, '(%x+)/(%d+:%d+)/(%x+)/(%d+)/(%d)') do
		local r = registry == meta.name and get(at)

		if r and r.claim == claim and not is_late(r) and may_let_go(r) then
			if exact == '1' and same_boot(r) then r.lease, r.ceiling = '0', '0' end
			raise(r, 'ceiling', ceiling)
			let_go(at, r)
		elseif r ~= false then
			leave_floor(at, r, 0, ceiling)
		end
	end
end

---- A mark, before what others need: each call makes all functions that it comes by

-- The server is alive, and sends its claim.  Arguments as for a claim: worker,
-- ownership, generation, floor, ceiling, used, resume, past.
local function mark()
	if not knows then return {'other'} end
	let_go_of_past()
	local at = field(arg.worker)
	local r = get(at)

	local is_its = r and r.claim == arg.ownership

	if r and r.bad then
		return bad(at, r)
	elseif not is_its and not forgotten(r, arg.generation) or
		is_its and r.token ~= arg.token and is_late(r) then
		return lost(at, r)
	elseif is_its and is_late(r) then
		return {'late'}
	elseif is_its and r.revoked == '1' then
		return {'revoked'}
	elseif not uses or is_its and lapsed(r) then
		-- another server may have got it meanwhile, and Redis forgot that
		leave_used(at, r)
		return {'gone'}
	elseif r and num(r.ceiling) > num(arg.latest) then
		if is_its then note_alive(at, r) end
		return beyond(at, r)
	elseif is_its then
		raise(r, 'ceiling', arg.used)
		own_record(at, r, r.claim, r.generation, r.floor)
	else
		r = put_back(at, r)
	end
	return {'ok', r.ceiling, meta.name, meta.span, meta.high}
end

local function finish(answer)
	put_fields('meta', meta, META_FIELDS)
	return answer
end

if arg.operation == 'mark' then return finish(mark()) end

---- What the other operations need

-- The caller is to wait until then.
local function wait_until(ends)
	return {'settling', str(ends - now), str(ends - num(meta.offset))}
end

-- Patterns of what is searched in a part.  A class of characters would take forty times as
-- long as a run of one.
local FREE, NOT_FREE, NOT_FOR_GOOD = '0', '^0*()', '^1*()'

-- The first ID from there on whose character is so; "count" or more: there is none.
local function first(what, worker)
	repeat
		local i = worker % PART
		local found, _, after = string.find(part_of(arg.dc, worker), what, i + 1)
		found = after or found or PART + 1
		worker = worker - i + found - 1
	until found <= PART or worker >= num(arg.count)
	return worker
end

-- Was the record written since the caller's start, so that another server writes it?
-- A call of the caller's former life may have come late.
local function has_twin(r)
	return num(r.seen) > math.max(now - num(arg.up), num(meta.heard)) + num(r.interval)
end

-- Its times cannot be, and no server writes it: others may have other limits.
local function is_beyond_repair(r)
	return (silent(r) or r.owner == arg.server) and beyond('', r)
end

-- Until the record is silent, or its writer shows; a lease is not waited for.
local function watch(r)
	if num(r.lease) > 0 or has_twin(r) then return {'twin'} end
	return {'silence', str(math.max(2 * num(r.interval) - unheard(r) + 1, 1))}
end

---- The other operations

local operations = {}

-- Gets this server a worker ID.  Arguments:
--		fresh		a random ID for a new ownership
--		ceiling		that it asks for
--		reach		its keys may begin up to here
--		known		<dc>:<w> that it has or remembers, or ''; with its ownership,
--					generation and floor, and used, the ceiling of the keys made
--					with it, or 0
--		resume		may it continue with that?  'now': it uses it, and was connected
--					without a gap; 'held': it uses it; 'settled': it cannot have
--					lapsed; 'record': only if the record says that it has not lapsed
--		up			ms since its start
--		move		'1': it wants another ID than the known one
--		leaving		<dc>:<w> that it leaves for the known one, or ''
--		past		the claims that it gave up
-- The known ID is not given up here, but by a mark when it makes no more keys with it.
function operations.claim()
	local known, move = knows and arg.known or '', arg.move == '1'
	-- its server did not look for a second master, as nobody can have taken its ID
	local sure_of_it = arg.known ~= '' and arg.resume == 'settled' and not settling
	if not knows and (uses or sure_of_it) then return {'other'} end

	local function yours(worker, r)
		return {'yours', worker, r.claim, r.floor, r.ceiling, r.generation, meta.name, meta.span, meta.high}
	end

	local function give(worker, r, begin)
		r = r or blank()
		r.since = str(now)
		own_record(field(worker), r, arg.fresh,
			str(math.max(num(r.generation), num(meta.high), now) + 1), str(begin))
		return yours(worker, r)
	end

	-- the worker ID of a record that this server may have; that of a claim under
	-- another layout may not fit
	local function usable(at)
		local worker = string.match(at, '^' .. arg.dc .. ':(%d+)$')
		return worker and num(worker) < num(arg.count) and worker
	end

	-- The caller waits, or is not who it was: its keys count all the same.
	local function refuse(answer)
		if known ~= '' then leave_used(known, get(known)) end
		return answer
	end

	let_go_of_past()
	for _, at in ipairs(list_of('server:' .. arg.server)) do
		local r = get(at) or {}
		if not r.bad and r.owner ~= arg.server then
			index('server:' .. arg.server, at, false)	-- it was damaged, and released
		elseif r.token == arg.token and is_late(r) then
			return refuse({'late'})
		elseif r.token ~= arg.token and num(arg.starts) < num(r.starts) then
			return refuse({'older'})
		elseif not r.bad and not is_again(r) and not silent(r) then
			return refuse(watch(r))	-- the caller may be a copy, and its original alive
		end
	end

	-- the known ID
	local mine = known ~= '' and get(known) or nil
	if mine and mine.bad and not move then return bad(known, mine) end
	local is_mine = mine ~= nil and mine.owner == arg.server and not forgotten(mine, arg.generation)
	if is_mine and mine.revoked == '1' and not move then return {'lost', mine.name, ''} end
	local is_beyond = mine and not mine.bad and beyond(known, mine)
	local changes = move or not usable(known)
	-- on lease, a server whose keys are too far ahead of its clock starts with another ID
	local own = is_mine and not changes and known ~= arg.leaving and
		not (arg.resume == 'record' and is_beyond) and known

	-- spare: an ID of this server that it never heard of; former: the ID of a former
	-- life of this directory.  Others of both kinds are freed.
	local spare, former
	local function look_at(at)
		local r = at == known and mine or get(at)
		if not r or r.bad or at == arg.leaving or at == spare or at == known and (is_mine or move) then
			return
		end
		local same_life = r.owner == arg.server
		local same_place = r.place == arg.place and not same_life and not has_twin(r)
		local is_wanted = not own and not move and usable(at) and r.revoked ~= '1'

		if same_life and is_wanted and not spare then
			spare = at
		elseif same_place and is_wanted and not beyond(at, r) and
			(num(r.lease) == 0 or same_boot(r) and floor(r) <= num(arg.reach)) and
			(not former or (same_boot(r) and get(former).boot ~= arg.boot)) then
			former = at
		elseif (same_life and may_let_go(r)) or (same_place and same_boot(r) and (not own or silent(r))) then
			let_go(at, r)
		end
	end
	for _, at in ipairs(list_of('server:' .. arg.server)) do look_at(at) end
	for _, at in ipairs(list_of('place:' .. arg.place)) do look_at(at) end

	local forgot = known ~= '' and forgotten(mine, arg.generation)
	if forgot and known ~= arg.leaving and not is_beyond and
		(uses or not changes and (arg.resume ~= 'record' or not settling and arg.lease == '0')) then
		-- it uses the known ID until it has another; and this call is not executed twice
		local r = put_back(known, mine)
		if not changes then
			if uses or not settling then return yours(usable(known), r) end
			-- reserved for it, unless an owner with a higher generation comes
			r.instance = ''
			put(known, r)
			return wait_until(settled)
		end
	elseif own and is_beyond or not own and is_mine and uses then
		note_alive(known, mine)
	elseif known ~= '' then
		leave_used(known, mine)
		if move or is_mine or known == arg.leaving then
			-- it has another one, or asks for it
		elseif forgot then
			if is_beyond then return is_beyond end
		elseif mine.owner ~= UNKNOWN or silent(mine) then
			return lost(known, mine)
		elseif arg.resume ~= 'record' then
			-- that was the caller, or is another server, which puts it back
			return wait_until(now + 2 * num(mine.interval) - unheard(mine) + 1)
		end
	end

	local at = own or spare or former
	if at then
		local r = at == known and mine or get(at)
		local again = at ~= former and is_again(r)

		if not same_boot(r) and not silent(r) then return watch(r) end
		if beyond(at, r) then return beyond(at, r) end
		-- another server may have got it meanwhile, and Redis forgot that
		local is_sure = own and again and not lapsed(r) and (uses or r.instance == instance)
		if settling and not is_sure then return wait_until(settled) end
		if not again then return give(usable(at), r, floor(r)) end
		own_record(at, r, r.claim, r.generation, r.floor)
		return yours(usable(at), r)
	end
	-- owners come first
	if now < settled + num(arg.interval) then return wait_until(settled + num(arg.interval)) end

	-- An ID goes to the caller if it is free, or its lease has lapsed, and the caller's clock
	-- reaches it.
	local count, round = num(arg.count), list_of('next:' .. arg.dc)
	local from, began, nearest = num(round[1] or count), num(round[2]), num(round[3])
	local found, r
	local function try(worker)
		local at = field(worker)
		r = get(at)
		local ended = r and r.owner ~= '' and (lapsed(r) or r.revoked == '1' and silent(r))
		if ended and at ~= known and at ~= arg.leaving then let_go(at, r) end
		-- one whose record is gone is left to an administrator
		if r and r.owner == '' and not (move and at == known) or not r and kind_in_part(at) == '0' then
			found = floor(r) <= num(arg.reach) and str(worker)
			if not found then nearest = nearest > 0 and math.min(nearest, floor(r)) or floor(r) end
		end
	end

	-- the lowest one; where many have a lease, the lowest that is free
	for _, what in ipairs({NOT_FOR_GOOD, FREE}) do
		local worker = first(what, 0)
		for _ = 1, LOOKS do
			if found or worker >= count then break end
			try(worker)
			worker = first(what, worker + 1)
		end
	end

	-- Looks at more, from where the last caller stopped.  One round in each interval is enough
	-- for all, unless one passed an ID that this caller can have.
	for _ = 1, LOOKS + count / LOOKS do
		if found then break end
		from = first(NOT_FOR_GOOD, from)
		if from >= count and (math.abs(now - began) >= num(arg.interval) or
			nearest > 0 and nearest <= num(arg.reach)) then
			from, began, nearest = first(NOT_FOR_GOOD, 0), now, 0
		end
		if from >= count then break end
		try(from)
		from = from + 1
	end
	redis.call('HSET', key, 'next:' .. arg.dc, str(from) .. ' ' .. str(began) .. ' ' .. str(nearest))
	if found then return give(found, r, floor(r)) end
	local owners = 0
	for from = 0, count - 1, PART do
		owners = owners + select(2, string.gsub(string.sub(part_of(arg.dc, from), 1, count - from), '[^0]', ''))
	end
	return {'full', str(owners), str(count - owners), owners < count and str(nearest) or '0',
		first(NOT_FOR_GOOD, from) < count and 'more' or ''}
end

-- An administrator frees an ID that the caller does not use.  Arguments: worker; ownership,
-- from list(); force, '1' or '0'.
function operations.free()
	local at = field(arg.worker)
	local r = get(at)

	if r == nil or r.bad == 'damaged' or not r.bad and is_beyond_repair(r) then
		-- its owner, if there is one, has the time to put it back
		if r and not r.bad then hand(at, r, '', '') end
		r = blank()
		r.interval, r.revoked = str(math.ceil(num(meta.span) / 2)), '1'
		hand(at, r, UNKNOWN, '')
		put(at, r)
		return {'released', ''}
	elseif r.bad then
		return bad(at, r)
	elseif r.owner == '' or r.claim ~= arg.ownership then
		return {'free'}
	elseif silent(r) or (r.owner == arg.server and r.boot == arg.boot) then
		let_go(at, r)
		return {'released', r.name}
	elseif arg.force ~= '1' then
		return {'live', r.name, str(now - num(r.seen))}
	end
	r.revoked = '1'
	put(at, r)
	return {'revoked', r.name}
end

-- A page of claims in the order of their worker IDs.  Arguments: from, the first
-- worker ID; records, at most so many; own, the ownerships that the caller uses, or is about to
-- release.
function operations.list()
	local answer = {'list'}
	local worker = num(arg.from) - 1
	for _ = 1, num(arg.records) do
		worker = first(NOT_FREE, worker + 1)
		if worker >= num(arg.count) then break end
		local r = get(field(worker)) or {bad = 'damaged'}
		local state = r.bad or is_beyond_repair(r) and 'damaged'
		if r.bad then r = {owner = '', name = '', since = '', seen = '', ceiling = '', claim = ''} end
		local mine = not state and r.claim ~= '' and string.find(arg.own, r.claim, 1, true) ~= nil
		local age = now - num(r.seen)
		state = state or r.owner == arg.server and not mine and 'unused'
			or r.revoked == '1' and 'revoked' or lapsed(r) and 'lapsed'
			or num(r.lease) > 0 and age > num(r.lease) and 'ended'
			or silent(r) and 'silent' or 'live'
		local function shown(ms)
			return ms ~= '' and str(math.max(num(ms) - num(meta.offset), 0)) or ''
		end
		for _, value in ipairs({str(worker), r.name, shown(r.since), shown(r.seen), r.ceiling,
			num(r.lease) > 0 and str(num(r.lease) - age) or '', state,
			mine and '1' or '0', r.claim}) do
			table.insert(answer, value)
		end
	end
	return answer
end

return finish(operations[arg.operation]())
