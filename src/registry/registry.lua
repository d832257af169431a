-- registry.lua
--		Who holds which worker ID: the script that Redis runs for snowid.
--
-- The registry is one hash, so that Redis keeps it, evicts it or loses it as a
-- whole:
--
--		meta		the layout in use, and which server set it; the instance of
--					Redis that wrote last; when the settling began and how long
--					it lasts; since when calls have come without a gap, and the
--					time of the last one; and the highest ceiling of all records
--		<dc>:<w>	the record of a worker ID
--
-- A record stays when its owner has gone, because of its ceiling: the next owner
-- begins above it.  Its fields are strings, times are in Unix ms:
--
--		v			version of the format
--		owner		random ID of the server; '': the ID is free
--		name		the server's name, for people
--		place		fingerprint of the owner's data directory; '': that does not
--					tell it from others
--		claim		random ID of this ownership
--		generation	of this ownership; higher than those of the ID before
--		era			the instance of Redis that gave the ID out; '': the owner put
--					its claim back
--		instance	the instance of Redis that the owner last wrote to
--		floor		the owner's keys are above it
--		starts		the owner's count of starts; a lower one is refused
--		token		random ID of that start
--		boot		the machine's boot, as the owner saw it
--		n			number of the owner's last write; a write with the same or a
--					lower number came late
--		since seen	when the ID was claimed and last written, by Redis' clock
--		ceiling		the owner's keys are not above it, by the owner's clock
--		lease		ms; 0: for good
--		interval	ms; the longest that the owner is silent when all is well
--		revoked		'1': an administrator has taken the ID back
--		sum			checksum of the fields above and of <dc>:<w>
--
-- A record that is not whole is damaged: the ID counts as taken, and operations
-- on other IDs go on.
--
-- Redis may forget any of its last writes, at any time.  Then it is another
-- instance (another process, or a replica that was promoted), or all data is
-- gone.  A new instance begins an era, with a time of settling: each owner that
-- is connected puts its claim back, and nobody gets an ID that it did not have.
-- Why two servers never share an ID, whatever Redis forgot:
--
--	- An ID changes hands only after its owner gave it up, or its lease lapsed, or
--	  the owner was silent and the ID was released.
--	- A server that gives an ID up says so in its own state file first, and never
--	  resumes it.  It tells Redis what it gave up, so that a record which says
--	  otherwise is corrected.
--	- Each ownership has a higher generation than those of the ID before: higher
--	  than the record's, and than the time.  So where two owners put a claim back,
--	  the later one wins.
--	- An ownership that was given out in this era is valid: it was given out after
--	  the settling, in which every connected owner put its claim back.
--	- A server that cannot be sure of its ID, because it has just started or was
--	  cut off for a lease, waits for the end of the settling, where Redis may have
--	  forgotten who has the ID now.
--
-- So two servers use one ID only where one of them was cut off for a whole
-- settling and Redis lost its record; where a block copy, or a memory image, runs
-- beside an original that is cut off; or where an administrator released the ID
-- of a server that was merely cut off.
--
-- The same place and the same boot mean that the former process of the directory
-- is gone, since it held a lock: the new one gets the ID at once.  A server that
-- loses its ID this way while it runs knows that its place is shared, and has
-- none from then on.  So two servers do not take an ID from each other for ever.
--
-- Clocks: silence and leases are measured by Redis' clock alone; ceilings are
-- compared with keys alone.  A ceiling is lowered only when its owner releases
-- the ID, since only the owner knows its last key.
--
-- Times of records that are further ahead than the caller's clock can be ("latest")
-- are nobody's keys: the caller is told so, and neither uses nor repeats them.
--
-- ARGV: name, value, name, value ...  Each call has version, operation, layout,
-- server (its random ID), name, place, token, starts, n, interval, lease, latest,
-- boot and dc; and the arguments of the operation.  The answer is an array of strings, the
-- outcome first.

local VERSION = '3'
local FIELDS = {'v', 'owner', 'name', 'place', 'claim', 'generation', 'era', 'instance',
	'floor', 'starts', 'token', 'boot', 'n', 'since', 'seen', 'ceiling', 'lease',
	'interval', 'revoked'}
local META_FIELDS = {'v', 'instance', 'layout', 'pinned_by', 'since', 'span', 'heard', 'beat', 'top'}

-- A server does not wait for its former life's keys that are further ahead.
local HOUR = 3600000

local key = KEYS[1]
local arg = {}
for i = 1, #ARGV, 2 do arg[ARGV[i]] = ARGV[i + 1] end
if arg.version ~= VERSION then return {'version', VERSION, tostring(arg.version)} end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function str(number)
	return string.format('%.0f', number)
end

local function num(s)
	return tonumber(s) or 0
end

-- The process; and the replication ID, which changes when a replica is promoted.
local instance = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') .. '/' ..
	string.sub(string.match(redis.call('INFO', 'replication'), 'master_replid:(%w+)'), 1, 16)

-- Raises a field to the greatest of these.
local function raise(r, field, ...)
	for _, value in ipairs({...}) do
		if num(value) > num(r[field]) then r[field] = value end
	end
end

local function field(worker)
	return arg.dc .. ':' .. worker
end

---- Records

local function checksum(at, r, fields)
	local values = {at}
	for _, name in ipairs(fields) do table.insert(values, r[name]) end
	return string.sub(redis.sha1hex(table.concat(values, '\n')), 1, 16)
end

local NUMBERS = {'generation', 'floor', 'starts', 'n', 'since', 'seen', 'ceiling', 'lease',
	'interval', 'span', 'heard', 'beat', 'top'}
local IDS = {owner = 32, place = 48, claim = 16, token = 16}

local function is_whole(at, r, fields)
	for _, name in ipairs(fields) do
		if type(r[name]) ~= 'string' then return false end
	end
	for _, name in ipairs(NUMBERS) do
		if r[name] and (#r[name] > 16 or not string.match(r[name], '^%d+$')) then return false end
	end
	for name, width in pairs(IDS) do
		if r[name] and r[name] ~= '' and (#r[name] ~= width or not string.match(r[name], '^%x+$')) then
			return false
		end
	end
	return r.sum == checksum(at, r, fields)
end

-- A record; nil: there is none.  A record that cannot be read is {bad = reason}.
local function decode(at, text, fields)
	if not text then return nil end
	local ok, r = pcall(cjson.decode, text)
	if ok and type(r) == 'table' and r.v ~= VERSION and (r.v or r.node or r.run_id) then
		return {bad = 'version', v = tostring(r.v or '1')}
	elseif not ok or type(r) ~= 'table' or not is_whole(at, r, fields) then
		return {bad = 'damaged'}
	end
	return r
end

local function get(at)
	return decode(at, redis.call('HGET', key, at), FIELDS)
end

local function put_fields(at, r, fields)
	r.v = VERSION
	r.sum = checksum(at, r, fields)
	redis.call('HSET', key, at, cjson.encode(r))
end

local function bad(at, r)
	return {r.bad, at, r.v or ''}
end

local function records()
	local flat = redis.call('HGETALL', key)
	local all = {}
	for i = 1, #flat, 2 do
		if flat[i] ~= 'meta' then all[flat[i]] = decode(flat[i], flat[i + 1], FIELDS) end
	end
	return all
end

local function held(r)
	return r ~= nil and (r.bad or r.owner ~= '')
end

local meta = decode('meta', redis.call('HGET', key, 'meta'), META_FIELDS) or
	{instance = '', layout = '', pinned_by = '', since = '0', span = '0', heard = '0', beat = '0',
		top = '0'}
if meta.bad then return bad('meta', meta) end

-- The answer where a record has a time beyond what can be; nil: it has none.
local function beyond(at, r)
	local last = math.max(num(r.ceiling), num(r.floor))
	return last > num(arg.latest) and {'beyond', at, str(last)} or nil
end

local function raise_top(r)
	if num(r.ceiling) <= num(arg.latest) then raise(meta, 'top', r.ceiling) end
end

local function put(at, r)
	raise_top(r)
	put_fields(at, r, FIELDS)
end

local function age(r)
	return now - num(r.seen)
end

-- Was the record written under this boot of the machine?  Then its writer is the
-- caller, or is gone.  Where not, and the caller has the owner's ID, it may be a copy
-- by block, and the owner alive.
local function same_boot(r)
	return r.token == arg.token or r.boot == arg.boot
end

-- For how long the owner could have written and did not.  The time in which Redis
-- was stalled, or nobody called it, does not count.
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

-- The caller has the owner's ID, and gave the claim up.
local function may_let_go(r)
	return same_boot(r) or silent(r)
end

local function free(r)
	return not held(r) or not r.bad and (lapsed(r) or (r.revoked == '1' and silent(r)))
end

-- The keys of the next owner are above it.
local function floor(r)
	if r == nil then return 0 end
	return num(r.ceiling) + (held(r) and num(r.lease) or 0)
end

-- "place": of the server that takes the ID away; so a living owner learns that its
-- place is shared.
local function let_go(at, r, place)
	r.ceiling = str(floor(r))
	r.owner, r.claim, r.token, r.place, r.revoked, r.lease = '', '', '', place or '', '0', '0'
	put(at, r)
end

---- The layout, and the settling

-- How long an owner may be silent and still make keys, or come back.
local function span(its_interval, its_lease)
	return num(its_interval) + math.max(num(its_interval), num(its_lease))
end

if meta.layout ~= '' and meta.layout ~= arg.layout then
	return {'layout', meta.layout, meta.pinned_by}
end

local function pin_layout()
	if meta.layout == '' then
		meta.layout, meta.pinned_by = arg.layout, arg.name
	end
end

-- Begins the settling.
local function settle()
	local longest = 0
	for _, r in pairs(records()) do
		if held(r) and not r.bad then longest = math.max(longest, span(r.interval, r.lease)) end
		raise_top(r)
	end
	meta.since, meta.span = str(now), str(longest)
end

if meta.instance ~= instance then
	meta.instance = instance
	settle()
end
if now < num(meta.beat) then
	-- Redis' clock was set back: times ahead of it become now
	for at, r in pairs(records()) do
		if not r.bad and (num(r.seen) > now or num(r.since) > now) then
			r.seen, r.since = str(math.min(now, num(r.seen))), str(math.min(now, num(r.since)))
			put(at, r)
		end
	end
	meta.heard = str(math.min(now, num(meta.heard)))
end
if num(meta.span) < span(arg.interval, arg.lease) then
	-- an owner may be silent for longer than was known
	meta.span = str(span(arg.interval, arg.lease))
end
if math.abs(now - num(meta.beat)) > num(arg.interval) then
	-- a jump of Redis' clock does not shorten the settling
	if now < num(meta.since) or num(meta.beat) < num(meta.since) + num(meta.span) then
		meta.since = str(now)
	end
	meta.heard = str(now)
end
meta.since = str(math.min(now, num(meta.since)))
meta.beat = str(now)
local settled = num(meta.since) + num(meta.span)
local settling = now < settled

-- Owners come first: a server without a claim waits for longer.
local function unsettled(longer)
	local ends = settled + (longer or 0)
	return {'settling', str(ends - now), str(ends)}
end

-- Writes the caller into the record, with an ownership.
local function own_record(at, r, claim, generation, era, begin)
	if r.token ~= arg.token then r.boot = arg.boot end
	r.owner, r.name, r.place, r.claim, r.generation, r.era, r.instance =
		arg.server, arg.name, arg.place, claim, generation, era, instance
	r.token, r.starts, r.n = arg.token, arg.starts, arg.n
	r.interval, r.lease, r.revoked = arg.interval, arg.lease, '0'
	r.since, r.seen, r.floor, r.ceiling = r.since or str(now), str(now), begin, r.ceiling or '0'
	raise(r, 'ceiling', arg.ceiling, r.floor)
	put(at, r)
	pin_layout()
end

-- Did Redis forget this generation?  An ownership that was given out in this era
-- was given out after the settling, and is valid.
local function forgotten(r, generation)
	return r == nil or not r.bad and r.era ~= instance and num(r.generation) < num(generation)
end

-- The ceiling of the keys made with the claim.  That of a former start is not
-- known; it was no higher than what is asked for now.
local function used_or_asked()
	return num(arg.used) > 0 and arg.used or arg.reach or arg.ceiling
end

-- The claim is another's, or nobody's.  The next owner begins above the keys made
-- with it.  Tells what the caller has in common with the present owner.
local function lost(at, r)
	raise(r, 'ceiling', used_or_asked())
	raise(r, 'floor', arg.used)
	put(at, r)
	return {'lost', r.name, r.owner == arg.server and 'server' or
		arg.place ~= '' and r.place == arg.place and 'place' or ''}
end

-- The ID's next owner begins above these keys, although the record is not the
-- caller's.
local function leave_ceiling(at, r, generation, ceiling, used)
	r = r or {owner = '', name = '', place = '', claim = '', era = '', instance = instance,
		generation = str(generation), floor = '0', starts = '0', token = '', boot = '', n = '0',
		since = str(now), seen = str(now), ceiling = '0', lease = '0', interval = '0', revoked = '0'}
	local before, begin = r.ceiling, r.floor
	raise(r, 'ceiling', ceiling, used)
	-- the present owner does not know of them when it releases the ID
	if r.owner ~= arg.server then raise(r, 'floor', ceiling, used) end
	if r.bad then
		raise_top(r)
	elseif r.ceiling ~= before or r.floor ~= begin then
		put(at, r)
	end
	return r
end

-- The same, where the caller does not get its claim back, or not yet.
local function leave_used(at, r)
	return leave_ceiling(at, r, math.max(num(arg.generation) - 1, 0), used_or_asked(), arg.floor)
end

-- What this server gave up: <dc>:<w>/<ownership>/<ceiling>/<'1': no key is above
-- that>, separated by spaces.
local function given_up()
	local past = {}
	for at, claim, ceiling, exact in string.gmatch(arg.past or '', '(%d+:%d+)/(%x+)/(%d+)/(%d)') do
		past[claim] = {at = at, ceiling = ceiling, exact = exact == '1'}
	end
	return past
end

-- Corrects what Redis may have forgotten of it.
local function let_go_of_past(all)
	for claim, past in pairs(given_up()) do
		local r = all and all[past.at] or not all and get(past.at) or nil

		if r and r.claim == claim and may_let_go(r) then
			if past.exact and same_boot(r) then r.lease = '0' end
			raise(r, 'ceiling', past.ceiling)
			let_go(past.at, r)
		elseif not r or r.claim == claim or r.owner ~= arg.server then
			r = leave_ceiling(past.at, r, 0, past.ceiling)
			if all then all[past.at] = r end
		end
	end
end

---- Operations

local operations = {}

-- Gets this server a worker ID.  Arguments:
--		count		of worker IDs in the layout
--		wanted		the worker ID in the settings; -1: any
--		fresh		a random ID for a new ownership
--		ceiling		that it asks for
--		reach		its keys may begin up to here
--		known		<dc>:<w> that it has or remembers, or ''; with its ownership,
--					generation and floor, and used, the ceiling of the keys made
--					with it, or 0
--		resume		may it go on with that?  'now': it uses it, and it cannot have
--					lapsed; 'settled': it cannot have lapsed; 'record': only if
--					the record says that it has not lapsed
--		unchanged	token and n of a record that has not changed for long enough,
--					or ''
--		move		'1': it wants another ID than the known one
--		leaving		<dc>:<w> that it is about to release, or ''
--		past		what it gave up
-- The known ID is not given up here: the server releases it when it makes no more
-- keys with it.
function operations.claim()
	local known, move = arg.known, arg.move == '1'
	local all = records()

	local function yours(worker, r)
		return {'yours', worker, r.claim, r.floor, r.ceiling, r.generation}
	end

	local function give(worker, r, begin)
		r = r or {}
		r.since, r.ceiling = str(now), str(math.max(begin, num(r.ceiling)))
		own_record(field(worker), r, arg.fresh, str(math.max(num(r.generation) + 1, now)),
			instance, str(begin))
		return yours(worker, r)
	end

	-- the worker ID of a record that this server may have; that of a claim under
	-- another layout may not fit
	local function usable(at)
		local worker = string.match(at, '^' .. arg.dc .. ':(%d+)$')
		return worker and num(worker) < num(arg.count) and
			(arg.wanted == '-1' or arg.wanted == worker) and worker
	end

	local function was_silent(r)
		return arg.unchanged == r.token .. '/' .. r.n and silent(r)
	end

	local function watch(r)
		return {'silence', r.token .. '/' .. r.n, r.interval, r.lease}
	end

	for at, r in pairs(all) do
		if r.owner == arg.server and r.token == arg.token and num(arg.n) <= num(r.n) then
			return {'late'}
		elseif r.owner == arg.server and r.token ~= arg.token and num(arg.starts) < num(r.starts) then
			return {'older'}
		end
	end

	let_go_of_past(all)

	-- the known ID
	local mine = known ~= '' and all[known] or nil
	if mine and mine.bad and not move then
		leave_used(known, mine)
		return bad(known, mine)
	end
	local is_mine = mine ~= nil and not mine.bad and mine.claim == arg.ownership
	if is_mine and mine.revoked == '1' and not move then return {'lost', mine.name, ''} end
	local own = is_mine and not move and known ~= arg.leaving and usable(known) and known

	-- spare: an ID of this server that it never heard of; former: the ID of a former
	-- life of this directory.  Others of both kinds are freed.
	local spare, former
	for at, r in pairs(all) do
		local same_life = r.owner == arg.server
		local same_place = arg.place ~= '' and r.place == arg.place and held(r) and not same_life

		if r.bad or at == arg.leaving or (at == known and (is_mine or move)) then
			-- stays as it is
		elseif same_life and not own and not move and usable(at) and r.revoked ~= '1' and not spare then
			spare = at
		elseif same_place and not own and not move and usable(at) and r.revoked ~= '1' and
			(same_boot(r) or num(r.lease) == 0) and floor(r) <= num(arg.reach) + HOUR and
			(num(r.lease) == 0 or floor(r) <= num(arg.reach)) and
			(not former or (same_boot(r) and all[former].boot ~= arg.boot)) then
			former = at
		elseif (same_life and may_let_go(r)) or (same_place and same_boot(r)) then
			let_go(at, r, same_place and arg.place)
		end
	end

	if own and beyond(own, mine) then return beyond(own, mine) end
	if own then
		raise(mine, 'ceiling', arg.used)
		local worker = usable(own)
		local again = mine.token == arg.token or
			(mine.boot == arg.boot and num(arg.starts) > num(mine.starts))

		-- another server may have got it meanwhile, and Redis forgot that
		if settling and (lapsed(mine) or (arg.resume ~= 'now' and mine.instance ~= instance)) then
			leave_used(own, mine)
			return unsettled()
		elseif again then
			own_record(own, mine, mine.claim, mine.generation, mine.era, mine.floor)
			return yours(worker, mine)
		elseif lapsed(mine) or was_silent(mine) then
			return settling and unsettled() or give(worker, mine, floor(mine))
		end
		return watch(mine)
	end

	local is_beyond = mine and not mine.bad and beyond(known, mine)

	-- Restores a claim that Redis forgot.
	local function put_back()
		local r = mine or {}
		r.since = str(now)
		raise(r, 'ceiling', arg.used)
		own_record(known, r, arg.ownership, arg.generation, '', arg.floor)
		all[known] = r
		return r
	end
	local keeps = (move or not usable(known)) and arg.resume == 'now' and known ~= '' and
		known ~= arg.leaving and forgotten(mine, arg.generation) and not is_beyond
	if keeps then put_back() end	-- it uses the known ID until it has another
	if known ~= '' and not move and not keeps and known ~= arg.leaving and spare ~= known then
		if not forgotten(mine, arg.generation) then
			if not is_mine then return lost(known, mine) end
		elseif is_beyond then
			return is_beyond
		elseif usable(known) and arg.resume ~= 'record' then
			local r = put_back()
			if settling and arg.resume ~= 'now' then
				-- reserved for it, unless an owner with a higher generation comes
				r.instance = ''
				put(known, r)
				return unsettled()
			end
			return yours(usable(known), r)
		else
			all[known] = leave_used(known, mine)
		end
	end

	if spare or former then
		local at = spare or former
		local r = all[at]

		if beyond(at, r) then return beyond(at, r) end
		if settling and (same_boot(r) or was_silent(r)) then
			return unsettled()
		elseif spare and same_boot(r) then
			return give(usable(at), r, num(r.floor))
		elseif same_boot(r) or was_silent(r) then
			return give(usable(at), r, floor(r))
		end
		return watch(r)
	end
	if now < settled + num(arg.interval) then return unsettled(num(arg.interval)) end

	-- a new owner gets the lowest free ID that its clock reaches
	local owners, ahead, nearest = 0, 0, math.huge
	local function try(worker, is_free)
		local r = all[field(worker)]

		if not is_free or (move and field(worker) == known) then
			owners = owners + 1
		elseif floor(r) > num(arg.reach) then
			ahead = ahead + 1
			nearest = math.min(nearest, floor(r))
		else
			return give(worker, r, floor(r))
		end
	end

	if arg.wanted ~= '-1' then
		local r = all[field(arg.wanted)]
		if r and r.bad then return bad(field(arg.wanted), r) end
		-- the same name and the ID set: this server, set up again in a new directory
		return try(arg.wanted, free(r) or (r.name == arg.name and num(r.lease) == 0 and silent(r))) or
			(ahead > 0 and {'ahead', '0', '1', str(nearest)}) or
			{'taken', arg.wanted, r.name}
	end
	for worker = 0, arg.count - 1 do
		local answer = try(tostring(worker), free(all[field(worker)]))
		if answer then return answer end
	end
	return {'full', tostring(owners), tostring(ahead), ahead > 0 and str(nearest) or '0'}
end

-- The server is alive, and says what it has.  Arguments as for a claim: worker,
-- ownership, generation, floor, ceiling, used, resume, past.
function operations.mark()
	let_go_of_past()
	local at = field(arg.worker)
	local r = get(at)

	if r and r.bad then
		leave_used(at, r)
		return bad(at, r)
	elseif r and r.claim == arg.ownership then
		if r.token ~= arg.token and num(arg.starts) <= num(r.starts) then
			return lost(at, r)
		elseif r.token == arg.token and num(arg.n) <= num(r.n) then
			return {'late'}
		elseif r.revoked == '1' then
			return {'revoked'}
		elseif lapsed(r) then
			leave_used(at, r)
			return {'gone'}
		elseif beyond(at, r) then
			return beyond(at, r)
		end
		raise(r, 'ceiling', arg.used)
		own_record(at, r, r.claim, r.generation, r.era, r.floor)
	elseif forgotten(r, arg.generation) then
		if arg.resume ~= 'now' then
			leave_used(at, r)
			return {'gone'}
		elseif r and beyond(at, r) then
			return beyond(at, r)
		end
		r = r or {}
		r.since = str(now)
		raise(r, 'ceiling', arg.used)
		own_record(at, r, arg.ownership, arg.generation, '', arg.floor)
	else
		return lost(at, r)
	end
	return {'ok', r.ceiling}
end

-- The server makes no more keys with this ID.  Arguments: worker, ownership,
-- ceiling; exact, '1': no key is above that.
function operations.release()
	local at = field(arg.worker)
	local r = get(at)

	if not held(r) or r.bad or r.owner ~= arg.server or r.claim ~= arg.ownership then
		leave_ceiling(at, r, 0, arg.ceiling)
		return {'lost'}
	elseif r.token == arg.token and num(arg.n) <= num(r.n)
		or r.token ~= arg.token and num(arg.starts) <= num(r.starts)
		or not may_let_go(r) then
		return {'late'}
	end
	if arg.exact == '1' and same_boot(r) then
		r.lease, r.ceiling = '0', arg.ceiling
		raise(r, 'ceiling', r.floor)
	else
		raise(r, 'ceiling', arg.ceiling)
	end
	let_go(at, r)
	return {'ok'}
end

-- Does the caller use this ID, or is it about to release it?
local function in_use(r)
	return r.claim ~= '' and string.find(arg.own, r.claim, 1, true) ~= nil
end

-- An administrator frees an ID.  Arguments: worker; ownership, as list() told it;
-- own, the caller's ownerships; force, '1' or '0'.
function operations.free()
	local at = field(arg.worker)
	local r = get(at)

	if r and (r.bad == 'damaged' or not r.bad and beyond(at, r)) then
		-- its owner, if there is one, puts it back in the settling; another begins
		-- above the ceiling that cannot be read
		leave_ceiling(at, nil, 0, str(math.min(num(meta.top), num(arg.latest)) + num(meta.span)))
		local before = meta.span
		settle()
		raise(meta, 'span', before)
		return {'released', ''}
	elseif r and r.bad then
		return bad(at, r)
	elseif not held(r) or r.claim ~= arg.ownership then
		return {'free'}
	elseif in_use(r) then
		return {'own'}
	elseif silent(r) or (r.owner == arg.server and r.boot == arg.boot) then
		let_go(at, r)
		return {'released', r.name}
	elseif arg.force ~= '1' then
		return {'live', r.name, str(age(r))}
	end
	r.revoked = '1'
	put(at, r)
	return {'revoked', r.name}
end

-- A page of claims in the order of their worker IDs.  Arguments: from, the first
-- worker ID; count, of records at most; own, as above.
function operations.list()
	local from, count = num(arg.from), num(arg.count)
	local found = {}
	for at, r in pairs(records()) do
		local worker = tonumber(string.match(at, '^' .. arg.dc .. ':(%d+)$'))
		if worker and worker >= from and held(r) then
			table.insert(found, {worker, r})
		end
	end
	table.sort(found, function(a, b) return a[1] < b[1] end)

	local answer = {'list'}
	for i = 1, math.min(count, #found) do
		local worker, r = unpack(found[i])
		if r.bad then r = {floor = '0', name = '', since = '', seen = '', ceiling = '', claim = '', bad = r.bad} end
		local mine = not r.bad and in_use(r)
		local state = r.bad or beyond('', r) and 'damaged' or r.owner == arg.server and not mine and 'unused'
			or r.revoked == '1' and 'revoked' or lapsed(r) and 'lapsed'
			or num(r.lease) > 0 and age(r) > num(r.lease) and 'ended'
			or silent(r) and 'silent' or 'live'
		for _, value in ipairs({tostring(worker), r.name, r.since, r.seen, r.ceiling,
			num(r.lease) > 0 and str(num(r.lease) - age(r)) or '', state,
			mine and '1' or '0', r.claim}) do
			table.insert(answer, value)
		end
	end
	return answer
end

local answer = operations[arg.operation]()
put_fields('meta', meta, META_FIELDS)
return answer
