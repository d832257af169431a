-- registry.lua
--		Who holds which worker ID: the one script that Redis runs for snowid.
--
-- All of the registry is one hash, so that Redis keeps it, evicts it and loses
-- it as a whole:
--
--		meta		the layout that is pinned, by whom; the Redis process that
--					wrote last; until when only owners may claim
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
--		n			number of the owner's write; a lower one came late
--		since seen	when it was claimed and last written, by Redis' clock
--		ceiling		the owner's keys do not go above, by the owner's clock
--		lease		ms; 0: for good
--		interval	ms between the owner's marks
--		revoked		'1': an administrator has taken it back
--
-- Clocks: "seen" and leases are counted by Redis' clock alone, a ceiling is
-- compared with keys alone.  A ceiling falls by its owner's clean release only.
--
-- ARGV: operation, run_id of this Redis, layout, node, name, token, n, interval,
-- lease, datacenter; then the operation's own.  Answers with an array of
-- strings, the outcome first.

local key = KEYS[1]
local op, run_id, layout, node, name, token = unpack(ARGV, 1, 6)
local n, interval, lease, dc = unpack(ARGV, 7, 10)
local arg = {unpack(ARGV, 11)}

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function str(number)
	return string.format('%.0f', number)
end

local function num(s)
	return tonumber(s) or 0
end

local function highest(a, b)
	return num(a) >= num(b) and a or b
end

local function field(worker)
	return dc .. ':' .. worker
end

local function get(at)
	local text = redis.call('HGET', key, at)
	if text then return cjson.decode(text) end
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

-- A lease that ended a lease ago: Redis may have forgotten as much.
local function lapsed(r)
	return num(r.lease) > 0 and age(r) > 2 * num(r.lease)
end

-- Would the owner have been heard of?
local function silent(r)
	if num(r.lease) > 0 then return lapsed(r) end
	return age(r) > 2 * num(r.interval)
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
		if flat[i] ~= 'meta' then all[flat[i]] = cjson.decode(flat[i + 1]) end
	end
	return all
end

---- The registry itself: one layout, and what Redis may have forgotten

local meta = get('meta')
if meta and meta.layout ~= layout then
	return {'layout', meta.layout, meta.pinned_by}
end
if not meta or meta.run_id ~= run_id then
	local longest = num(interval)
	for _, r in pairs(records()) do
		if held(r) then longest = math.max(longest, num(r.interval)) end
	end
	meta = {layout = layout, pinned_by = meta and meta.pinned_by or name,
		run_id = run_id, settling_since = str(now),
		settled = str(now + 2 * longest)}
	put('meta', meta)
end
local settling = now < num(meta.settled)
if settling and num(meta.settling_since) + 2 * num(interval) > num(meta.settled) then
	meta.settled = str(num(meta.settling_since) + 2 * num(interval))
	put('meta', meta)
end

---- Operations

local operations = {}

-- A worker ID for this node.  Arguments: number of worker IDs; the one that is
-- wanted, or -1; starts; boot; a random ID for a new ownership; the ceiling
-- that is asked for; how far the node's keys may begin, in Unix ms; what it
-- remembers: <dc>:<w> or '', the ownership, '1' if that cannot have lapsed, the
-- ceiling that was used with it; the token and n of a record that did not
-- change for long enough, or ''; '1' to move away from the remembered ID, which
-- stays the node's until it is released.
function operations.claim()
	local count, wanted, starts, boot, fresh, ceiling, reach,
		remembered, ownership, owner, used, unchanged, move = unpack(arg)
	local all = records()

	local function take(worker, r, claim, begin)
		r.node, r.name, r.claim, r.token, r.starts, r.boot =
			node, name, claim, token, starts, boot
		r.n, r.interval, r.lease, r.revoked, r.seen = n, interval, lease, '0', str(now)
		r.floor = str(begin)
		r.ceiling = str(math.max(num(r.ceiling), num(ceiling), begin))
		put(field(worker), r)
		return {'yours', worker, claim, r.floor, r.ceiling}
	end

	-- the worker ID of a record that this node may have
	local function usable(at)
		local worker = string.match(at, '^' .. dc .. ':(%d+)$')
		return worker and (wanted == '-1' or wanted == worker) and worker
	end

	local function unsettled()
		return {'settling', str(num(meta.settled) - now), meta.settled}
	end

	-- the node's own records: one is kept, what a crash or a change of the
	-- settings left behind is not
	local own
	local staying = move == '1' and remembered or ''
	for at, r in pairs(all) do
		if r.node == node and at ~= staying then
			if r.token ~= token and num(starts) < num(r.starts) then
				return {'older'}
			elseif usable(at) and r.revoked ~= '1' and (not own or at == remembered) then
				own = at
			end
		end
	end
	for at, r in pairs(all) do
		local proven = r.token == token or r.boot == boot or silent(r)

		if r.node == node and at ~= staying and at ~= own and proven then
			r.ceiling = highest(r.ceiling, ceiling)
			let_go(at, r)
			if at == remembered then remembered = '' end
		end
	end
	if own then
		local r = all[own]
		local again = r.token == token or (r.boot == boot and num(starts) > num(r.starts))

		if lapsed(r) and settling then
			return unsettled()
		elseif lapsed(r) or again then
			return take(usable(own), r, r.claim, num(r.floor))
		elseif unchanged == r.token .. '/' .. r.n then
			return take(usable(own), r, fresh, floor(r))
		end
		return {'silence', r.token .. '/' .. r.n, r.interval, r.lease}
	end

	-- owners first: what Redis lost is put back
	if remembered ~= '' and move ~= '1' then
		local r = all[remembered]

		if r == nil and owner == '1' and usable(remembered) then
			return take(usable(remembered), {since = str(now)}, ownership, 0)
		elseif r then
			r.ceiling = highest(r.ceiling, used)
			put(remembered, r)
			return {'lost', r.name, '0'}
		end
	end
	if settling then return unsettled() end

	-- a new owner: the lowest free ID that its clock reaches
	local owners, ahead, nearest = 0, 0, math.huge
	local function try(worker)
		local r = all[field(worker)]

		if not free(r) or (move == '1' and field(worker) == remembered) then
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
			(ahead > 0 and {'ahead', wanted, str(nearest)}) or
			{'taken', wanted, r.name, str(age(r))}
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
		r.ceiling = highest(r.ceiling, used)
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
	r.ceiling = highest(r.ceiling, ceiling)
	put(field(worker), r)
	return {'ok', r.ceiling}
end

-- The node makes no more keys with this ID.  Arguments: worker ID, the exact
-- ceiling.
function operations.release()
	local worker, ceiling = unpack(arg)
	local r = get(field(worker))

	if not held(r) or r.node ~= node or r.token ~= token then
		return {'lost', r and r.name or '', '0'}
	elseif num(n) <= num(r.n) then
		return {'late'}
	end
	r.lease, r.ceiling = '0', ceiling
	let_go(field(worker), r)
	return {'ok', ceiling}
end

-- An administrator gives an ID back.  Arguments: worker ID, '1' by force.
function operations.free()
	local worker, force = unpack(arg)
	local r = get(field(worker))

	if not held(r) then
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
			or silent(r) and 'silent' or 'live'
		for _, value in ipairs({tostring(worker), r.name, r.since, r.seen, r.ceiling,
			num(r.lease) > 0 and str(num(r.lease) - age(r)) or '', state,
			r.node == node and '1' or '0'}) do
			table.insert(answer, value)
		end
	end
	return answer
end

return operations[op]()
