-- registry.lua
--		Who holds which worker ID: the one script that Redis runs for snowid.
--
-- All of the registry is one hash, so that Redis keeps it, evicts it and loses
-- it as a whole:
--
--		meta		the layout that is pinned, by whom; the Redis process that
--					wrote last; until when only owners may claim; since when
--					calls have come without a gap
--		<dc>:<w>	the record of a worker ID (below)
--
-- A record outlives its owner, for its ceiling does: whoever gets the ID next
-- begins above it.  Fields, all strings, times in Unix ms:
--
--		node		random ID of the owner's data directory; '': nobody's
--		name		what people call it
--		claim		random ID of this ownership
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
--
-- Clocks: "seen" and leases are counted by Redis' clock alone, a ceiling is
-- compared with keys alone.  A ceiling falls by its owner's release only, who
-- knows the exact one then.
--
-- ARGV: operation, run_id of this Redis, layout, node, name, token, starts, n,
-- interval, lease, datacenter; then the operation's own.  Answers with an array
-- of strings, the outcome first.

local key = KEYS[1]
local op, run_id, layout, node, name, token, starts = unpack(ARGV, 1, 7)
local n, interval, lease, dc = unpack(ARGV, 8, 11)
local arg = {unpack(ARGV, 12)}

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function str(number)
	return string.format('%.0f', number)
end

local function num(s)
	return tonumber(s) or 0
end

-- Raises a field to the greatest of these.
local function raise(r, field, ...)
	for _, value in ipairs({...}) do
		if num(value) > num(r[field]) then r[field] = value end
	end
end

local function field(worker)
	return dc .. ':' .. worker
end

-- What is not ours is an error, rather than free.
local function decode(at, text)
	local ok, r = pcall(cjson.decode, text)
	if not ok or type(r) ~= 'table' or not (r.node or at == 'meta' and r.run_id) then
		error('the field "' .. at .. '" of the hash "' .. key .. '" is damaged', 0)
	end
	return r
end

local function get(at)
	local text = redis.call('HGET', key, at)
	if text then return decode(at, text) end
end

local function put(at, record)
	redis.call('HSET', key, at, cjson.encode(record))
end

local function held(r)
	return r ~= nil and r.node ~= ''
end

local function age(r)
	return now - num(r.seen)
end

-- What nobody could write while Redis was stalled or alone is no silence.
local meta = get('meta') or {}
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
	return not held(r) or lapsed(r) or (r.revoked == '1' and silent(r))
end

-- The keys of whoever gets the ID next begin above.
local function floor(r)
	if r == nil then return 0 end
	return num(r.ceiling) + (held(r) and num(r.lease) or 0)
end

local function let_go(at, r)
	r.ceiling = str(floor(r))
	r.node, r.claim, r.token, r.revoked, r.lease = '', '', '', '0', '0'
	put(at, r)
end

local function records()
	local flat = redis.call('HGETALL', key)
	local all = {}
	for i = 1, #flat, 2 do
		if flat[i] ~= 'meta' then all[flat[i]] = decode(flat[i], flat[i + 1]) end
	end
	return all
end

---- The registry itself: one layout, and what Redis may have forgotten

-- How long an owner may go unheard, and still make keys or come back.
local function span(its_interval, its_lease)
	return num(its_interval) + math.max(num(its_interval), num(its_lease))
end

if meta.layout and meta.layout ~= layout then
	return {'layout', meta.layout, meta.pinned_by}
end
if meta.run_id ~= run_id then
	local longest = 0
	for _, r in pairs(records()) do
		if held(r) then longest = math.max(longest, span(r.interval, r.lease)) end
	end
	meta.run_id, meta.since, meta.span = run_id, str(now), str(longest)
end
if now < num(meta.since) or num(meta.span) < span(interval, lease) then
	-- the clock was set back, or somebody is heard of even less often
	meta.since = str(math.min(now, num(meta.since)))
	meta.span = str(math.max(num(meta.span), span(interval, lease)))
end
if math.abs(now - num(meta.beat)) > num(interval) then meta.heard = str(now) end
meta.beat = str(now)
put('meta', meta)
local settled = num(meta.since) + num(meta.span)
local settling = now < settled

---- Operations

local operations = {}

-- A worker ID for this node.  Arguments: number of worker IDs; the one that is
-- wanted, or -1; boot; a random ID for a new ownership; the ceiling that is
-- asked for; how far the node's keys may begin, in Unix ms; what it has or
-- remembers: <dc>:<w> or '', the ownership, '1' if that cannot have lapsed, the
-- ceiling that was used with it, or 0; the token and n of a record that did not
-- change for long enough, or ''; '1' to get another than what it has; <dc>:<w>
-- that it is about to release, or ''.  What it has is not given up here: it is
-- released when the node makes no more keys with it.
function operations.claim()
	local count, wanted, boot, fresh, ceiling, reach, known, ownership, owner,
		used, unchanged, move, leaving = unpack(arg)
	local all = records()

	local function take(worker, r, claim, begin)
		r.node, r.name, r.claim, r.token, r.starts, r.boot =
			node, name, claim, token, starts, boot
		r.n, r.interval, r.lease, r.revoked, r.seen = n, interval, lease, '0', str(now)
		r.floor, r.ceiling = str(begin), r.ceiling or '0'
		raise(r, 'ceiling', ceiling, r.floor)
		put(field(worker), r)
		if not meta.layout then
			meta.layout, meta.pinned_by = layout, name
			put('meta', meta)
		end
		return {'yours', worker, claim, r.floor, r.ceiling}
	end

	-- the worker ID of a record that this node may have
	local function usable(at)
		local worker = string.match(at, '^' .. dc .. ':(%d+)$')
		return worker and (wanted == '-1' or wanted == worker) and worker
	end

	local function unsettled()
		return {'settling', str(settled - now), str(settled)}
	end

	-- the node's own records: one is kept, what a crash left behind is not
	local own
	for at, r in pairs(all) do
		if r.node == node and r.token == token and num(n) <= num(r.n) then
			return {'late'}
		elseif r.node == node and r.token ~= token and num(starts) < num(r.starts) then
			return {'older'}
		elseif r.node == node and at ~= leaving and not (move == '1' and at == known) then
			if r.revoked == '1' and at == known then
				return {'lost', r.name, '0'}
			elseif usable(at) and r.revoked ~= '1' and (not own or at == known) then
				own = at
			end
		end
	end
	for at, r in pairs(all) do
		local proven = r.token == token or r.boot == boot or silent(r)

		if r.node == node and at ~= own and at ~= known and at ~= leaving and proven then
			raise(r, 'ceiling', ceiling, used)
			let_go(at, r)
		end
	end
	if own then
		local r = all[own]
		local again = r.token == token or (r.boot == boot and num(starts) > num(r.starts))

		if lapsed(r) and settling then
			return unsettled()
		elseif again then
			if own == known then raise(r, 'ceiling', used) end
			return take(usable(own), r, r.claim, num(r.floor))
		elseif lapsed(r) or (unchanged == r.token .. '/' .. r.n and silent(r)) then
			return take(usable(own), r, fresh, floor(r))
		end
		return {'silence', r.token .. '/' .. r.n, r.interval, r.lease}
	end

	-- owners first: what Redis lost is put back
	if known ~= '' and move ~= '1' then
		local r = all[known]

		if r == nil and owner == '1' and usable(known) then
			return take(usable(known), {since = str(now), ceiling = used}, ownership, 0)
		elseif r and r.node ~= node then
			raise(r, 'ceiling', used)
			raise(r, 'floor', used)
			put(known, r)
			return {'lost', r.name, '0'}
		end
	end
	if settling then return unsettled() end

	-- a new owner: the lowest free ID that its clock reaches
	local owners, ahead, nearest = 0, 0, math.huge
	local function try(worker)
		local r = all[field(worker)]

		if not free(r) or (move == '1' and field(worker) == known) then
			owners = owners + 1
		elseif floor(r) > num(reach) then
			ahead = ahead + 1
			nearest = math.min(nearest, floor(r))
		else
			local begin = floor(r)
			r = r or {}
			r.since = str(now)
			return take(worker, r, fresh, begin)
		end
	end

	if wanted ~= '-1' then
		local r = all[field(wanted)]
		return try(wanted) or
			(ahead > 0 and {'ahead', '0', '1', str(nearest)}) or
			{'taken', wanted, r.name}
	end
	for worker = 0, count - 1 do
		local answer = try(tostring(worker))
		if answer then return answer end
	end
	return {'full', tostring(owners), tostring(ahead), ahead > 0 and str(nearest) or '0'}
end

-- The node is there.  Arguments: worker ID, the ceiling that is asked for, the
-- one that was used.
function operations.mark()
	local worker, ceiling, used = unpack(arg)
	local r = get(field(worker))

	if r == nil then
		return {'gone'}
	elseif r.node ~= node or r.token ~= token then
		raise(r, 'ceiling', used)
		raise(r, 'floor', used)
		put(field(worker), r)
		return {'lost', r.name, r.node == node and '1' or '0'}
	elseif r.revoked == '1' then
		return {'revoked'}
	elseif lapsed(r) then
		return {'gone'}
	elseif num(n) <= num(r.n) then
		return {'late'}
	end
	r.n, r.name, r.interval, r.lease, r.seen = n, name, interval, lease, str(now)
	raise(r, 'ceiling', ceiling, used)
	put(field(worker), r)
	return {'ok', r.ceiling}
end

-- The node makes no more keys with this ID.  Arguments: worker ID, ownership,
-- the exact ceiling, or '' where it is not known.
function operations.release()
	local worker, ownership, ceiling = unpack(arg)
	local r = get(field(worker))

	if not held(r) or r.node ~= node or r.claim ~= ownership then
		return {'lost'}
	elseif r.token == token and num(n) <= num(r.n)
		or r.token ~= token and num(starts) <= num(r.starts) then
		return {'late'}
	end
	if ceiling ~= '' then r.lease, r.ceiling = '0', ceiling end
	let_go(field(worker), r)
	return {'ok'}
end

-- An administrator gives an ID back.  Arguments: worker ID, its ownership as
-- list() told it, '1' by force.
function operations.free()
	local worker, ownership, force = unpack(arg)
	local r = get(field(worker))

	if not held(r) or r.claim ~= ownership then
		return {'free'}
	elseif r.node == node then
		return {'own'}
	elseif silent(r) then
		let_go(field(worker), r)
		return {'released', r.name}
	elseif force ~= '1' then
		return {'live', r.name, str(age(r))}
	end
	r.revoked = '1'
	put(field(worker), r)
	return {'revoked', r.name}
end

-- Claims, a page of them in the order of their IDs.  Arguments: worker ID to
-- begin with, number of records.
function operations.list()
	local from, count = num(arg[1]), num(arg[2])
	local found = {}
	for at, r in pairs(records()) do
		local worker = tonumber(string.match(at, '^' .. dc .. ':(%d+)$'))
		if worker and worker >= from and held(r) then
			table.insert(found, {worker, r})
		end
	end
	table.sort(found, function(a, b) return a[1] < b[1] end)

	local answer = {'list'}
	for i = 1, math.min(count, #found) do
		local worker, r = unpack(found[i])
		local state = r.revoked == '1' and 'revoked' or lapsed(r) and 'lapsed'
			or num(r.lease) > 0 and age(r) > num(r.lease) and 'ended'
			or silent(r) and 'silent' or 'live'
		for _, value in ipairs({tostring(worker), r.name, r.since, r.seen, r.ceiling,
			num(r.lease) > 0 and str(num(r.lease) - age(r)) or '', state,
			r.node == node and '1' or '0', r.claim}) do
			table.insert(answer, value)
		end
	end
	return answer
end

return operations[op]()
