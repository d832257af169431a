-- registry.lua
--		Who holds which worker ID: the one script that Redis runs for snowid.
--
-- All of the registry is one hash, so that Redis keeps it, evicts it and loses
-- it as a whole:
--
--		meta		the layout that is pinned, by whom; the instance of Redis that
--					wrote last; until when only owners may claim; since when
--					calls have come without a gap
--		<dc>:<w>	the record of a worker ID (below)
--
-- A record outlives its owner, for its ceiling does: whoever gets the ID next
-- begins above it.  Fields, all strings, times in Unix ms:
--
--		v			version of the format
--		node		random ID of the owner; '': nobody's
--		name		what people call it
--		place		fingerprint of the owner's data directory; '': it has none of
--					its own
--		claim		random ID of this ownership
--		generation	of this ownership; those of an ID rise
--		era			the instance of Redis that gave the ownership out; '': its
--					owner put it back
--		instance	the one that its owner wrote to last
--		floor		its keys begin above
--		starts		the owner's count of starts; a lower one is refused
--		token		random ID of that start
--		boot		the machine's boot, as the owner saw it
--		n			number of the owner's write; one that is not higher came late
--		since seen	when it was claimed and last written, by Redis' clock
--		ceiling		the owner's keys do not go above, by the owner's clock
--		lease		ms; 0: for good
--		interval	ms; the longest that the owner goes unheard when all is well
--		revoked		'1': an administrator has taken it back
--		sum			checksum of all of these and of <dc>:<w>
--
-- A record that is not whole is damaged: it counts as taken, and stops nobody
-- but its owner.
--
-- What Redis may forget: any of its last writes, at any time.  It is another
-- instance then (another process, or a replica that was promoted), or all is
-- gone; with it an era begins, with a time of settling in which each owner that
-- is connected puts its claim back, and nobody gets an ID that it did not have.
-- Why two servers never share an ID, whatever Redis forgot:
--
--	- An ID changes hands only after its owner gave it up, lapsed, or was silent
--	  and released.
--	- Who gives an ID up says so in its own file first, and never resumes it: it
--	  tells here what it gave up, so that a record which says otherwise goes.
--	- Each ownership has a higher generation than those of the ID before: greater
--	  than the record's, and than the time.  So of two owners who both put a claim
--	  back, the one that is right wins.
--	- Who was given an ID in this era got it after the settling, when no owner who
--	  was connected missed it.
--	- Who does not know that it still has its ID, since it has just started or was
--	  cut off for a lease, waits for the settling to end where Redis may have
--	  forgotten who has it now.
--
-- So two servers use an ID only where one of them was cut off for a whole
-- settling and Redis lost its record; where a block copy, or a memory image,
-- runs beside an original that is cut off; or where an administrator released
-- the ID of a server that was merely cut off.
--
-- A place and a boot tell that the former process of the directory is gone, since
-- it held a lock on it: who comes next has the ID at once.  Who learns, while it
-- has an ID, that another one took it so, shares its place: it has none from then
-- on.  So servers of one place do not take the ID from each other for ever.
--
-- Clocks: "seen" and leases are counted by Redis' clock alone, a ceiling is
-- compared with keys alone.  A ceiling falls by its owner's release only, who
-- knows the exact one then.
--
-- ARGV: name, value, name, value ...  Of every call: version, operation, layout,
-- node, name, place, token, starts, n, interval, lease, boot, dc; and the
-- operation's own.  Answers with an array of strings, the outcome first.

local VERSION = '2'
local FIELDS = {'v', 'node', 'name', 'place', 'claim', 'generation', 'era', 'instance',
	'floor', 'starts', 'token', 'boot', 'n', 'since', 'seen', 'ceiling', 'lease',
	'interval', 'revoked'}
local META_FIELDS = {'v', 'instance', 'layout', 'pinned_by', 'since', 'span', 'heard', 'beat'}

-- A former life's keys that lie further ahead are not waited for.
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

-- The process and, where it was promoted, since when it is a master.
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
	'interval', 'span', 'heard', 'beat'}
local IDS = {node = 32, place = 48, claim = 16, token = 16}

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

-- A record; nil: there is none.  What cannot be read has "bad", the reason.
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

local function put(at, r)
	put_fields(at, r, FIELDS)
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
	return r ~= nil and (r.bad or r.node ~= '')
end

local meta = decode('meta', redis.call('HGET', key, 'meta'), META_FIELDS) or
	{instance = '', layout = '', pinned_by = '', since = '0', span = '0', heard = '0', beat = '0'}
if meta.bad then return bad('meta', meta) end

local function age(r)
	return now - num(r.seen)
end

-- What nobody could write while Redis was stalled or alone is no silence.
local function unheard(r)
	return now - math.max(num(r.seen), num(meta.heard))
end

-- A lease that ended a lease ago: Redis may have forgotten as much.
local function lapsed(r)
	return num(r.lease) > 0 and unheard(r) > 2 * num(r.lease)
end

-- Would the owner have been heard of?
local function silent(r)
	if num(r.lease) > 0 then return lapsed(r) end
	return unheard(r) > 2 * num(r.interval)
end

local function free(r)
	return not held(r) or not r.bad and (lapsed(r) or (r.revoked == '1' and silent(r)))
end

-- The keys of whoever gets the ID next begin above.
local function floor(r)
	if r == nil then return 0 end
	return num(r.ceiling) + (held(r) and num(r.lease) or 0)
end

-- "place": of the server that takes it away, so that its owner, if it lives,
-- learns whose that was.
local function let_go(at, r, place)
	r.ceiling = str(floor(r))
	r.node, r.claim, r.token, r.place, r.revoked, r.lease = '', '', '', place or '', '0', '0'
	put(at, r)
end

---- The registry itself: one layout, and what Redis may have forgotten

-- How long an owner may go unheard, and still make keys or come back.
local function span(its_interval, its_lease)
	return num(its_interval) + math.max(num(its_interval), num(its_lease))
end

if meta.layout ~= '' and meta.layout ~= arg.layout then
	return {'layout', meta.layout, meta.pinned_by}
end

local function pin_layout()
	if meta.layout == '' then
		meta.layout, meta.pinned_by = arg.layout, arg.name
		put_fields('meta', meta, META_FIELDS)
	end
end

-- Nobody gets an ID that it did not have, for a while.
local function settle()
	local longest = 0
	for _, r in pairs(records()) do
		if held(r) and not r.bad then longest = math.max(longest, span(r.interval, r.lease)) end
	end
	meta.since, meta.span = str(now), str(longest)
end

if meta.instance ~= instance then
	meta.instance = instance
	settle()
end
if now < num(meta.beat) then
	-- the clock was set back: what lies ahead of it happened just now
	for at, r in pairs(records()) do
		if not r.bad and (num(r.seen) > now or num(r.since) > now) then
			r.seen, r.since = str(math.min(now, num(r.seen))), str(math.min(now, num(r.since)))
			put(at, r)
		end
	end
	meta.heard = str(math.min(now, num(meta.heard)))
end
if num(meta.span) < span(arg.interval, arg.lease) then
	-- somebody is heard of even less often
	meta.span = str(span(arg.interval, arg.lease))
end
if math.abs(now - num(meta.beat)) > num(arg.interval) then
	-- nor does a jump of the clock pass for the time of settling
	if now < num(meta.since) or num(meta.beat) < num(meta.since) + num(meta.span) then
		meta.since = str(now)
	end
	meta.heard = str(now)
end
meta.since = str(math.min(now, num(meta.since)))
meta.beat = str(now)
put_fields('meta', meta, META_FIELDS)
local settled = num(meta.since) + num(meta.span)
local settling = now < settled

-- Who waits for the end of it with a claim comes before who has none.
local function unsettled(longer)
	local ends = settled + (longer or 0)
	return {'settling', str(ends - now), str(ends)}
end

-- The caller makes this record its own, with an ownership.
local function own_record(at, r, claim, generation, era, begin)
	if r.token ~= arg.token then r.boot = arg.boot end
	r.node, r.name, r.place, r.claim, r.generation, r.era, r.instance =
		arg.node, arg.name, arg.place, claim, generation, era, instance
	r.token, r.starts, r.n = arg.token, arg.starts, arg.n
	r.interval, r.lease, r.revoked = arg.interval, arg.lease, '0'
	r.since, r.seen, r.floor, r.ceiling = r.since or str(now), str(now), begin, r.ceiling or '0'
	raise(r, 'ceiling', arg.ceiling, r.floor)
	put(at, r)
	pin_layout()
end

-- Did Redis forget this generation?  Who was given the ID in this era was given
-- it after the settling, and is right.
local function forgotten(r, generation)
	return r == nil or not r.bad and r.era ~= instance and num(r.generation) < num(generation)
end

-- Up to where keys may have been made with the claim; of a former start it is
-- not known, and was not more than is asked for now.
local function used_or_asked()
	return num(arg.used) > 0 and arg.used or arg.reach or arg.ceiling
end

-- The claim is another's, or nobody's: at least the keys made with it count.
-- Says what the caller has in common with who took it.
local function lost(at, r)
	raise(r, 'ceiling', used_or_asked())
	raise(r, 'floor', arg.used)
	put(at, r)
	return {'lost', r.name, r.node == arg.node and 'node' or
		arg.place ~= '' and r.place == arg.place and 'place' or ''}
end

-- Whoever has the ID next begins above these keys, though the caller has no
-- record to say so.
local function leave_ceiling(at, r, generation, ceiling, used)
	r = r or {node = '', name = '', place = '', claim = '', era = '', instance = instance,
		generation = str(generation), floor = '0', starts = '0', token = '', boot = '', n = '0',
		since = str(now), seen = str(now), ceiling = '0', lease = '0', interval = '0', revoked = '0'}
	local before, begin = r.ceiling, r.floor
	raise(r, 'ceiling', ceiling, used)
	-- whoever has it now does not know of them as it releases
	if r.node ~= arg.node then raise(r, 'floor', ceiling, used) end
	if not r.bad and (r.ceiling ~= before or r.floor ~= begin) then put(at, r) end
	return r
end

-- The caller does not get its claim back, or not yet.
local function leave_used(at, r)
	return leave_ceiling(at, r, math.max(num(arg.generation) - 1, 0), used_or_asked(), arg.floor)
end

-- What this server gave up: <dc>:<w>/<ownership>/<ceiling>/<'1': that is exact>,
-- separated by spaces.
local function given_up()
	local past = {}
	for at, claim, ceiling, exact in string.gmatch(arg.past or '', '(%d+:%d+)/(%x+)/(%d+)/(%d)') do
		past[claim] = {at = at, ceiling = ceiling, exact = exact == '1'}
	end
	return past
end

-- It tells again what Redis may have forgotten.
local function let_go_of_past(all)
	for claim, past in pairs(given_up()) do
		local r = all and all[past.at] or not all and get(past.at) or nil

		if r and r.claim == claim then
			if past.exact then r.lease = '0' end
			raise(r, 'ceiling', past.ceiling)
			let_go(past.at, r)
		elseif not r or r.node ~= arg.node then
			r = leave_ceiling(past.at, r, 0, past.ceiling)
			if all then all[past.at] = r end
		end
	end
end

---- Operations

local operations = {}

-- A worker ID for this server.  Arguments: count of worker IDs; wanted, the one
-- that is set, or -1; fresh, a random ID for a new ownership; ceiling that is
-- asked for; reach, how far its keys may begin, in Unix ms; what it has or
-- remembers: known, <dc>:<w> or '', with ownership, generation, floor, and used,
-- the ceiling of the keys made with it, or 0; resume: 'now' where it uses that
-- and it cannot have lapsed, 'settled' where it cannot have lapsed, 'record'
-- where a record must say that it has not; unchanged, token and n of a record
-- that did not change for long enough, or ''; move, '1' to get another than what
-- it has; leaving, <dc>:<w> that it is about to release, or ''; past.  What it
-- has is not given up here: it is released when no more keys are made with it.
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
		if r.node == arg.node and r.token == arg.token and num(arg.n) <= num(r.n) then
			return {'late'}
		elseif r.node == arg.node and r.token ~= arg.token and num(arg.starts) < num(r.starts) then
			return {'older'}
		end
	end

	let_go_of_past(all)

	-- what it has, by the record
	local mine = known ~= '' and all[known] or nil
	if mine and mine.bad and not move then return bad(known, mine) end
	local is_mine = mine ~= nil and not mine.bad and mine.claim == arg.ownership
	if is_mine and mine.revoked == '1' and not move then return {'lost', mine.name, ''} end
	local own = is_mine and not move and known ~= arg.leaving and usable(known) and known

	-- What was answered and never used is another's to have; of a former life in
	-- this directory, one ID is kept.
	local spare, former
	for at, r in pairs(all) do
		local same_life = r.node == arg.node
		local same_place = arg.place ~= '' and r.place == arg.place and held(r) and not same_life
		local same_boot = r.token == arg.token or r.boot == arg.boot

		if r.bad or at == arg.leaving or (at == known and (is_mine or move)) then
			-- not now
		elseif same_life and not own and not move and usable(at) and r.revoked ~= '1' and not spare then
			spare = at
		elseif same_place and not own and not move and usable(at) and r.revoked ~= '1' and
			(same_boot or num(r.lease) == 0) and floor(r) <= num(arg.reach) + HOUR and
			(num(r.lease) == 0 or floor(r) <= num(arg.reach)) and
			(not former or (same_boot and all[former].boot ~= arg.boot)) then
			former = at
		elseif (same_life and (same_boot or silent(r))) or (same_place and same_boot) then
			let_go(at, r, same_place and arg.place)
		end
	end

	if own then
		raise(mine, 'ceiling', arg.used)
		local worker = usable(own)
		local again = mine.token == arg.token or
			(mine.boot == arg.boot and num(arg.starts) > num(mine.starts))

		-- somebody may have got it meanwhile, and Redis forgotten that
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

	-- what Redis lost is put back
	local function put_back()
		local r = mine or {}
		r.since = str(now)
		raise(r, 'ceiling', arg.used)
		own_record(known, r, arg.ownership, arg.generation, '', arg.floor)
		all[known] = r
		return r
	end
	if move and arg.resume == 'now' and known ~= '' and known ~= arg.leaving and
		forgotten(mine, arg.generation) then
		-- it goes on with that, until it has another
		put_back()
	end
	if known ~= '' and not move and known ~= arg.leaving and spare ~= known then
		if not forgotten(mine, arg.generation) then
			if not is_mine then return lost(known, mine) end
		elseif usable(known) and arg.resume ~= 'record' then
			local r = put_back()
			if settling and arg.resume ~= 'now' then
				-- kept for it, unless somebody with a higher generation comes
				r.instance = ''
				put(known, r)
				return unsettled()
			end
			return yours(usable(known), r)
		else
			all[known] = leave_used(known, mine)
		end
	end

	-- what was answered and never used, or was a former life's
	if spare or former then
		local at = spare or former
		local r = all[at]
		local same_boot = r.token == arg.token or r.boot == arg.boot

		if settling and (same_boot or was_silent(r)) then
			return unsettled()
		elseif spare and same_boot then
			return give(usable(at), r, num(r.floor))
		elseif same_boot or was_silent(r) then
			return give(usable(at), r, floor(r))
		end
		return watch(r)
	end
	if now < settled + num(arg.interval) then return unsettled(num(arg.interval)) end

	-- a new owner: the lowest free ID that its clock reaches
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
		-- the ID that is set, and the name: this server, in another directory
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

-- The server is there, and has what it says.  Arguments: worker; ownership,
-- generation, floor; ceiling that is asked for; used; resume; past.
function operations.mark()
	let_go_of_past()
	local at = field(arg.worker)
	local r = get(at)

	if r and r.bad then
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
		end
		raise(r, 'ceiling', arg.used)
		own_record(at, r, r.claim, r.generation, r.era, r.floor)
	elseif forgotten(r, arg.generation) then
		if arg.resume ~= 'now' then
			leave_used(at, r)
			return {'gone'}
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
-- ceiling; exact: '1' where no key is above that, '' where it is not known.
function operations.release()
	local at = field(arg.worker)
	local r = get(at)

	if not held(r) or r.bad or r.node ~= arg.node or r.claim ~= arg.ownership then
		leave_ceiling(at, r, 0, arg.ceiling)
		return {'lost'}
	elseif r.token == arg.token and num(arg.n) <= num(r.n)
		or r.token ~= arg.token and num(arg.starts) <= num(r.starts) then
		return {'late'}
	end
	if arg.exact == '1' then
		r.lease, r.ceiling = '0', arg.ceiling
		raise(r, 'ceiling', r.floor)
	else
		raise(r, 'ceiling', arg.ceiling)
	end
	let_go(at, r)
	return {'ok'}
end

-- Is this one of the caller's, which it uses or is about to release?
local function in_use(r)
	return r.claim ~= '' and string.find(arg.own, r.claim, 1, true) ~= nil
end

-- An administrator gives an ID back.  Arguments: worker; ownership as list() told
-- it; own, the ownerships that the caller has; force, '1'.
function operations.free()
	local at = field(arg.worker)
	local r = get(at)

	if r and r.bad == 'damaged' then
		-- its owner puts it back, if it has one
		redis.call('HDEL', key, at)
		settle()
		meta.span = str(math.max(num(meta.span), span(arg.interval, arg.lease)))
		put_fields('meta', meta, META_FIELDS)
		return {'released', ''}
	elseif r and r.bad then
		return bad(at, r)
	elseif not held(r) or r.claim ~= arg.ownership then
		return {'free'}
	elseif in_use(r) then
		return {'own'}
	elseif silent(r) or (r.node == arg.node and r.boot == arg.boot) then
		let_go(at, r)
		return {'released', r.name}
	elseif arg.force ~= '1' then
		return {'live', r.name, str(age(r))}
	end
	r.revoked = '1'
	put(at, r)
	return {'revoked', r.name}
end

-- Claims, a page of them in the order of their IDs.  Arguments: from, the worker
-- ID to begin with; count of records; own, as above.
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
		if r.bad then r = {name = '', since = '', seen = '', ceiling = '', claim = '', bad = r.bad} end
		local mine = not r.bad and in_use(r)
		local state = r.bad or r.node == arg.node and not mine and 'unused'
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

return operations[arg.operation]()
