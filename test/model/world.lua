-- world.lua
--		Machines, network, administrators and time; and what must never happen.
--
-- Runs one schedule: a list of steps {at, name, arguments...}, each on top of
-- what servers do by themselves.  The same list always gives the same run.

local Redis, source = ...

local max, min, floor = math.max, math.min, math.floor
local FOREVER = math.huge

local MARK = 5000				-- how often a claim is marked, in ms

local world = {KILLED = {}, base = 1700000000000, trace = false, MARK = MARK}

local protocol = assert(source('protocol'))(world)
local Server = assert(source('server'))(world, protocol)
world.protocol = protocol
local at = protocol.at

local function copy_of(t)
	local copy = {}
	for k, v in pairs(t) do copy[k] = v end
	return copy
end

---- Reports

function world.say(text)
	print(string.format('    %9.3f  %s', world.now / 1000, text))
end

-- A fault that was found; the first of a schedule counts.
function world.fault(kind, text)
	if world.trace then world.say('*** ' .. kind .. ': ' .. text) end
	if not world.found then world.found, world.found_text = kind, text end
end

function world.random_id()
	world.ids = world.ids + 1
	return string.format('%08x%08x', (world.ids * 2654435761) % 4294967296, world.ids)
end

---- Keys that were made

-- Each ownership's pieces: contiguous units, the true time at which they were
-- made, and when the server's last call before was carried out.

-- The cases that are admitted.  V and Y are two ownerships of one ID, "i" and "k" the
-- pieces that overlap.

-- When V was heard last before Y was given out; nil: V was given out later.
local function heard_before(vo, yo)
	local seen = yo.seen[vo]
	return seen and seen.contact
end

local function is_whole_settling(o, ms)
	return ms >= o.interval + max(o.interval, o.lease)
end

-- A1: V was cut off for a whole settling, and Redis lost its record, or that of the registry and
-- with it its name; or it used the old one of two masters for so long, and did not wait for
-- replicas.
local function was_forgotten(vo, yo)
	local seen = vo.by_old and {contact = -1, lost = vo.by_old} or yo.seen[vo]
	local lost = seen and (seen.lost or vo.registry ~= yo.registry and vo.unnamed)
	return lost and seen.contact < lost and is_whole_settling(vo, yo.at - lost)
end

-- The same, where Y is from before V, was released, and put its claim back after the settling.
local function was_forgotten_for_former(v, i, y, k)
	local lost = v.own.lost
	return lost and y.own.at < v.own.at and v.contact[i] < lost and
		y.started[k] >= lost and is_whole_settling(v.own, y.claimed[k] - lost)
end

-- Y started without Redis, and V was not heard since Redis lost its record.
local function is_unknown_to(v, i, y, k)
	return y.went_on[k] and v.contact[i] < (v.own.lost or -1)
end

-- A2: V and Y are copies of one disk, and one of them is cut off, or was not heard
-- since its start, or since Redis lost its record, and the other started without Redis.  Or
-- a copy got V's ID since V was cut off, and gave it back; or it let go of V's while V was cut off.
-- Or Y had it from the old one of two masters, and V was not heard since Y came to the other.
local function is_block_copy(v, i, y, k)
	local contact, copied = heard_before(v.own, y.own), v.own.copied_at
	if copied and v.contact[i] <= copied and copied <= y.own.at then return true end
	if v.block_kin[i] and contact and v.contact[i] <= contact and y.own.at - contact >= 2 * v.own.interval then
		return true
	end
	return v.block_kin[i] and v.block_kin[i] == y.block_kin[k] and v.s ~= y.s and
		(v.contact[i] < v.started[i] or y.contact[k] < y.started[k] or
		 v.at[i] - v.contact[i] >= 2 * v.own.interval or y.at[k] - y.contact[k] >= 2 * y.own.interval or
		 is_unknown_to(v, i, y, k) or is_unknown_to(y, k, v, i) or
		 -- cut off when the other one got the ID, and not heard since it made the key
		 y.s.cut_kin and y.s.cut_kin[v.s] and
		 (y.went_on[k] or v.at[i] > y.s.cut_kin[v.s] and v.contact[i] <= y.claimed[k]) or
		 y.own.joined_at and v.contact[i] <= y.own.joined_at and y.own.joined_at <= y.at[k])
end

-- A3: V was cut off when an administrator released its ID; or its record was damaged then,
-- and nobody knew any more that its keys were ahead of the clock.
local function was_released(v, i, y)
	local contact, freed = heard_before(v.own, y.own), v.own.freed
	local forgotten = v.own.forgotten_at
	if forgotten and v.at[i] <= forgotten and forgotten <= y.own.at and v.hi[i] > world.base + forgotten then
		return true
	end
	return contact and freed and contact <= freed and freed <= y.own.at and
		y.own.at - contact >= 2 * v.own.interval and v.at[i] > contact
end

-- A4: V was not heard since it was resumed from an image of its memory; or V and Y
-- are of one image, and V was not heard since Y was started or got the ID, or was heard
-- after calls without answers, or since Redis forgot V.
local function is_memory_image(v, i, y, k)
	local image = v.memory_kin[i]
	if not image then return false end
	return v.contact[i] <= v.image_at[i] and (y.memory_kin[k] == image or y.own.at > v.image_at[i]) or
		y.memory_kin[k] == image and
		v.contact[i] <= max(y.claimed[k], y.started[k], y.first[k], v.own.lost or -1)
end

-- A5: they are one server's, from before it was set back to a snapshot; or before
-- it was restored, and Redis had not heard of them: a server that has to wait for
-- silence says nothing of its keys.  Those that were ahead of the clock may be another's, too,
-- that got the ID since.
local function was_set_back(a, i, b, k)
	local old, at, ends, new = a, a.at[i], a.hi[i], b
	if b.at[k] < at then old, at, ends, new = b, b.at[k], b.hi[k], a end
	local restored = old.s.restored_at
	return a.s == b.s and a.s.reverted_at and at <= a.s.reverted_at or
		restored and at <= restored and (old.own.heard_keys or -1) <= at and
		(a.s == b.s or new.own.at >= restored and ends > world.base + restored)
end

-- A6: a hash from before V's claim was put back in the same instance of Redis, and Y got the
-- ID before V was heard again; or V took it back, and Y was not heard since, or V was not.
local function was_put_back(v, i, y, k)
	local put, back = v.own.put_at, v.own.back_at
	return put and put <= y.claimed[k] and
		(v.contact[i] <= put or back and y.claimed[k] <= back and (y.contact[k] <= back or v.contact[i] <= back))
end

-- Is V's overlap with Y one that the design admits?
local function admitted(v, i, y, k)
	local vo, yo = v.own, y.own
	if vo.left == v.s and v.at[i] > vo.left_at then
		return nil				-- its server gave it up by itself
	elseif is_memory_image(v, i, y, k) then
		return 'A4'
	elseif is_block_copy(v, i, y, k) then
		return 'A2'
	elseif was_put_back(v, i, y, k) then
		return 'A6'
	elseif was_forgotten_for_former(v, i, y, k) then
		return 'A1'
	elseif v.contact[i] > yo.at and not (vo.lease == 0 and (yo.lost or -1) > yo.at and
		(v.started[i] <= yo.at or v.went_on[i])) then
		-- V has had an answer since.  Unless Redis forgot Y, too: then V learns of Y when
		-- Y was heard.  A lease that was cut off for so long has lapsed, whatever Redis says;
		-- and a server that has just started asks first.
		return nil
	end
	return was_released(v, i, y) and 'A3' or was_forgotten(vo, yo) and 'A1' or nil
end

local function overlap(a, i, b, k)
	local case = admitted(a, i, b, k) or admitted(b, k, a, i) or was_set_back(a, i, b, k) and 'A5'
	if case then
		a.known = a.known or {}
		if not a.known[b] then
			world.cases[case] = (world.cases[case] or 0) + 1
			if world.trace then
				world.say(string.format('(%s: servers %d and %d have both made keys as %d)', case, a.s.id, b.s.id, a.worker))
			end
		end
		a.known[b] = true
		return
	end
	world.fault('overlap', string.format(
		'server %d made %d..%d as %d at %.3f (ownership %s), server %d made %d..%d at %.3f (ownership %s)',
		a.s.id, a.lo[i], a.hi[i], a.worker, a.at[i] / 1000, a.ownership,
		b.s.id, b.lo[k], b.hi[k], b.at[k] / 1000, b.ownership))
end

function world.made(s, pair, lo, hi)
	if s.standby then world.fault('standby', 'server ' .. s.id .. ' makes keys in recovery') end
	local makers = world.makers[pair.worker]
	if not makers then
		makers = {}
		world.makers[pair.worker] = makers
	end
	local a
	for i = #makers, 1, -1 do
		if makers[i].s == s and makers[i].mem == s.mem and makers[i].ownership == pair.ownership and makers[i].home == s.home then
			a = makers[i]
			break
		end
	end
	if not a then
		a = {s = s, mem = s.mem, home = s.home, worker = pair.worker, ownership = pair.ownership,
			own = world.own[pair.ownership], n = 0,
			lo = {}, hi = {}, at = {}, contact = {}, first = {}, started = {}, claimed = {},
			memory_kin = {}, block_kin = {}, image_at = {}, went_on = {}}
		makers[#makers + 1] = a
	end
	local n = a.n + 1
	a.memory_kin[n], a.block_kin[n], a.image_at[n] = s.memory_kin, s.block_kin, s.image_at
	a.went_on[n] = s.mem.went_on
	if s.mem.went_on == 'unread' then
		world.fault('unread', 'server ' .. s.id .. ' continues, although it could not read an answer')
	end
	a.n, a.lo[n], a.hi[n], a.at[n], a.started[n] = n, lo, hi, world.now, s.start_time
	a.claimed[n], a.first[n] = s.claimed_at, s.first_contact
	-- a server that continues without Redis has had no answer since the start, except
	-- that it must wait for another's silence
	a.contact[n] = (s.mem.confirmed_once or s.mem.watched) and s.learned or -1
	for i = 1, #makers do
		local b = makers[i]
		if b ~= a and b.home == a.home and b.hi[b.n] >= lo and b.lo[1] <= hi then
			for k = b.n, 1, -1 do
				if b.lo[k] <= hi and lo <= b.hi[k] then
					overlap(a, n, b, k)
					break
				end
			end
		end
	end
end

-- The highest time that it takes from the registry, and tells it.
function world.latest(s)
	local m, ms = s.mem, Server.wall(s) + s.max_jump
	if m.entered then ms = max(ms, m.used) end
	if m.left then ms = max(ms, m.left.used) end
	if m.unwanted then ms = max(ms, m.unwanted_ms) end
	for _, past in ipairs(m.identity.past) do ms = max(ms, past.ceiling) end
	return max(ms + s.max_lead + s.reserve + max(s.lease, 2 * MARK), m.highest)
end

---- What servers tell

-- Of two masters, half of the servers use the old one for a while.
local function uses_old(s)
	return s.home == 1 and world.old and world.now < world.old_until and s.id % 2 == 0
end

function world.heard(s, op, answer)
	if uses_old(s) then return end
	if op ~= 'claim' and op ~= 'mark' then return end	-- others say nothing of what it has
	local outcome = answer[1]
	s.answered = answer.at
	-- only what is written shows the twin of an image: by its number, which is above the twin's after
	-- calls that wrote nothing, or whose answer was lost
	if outcome == 'yours' or outcome == 'ok' then
		if s.first_contact == FOREVER or s.mem.n > s.mem.written + 1 then s.first_contact = answer.at end
		s.mem.written = s.mem.n
	end
	s.mem.confirmed_once = s.mem.confirmed_once or s.mem.confirmed
end

function world.nonsense(s, op, outcome)
	world.fault('nonsense', 'server ' .. s.id .. ' takes the answer to ' .. op .. ' for nonsense: ' .. tostring(outcome))
end

-- A server that was connected all the time is to keep what it has.
function world.lost(s, m, why)
	s.losses = s.losses + 1
	-- on lease it does not wait for silence: an ID that it had for good before is its former self's
	if s.lease > 0 and why:match('uses a copy') then s.taken_for_copy = m.identity.id end
	local claim = m.state == 'held' and m.claim or m.known
	if not claim then return end
	local own = world.own[claim.ownership]
	-- of two owners after A1, the newer one keeps the ID, unless Redis' clock was
	-- set back between the two
	local record = world.redises[s.home]:record(at(claim.worker))
	local winner = record and world.own[record.claim]
	if own and winner and was_forgotten(winner, own) and winner.at <= world.clock_back and world.clock_back <= own.at and
		winner.generation > own.high then
		return
	end
	-- of two owners after A6, the later one
	if own and winner and own.put_at and winner.generation > own.generation and
		(own.put_at == winner.put_at or own.put_at <= winner.at and winner.at <= (own.back_at or FOREVER)) then
		return
	end
	if own and own.is_elsewhere or why:match('another datacenter') then return end
	-- one that it only remembers, of a datacenter that it has left by its settings
	if m.state ~= 'held' and floor(claim.worker / 1000) ~= s.dc then return end
	-- where Redis forgot that all, or "meta", was deleted, it is the registry of before
	if world.unflushed and why:match('another registry') then return end
	-- a server that was cut off takes nothing from one that was connected meanwhile
	if own and winner and winner ~= own and s.lease == 0 and not own.left and not own.freed and not s.restored and
		not (s.block_kin or s.memory_kin) and own.home == s.home and
		s.bad_at < world.now - 30000 and s.bad_at < winner.s.bad_at - 30000 then
		world.fault('thrown out', 'server ' .. s.id .. ' is connected, and loses ' .. claim.worker .. ' to one that was cut off: ' .. why)
	end
	-- a lease that Redis forgot while its server was not there, whatever it forgot later
	if own and own.lost_first and s.lease > 0 and s.start_time >= own.lost_first then return end
	-- the original of a copy by block, where Redis forgot nothing
	if s.block_kin and (s.is_copy or world.lost_at >= 0) or s.memory_kin or s.restored or not own or own.left or own.home ~= s.home or own.freed or own.damaged then return end
	if own.at >= s.bad_at and world.now > own.at then
		world.fault('thrown out', 'server ' .. s.id .. ', connected all the time, loses ' .. claim.worker .. ': ' .. why)
	end
end

---- Redis and the network

-- Those that are there; with "is_running", that are started, too.
local function each_server(is_running)
	local i = 0
	return function()
		while i < world.nservers do
			i = i + 1
			local s = world.servers[i]
			if s and (s.mem or not is_running) then return s end
		end
	end
end

-- Does the registry take a call for this ownership's?  Not after A1, by which it has
-- another name.
local function is_heard(o, redis)
	local meta = redis:record('meta')
	return meta and meta.name == o.registry or
		not (o.lost and o.contact < o.lost and is_whole_settling(o, world.now - o.lost))
end

-- Carries a call out.
local function execute(s, m, argv, op)
	local home = argv.home or s.home
	local redis = world.redises[home]
	local is_old = home == s.home and uses_old(s)
	if is_old then redis = world.old end
	redis.now = floor(world.base + world.now + world.redis_offset)
	local answer, err = redis:run('snowid', argv)
	if not answer then
		world.fault('script', 'the script fails: ' .. tostring(err))
		return {'error'}
	end
	answer.at = world.now
	if world.trace then
		world.say(string.format('Redis: %s of server %d: %s', op, s.id, table.concat(answer, ' ')))
	end
	local known = m.state == 'held' and m.claim or m.known
	if answer[1] == 'yours' and not world.is_one(s) and (not known or known.worker ~= argv.pairs + tonumber(answer[2])) then
		world.fault('two masters', 'server ' .. s.id .. ' gets ' .. answer[2] .. ' from one of two')
	end
	if home == 1 and not is_old and world.now < world.lag_until then world.unreplicated = world.unreplicated + 1 end
	if world.waits and (answer[1] == 'yours' or answer[1] == 'ok' and op == 'mark') and home == 1 and (is_old or world.now < world.lag_until) then
		return nil			-- snowid.redis_wait_replicas: no replica has it
	end
	if (op == 'claim' or op == 'mark') and answer[1] ~= 'late' and answer[1] ~= 'expired' then
		-- a call that comes late may be from before what it has now
		local claim = argv.claim
		local o = claim and world.own[claim.ownership]
		if not is_old and (claim or m.state ~= 'held') then s.contact = world.now end
		-- not that of a copy which does not have it
		if o and o.home == home and not is_old and is_heard(o, redis) and (s == o.s or m.state == 'held') then
			o.back_at = o.back_at or o.put_at and world.now
			o.contact, o.interval, o.lease = world.now, Server.interval_of(s), s.lease
			if answer[1] ~= 'silence' then o.heard_keys = world.now end
		end
		-- a call has what was given up, too; a copy's says nothing of its original
		for _, past in ipairs(m.identity.past) do
			o = world.own[past.ownership]
			if o and o.s == s and o.home == home and not is_old and is_heard(o, redis) then o.contact, o.heard_keys = world.now, world.now end
		end
	end
	local taken = answer[1] == 'yours' and answer[3] or op == 'mark' and answer[1] == 'ok' and m.claim.ownership
	if taken and not is_old and world.own[taken] and world.own[taken].revoked and world.own[taken].home == home then
		world.fault('not revoked', 'server ' .. s.id .. ' keeps what was revoked: ' .. taken)
	end
	local its = taken and world.own[taken]
	if its and is_old then
		its.by_old, its.is_elsewhere = world.old_since, true
	elseif its then
		its.joined_at = its.joined_at or its.by_old and world.now
		its.lost_first, its.is_elsewhere = nil, nil
	end
	if answer[1] == 'yours' or op == 'mark' and answer[1] == 'ok' then m.told_high = max(m.told_high or 0, tonumber(answer[#answer])) end
	if answer[1] == 'yours' then
		s.claimed_at = world.now
		s.cut_kin = {}
		for other in each_server() do
			if s.block_kin and other.block_kin == s.block_kin and world.now - other.contact >= 2 * Server.interval_of(other) then
				s.cut_kin[other] = other.contact > world.lost_at and other.contact or -1
			end
		end
		local ownership = answer[3]
		local o = world.own[ownership]
		if not o then
			o = {at = world.now, s = s, ownership = ownership, owner = m.identity.id, worker = argv.pairs + tonumber(answer[2]), contact = is_old and -1 or world.now,
				by_old = is_old and world.old_since, is_elsewhere = is_old,
				home = home, interval = Server.interval_of(s), lease = s.lease, seen = {}, generation = tonumber(answer[6]), registry = answer[7], high = 0}
			for other in each_server(true) do
				-- what others have brought back
				if other ~= s and other.home == home and other.contact > world.lost_at then o.high = max(o.high, other.mem.told_high or 0) end
			end
			for _, other in ipairs(world.owns) do
				if other.worker == o.worker and other.home == home then
					local its = other.s
					local contact = other.contact
					if its.home == home and its.dir.file and its.dir.file.id == other.owner and is_heard(other, redis) then contact = max(contact, its.contact) end
					o.seen[other] = {contact = contact, lost = other.lost}
					if s.cut_kin[its] then other.copied_at = other.copied_at or world.now end
					if its ~= s and its.mem and its.mem.state == 'held' and its.mem.claim.ownership == other.ownership and
						not Server.has_lapsed(its) and
						not (s.block_kin and s.block_kin == its.block_kin) and not its.memory_kin and world.now >= its.cut_until and
						other.contact > world.lost_at and world.now - other.contact < Server.interval_of(its) then
						world.fault('given twice', 'server ' .. s.id .. ' gets ' .. o.worker .. ', which server ' .. its.id .. ' has')
					end
				end
			end
			world.own[ownership] = o
			world.owns[#world.owns + 1] = o
		end
	elseif op == 'free' and not is_old and (answer[1] == 'released' or answer[1] == 'revoked') then
		local o = world.own[argv.frees]
		if answer[2] == '' then		-- a damaged record: any of these may have been its owner
			for _, its in ipairs(world.owns) do
				if its.worker == argv.worker then
					its.forgotten_at = world.now
					if its.damaged then its.freed = its.freed or world.now end
				end
			end
		end
		local owner = o and o.s.mem
		if owner and answer[1] == 'released' and owner.state == 'held' and owner.claim.ownership == argv.frees and
			not (s.memory_kin and s.memory_kin == o.s.memory_kin) and
			o.contact > world.lost_at and world.now - o.contact < 2 * Server.interval_of(o.s) then
			world.fault('released', 'server ' .. o.s.id .. ' uses what was released as silent: ' .. argv.frees)
		end
		if o then
			o.freed = world.now
			o.revoked = answer[1] == 'revoked'
		end
	end
	return answer
end

-- Does it see one master only?
function world.is_one(s)
	return not (world.sees_all and s.home == 1 and world.old and world.now < world.old_until and
		world.now >= s.cut_until and world.now >= world.redis_down_until)
end

local function later(at, what)
	local list = world.messages
	list[#list + 1] = what
	what.at = at
	if at < world.next_message then world.next_message = at end
end

-- next(answer, err) is called now, or later.
function world.call(s, m, argv, op, next)
	if s.fixed then world.fault('fixed', 'server ' .. s.id .. ' has a number, and calls Redis') end
	local fault = s.nfaults > 0 and s.faults[1]
	argv.home = s.home
	if fault then
		table.remove(s.faults, 1)
		s.nfaults = s.nfaults - 1
		s.bad_at = world.now + s.timeout
	end
	local cut = world.now < s.cut_until
	if not fault and not cut and world.now >= world.redis_down_until then
		local answer = execute(s, m, argv, op)
		if s.mem ~= m then return end
		return next(answer, not answer and 'replicas' or nil)
	end
	if world.now < world.redis_down_until then
		-- refused at once
		return next(nil, 'refused')
	end
	local pending = {next = next, reg = m.reg}
	m.call = pending
	local delay = fault and fault.delay or 0
	local ends = world.now + s.timeout
	if not cut then
		local kind = fault.kind
		local redis = world.redis_epoch
		local answers
		if kind == 'noanswer' then
			execute(s, m, argv, op)
		elseif kind == 'double' then
			answers = execute(s, m, argv, op)
			later(world.now + delay, {s = s, m = m, argv = argv, op = op, redis = redis})
		elseif kind == 'late' then
			later(world.now + delay, {s = s, m = m, argv = argv, op = op, redis = redis,
				pending = delay < s.timeout and pending})
			if delay < s.timeout then return end
		end
		if answers then
			later(world.now + min(delay, s.timeout - 1), {s = s, m = m, pending = pending, answer = answers, redis = redis})
			return
		end
	end
	later(ends, {s = s, m = m, pending = pending, failed = true})
end

-- An event under the server's crash point.
local function guarded(s, f, ...)
	if not s.crash_in then return f(s, ...) end
	local ok, err = pcall(f, s, ...)
	if not ok then
		if err ~= world.KILLED then error(err, 0) end
		Server.crash(s)
	end
end

local function resume(s, pending, answer, err)
	local m = s.mem
	m.call = nil
	pending.next(answer, err)
	-- what the process does next
	if s.mem == m and not m.call then s.registry_at = world.now end
end

local function deliver(message)
	local s, m = message.s, message.m
	local answer = message.answer
	if message.argv then
		if message.redis ~= world.redis_epoch or world.now < world.redis_down_until then
			message.failed = true	-- the connection is gone
		else
			answer = execute(s, m, message.argv, message.op)
		end
	end
	local pending = message.pending
	if not pending or s.mem ~= m or m.call ~= pending or m.reg ~= pending.reg then return end
	if world.now < s.paused_until then
		message.argv, message.answer = nil, answer
		return later(s.paused_until, message)
	end
	if message.failed then
		guarded(s, resume, pending, nil, 'timeout')
	else
		guarded(s, resume, pending, answer)
	end
end

-- Redis begins again, without its last writes.
local function new_instance(promoted)
	world.instances = world.instances + 1
	world.redis.info = string.format('run_id:%040x\r\nmaster_replid:%016x%024x\r\n',
		promoted and 1 or world.instances, world.instances, world.instances)
	world.redis_epoch = world.redis_epoch + 1
end

local function note_losses(before, is_put)
	world.lost_at = world.now
	for s in each_server() do s.first_contact = FOREVER end
	for field, text in pairs(before) do
		if world.redis.hash[field] ~= text then
			-- the ceiling of each that had it, perhaps
			for _, o in ipairs(world.owns) do
				if at(o.worker) == field:gsub('^mark:', '') and world.redises[o.home] == world.redis then
					if is_put then o.put_at, o.back_at, o.is_elsewhere = not o.back_at and o.put_at or world.now, nil, true end
					o.lost, o.lost_first, o.revoked = world.now, o.lost_first or world.now, false
				end
			end
		end
	end
end

---- Servers come into being

local function new_machine()
	world.boots = world.boots + 1
	return {boot = 'boot' .. world.boots}
end

local function unique(prefix)
	world.uniques = world.uniques + 1
	return string.format('%s%048x', prefix, world.uniques)
end

local function new_slot(id, like)
	local s = {
		id = id, name = 'server' .. id, machine = new_machine(), device = 'd' .. id,
		home = 1, lease = world.leases[id] or world.lease, timeout = 1000,
		max_lead = world.max_leads[id] or world.max_lead, max_jump = world.max_jumps[id] or 3600000, dc = world.dcs[id] or 0,
		reserve = world.reserve,
		offset = 0, lead = 0, busy = true, standby = false,
		contact = -1, learned = -1, claimed_at = -1, answered = -1, start_time = 0, first_contact = FOREVER, bad_at = -1, cut_until = -1, paused_until = -1,
		faults = {}, nfaults = 0, losses = 0, keeper_at = FOREVER, registry_at = FOREVER,
		dir = {place = unique(''), life = unique('life'), wal = {}},
	}
	if like then
		s.lease, s.offset, s.dc = like.lease, like.offset, like.dc
	end
	world.servers[id] = s
	return s
end

---- Steps

local steps = {}

local function running(i)
	local s = world.servers[i]
	return s and s.mem and s
end

function steps.start(i)
	local s = world.servers[i]
	if s and not s.mem and not s.gone then
		-- a lease ends two leases after its last renewal
		local short = s.lease > 0 and min(MARK, 5 * s.lease / 3) or min(MARK, 3000)
		if world.now - (s.stopped_at or -FOREVER) > short then s.bad_at = world.now end
		s.lease = s.next_lease or s.lease
		if s.next_home and s.next_home ~= s.home then
			s.home, s.moved, s.contact, s.learned, s.bad_at = s.next_home, true, -1, -1, world.now
		end
		Server.start(s)
	end
end

function steps.stop(i)
	local s = running(i)
	if s and world.now >= s.paused_until and not s.mem.keeper then
		s.stopped_at = world.now
		guarded(s, Server.stop)
	end
end

function steps.kill(i)
	local s = running(i)
	if s then
		s.stopped_at = world.now
		Server.crash(s)
	end
end

-- Killed when it has come so many points further.
function steps.kill_in(i, points)
	local s = running(i)
	if s then
		s.stopped_at = world.now
		s.crash_in = points
	end
end

function steps.restart(i)
	steps.kill(i)
	steps.start(i)
end

-- The machine goes down; and is up again with another clock, or the directory
-- is moved to another machine.
function steps.reboot(i, offset)
	local s = world.servers[i]
	if not s then return end
	steps.kill(i)
	s.machine = new_machine()
	s.offset = s.offset + offset
	s.bad_at = max(s.bad_at, world.now)
	steps.start(i)
end

function steps.kill_registry(i)
	local s = running(i)
	if s then guarded(s, Server.restart_registry) end
end

-- The keeper ends: it is asked to, or for an error.
function steps.kill_keeper(i, asked)
	local s = running(i)
	if s and not (asked == 1 and s.mem.keeper) then guarded(s, Server.restart_keeper, asked == 1) end
end

-- The whole machine stands still, and its wall clock does not.
function steps.pause(i, ms)
	local s = running(i)
	if s then
		Server.produce(s)
		s.paused_until = world.now + ms
		s.bad_at = s.paused_until
		s.unpaused = true
	end
end

-- The registry process alone stands still.
function steps.stall(i, ms)
	local s = running(i)
	if s then
		s.registry_at = max(s.registry_at, world.now + ms)
		s.bad_at = world.now + ms
	end
end

-- The keeper alone stands still.
function steps.stall_keeper(i, ms)
	local s = running(i)
	if s then s.keeper_at = max(s.keeper_at, world.now + ms) end
end

-- The keeper stands still when it has come so many points further.
function steps.hold(i, points, ms)
	local s = running(i)
	if s and not s.mem.keeper then s.hold_in, s.hold_for = points, ms end
end

function steps.cut(i, ms)
	local s = world.servers[i]
	if s then
		s.cut_until = world.now + ms
		s.bad_at = max(s.bad_at, s.cut_until + MARK)
	end
end

local function message_fault(kind)
	return function(i, delay)
		local s = world.servers[i]
		if s then
			s.faults[#s.faults + 1] = {kind = kind, delay = delay}
			s.nfaults = s.nfaults + 1
		end
	end
end

steps.drop = message_fault('drop')
steps.noanswer = message_fault('noanswer')
steps.late = message_fault('late')
steps.double = message_fault('double')

-- Redis is started again, and has forgotten what the last scripts wrote; or a
-- replica that lagged is promoted.
function steps.lose(scripts, promoted)
	local before = copy_of(world.redis.hash)
	world.redis:lose(scripts >= 0 and scripts or nil)
	if scripts < 0 then world.redis.flushed_at = 0 end
	if world.redis.nlog < (world.redis.flushed_at or 0) then world.unflushed = true end
	new_instance(promoted == 1)
	note_losses(before)
end

-- An answer that replicas have not confirmed counts as none.
local function unconfirmed(til, remainder)
	for s in each_server() do
		if s.home == 1 and s.id % 2 <= remainder then s.bad_at = max(s.bad_at, til + MARK) end
	end
end

-- Redis' replicas lag, and one of them is promoted; half of the servers use the old
-- master for so long.  All wait for replicas.
function steps.lag(ms)
	unconfirmed(world.now + ms, 1)
	world.lag_until, world.unreplicated = world.now + ms, 0
end

function steps.failover(ms)
	if world.redis ~= world.redises[1] then return end
	unconfirmed(world.now + ms, 0)
	world.old, world.old_since = Redis.new(world.redis.now), world.now
	world.old.hash, world.old.info, world.old_until = copy_of(world.redis.hash), world.redis.info, world.now + ms
	steps.lose(world.unreplicated or 0, 1)
	world.lag_until = -1
end

function steps.flush()
	local before = copy_of(world.redis.hash)
	world.redis:flush()
	world.redis.flushed_at = world.redis.nlog
	note_losses(before)
end

-- The hash of before is put back in the same instance: DUMP, and RESTORE.
function steps.save_hash()
	world.redis.saved = copy_of(world.redis.hash)
end

function steps.put_back()
	local redis, before = world.redis, copy_of(world.redis.hash)
	if not redis.saved then return end
	for field in pairs(before) do
		if not redis.saved[field] then redis:write(field, nil) end
	end
	for field, value in pairs(redis.saved) do redis:write(field, value) end
	redis:commit()
	note_losses(before, true)
end

-- As the manual says for a "meta" that is damaged.
function steps.unname()
	world.redis:write('meta', nil)
	world.redis:commit()
	world.redis.flushed_at = world.redis.nlog
	for _, o in ipairs(world.owns) do
		if world.redises[o.home] == world.redis then o.unnamed = world.now end
	end
end

-- A digit of a record is another.  That the ID was taken back, is gone with it.
function steps.damage(worker)
	local text = world.redis.hash[at(worker)]
	if text then
		world.redis:write(at(worker), text:sub(1, -3))
		world.redis:commit()
		for _, o in ipairs(world.owns) do
			if o.worker == worker then o.damaged, o.revoked = true, false end
		end
	end
end

function steps.redis_down(ms)
	world.redis_down_until = world.now + ms
	-- a lease ends meanwhile
	for s in each_server() do
		if s.lease > 0 then s.bad_at = max(s.bad_at, world.redis_down_until + MARK) end
	end
	world.redis_epoch = world.redis_epoch + 1
end

function steps.redis_clock(ms)
	if ms < 0 then world.clock_back = world.now end
	world.redis_offset = world.redis_offset + ms
end

function steps.clock(i, ms)
	local s = world.servers[i]
	if s then
		if s.mem then Server.produce(s) end
		s.offset = s.offset + ms
		if s.mem then s.mem.produced = Server.wall(s) end
	end
end

-- Clients make keys ahead of the clock, or none.
function steps.burst(i, lead)
	local s = world.servers[i]
	if s then s.lead = min(lead, s.max_lead) end
end

function steps.idle(i)
	local s = world.servers[i]
	if s then
		if s.mem then Server.produce(s) end
		s.busy = not s.busy
	end
end

function steps.new(i)
	if world.servers[i] then return end
	new_slot(i)
	steps.start(i)
end

-- A copy of the files, of a living or a dead directory.
function steps.copy_files(i, k)
	local from = world.servers[i]
	if not from or world.servers[k] or not from.dir.file then return end
	if from.mem then Server.produce(from) end
	local s = new_slot(k, from)
	s.dir.file, s.dir.wal = from.dir.file, copy_of(from.dir.wal)
end

-- A standby of it: the files, and the WAL as it comes.
function steps.standby(i, k)
	if world.servers[k] then return end
	steps.copy_files(i, k)
	local s = world.servers[k]
	if s and s.dir.file then
		s.standby, s.follows = true, i
		steps.start(k)
	end
end

function steps.replicate(k)
	local s = world.servers[k]
	local from = s and s.standby and world.servers[s.follows]
	if from then s.dir.wal = copy_of(from.dir.wal) end
end

function steps.promote(k)
	local s = world.servers[k]
	if s and s.standby then
		s.standby, s.follows = false, nil
		if s.mem then s.keeper_at = world.now end
	end
end

-- Place and life are the same.
local function copy_device(from, k)
	if from.mem then Server.produce(from) end
	local s = new_slot(k, from)
	s.dir = {place = from.dir.place, life = from.dir.life, file = from.dir.file, wal = copy_of(from.dir.wal)}
	s.name = from.name
	from.block_kin = from.block_kin or {}
	s.block_kin, s.is_copy = from.block_kin, true
	return s
end

-- A copy by block, on another machine.
function steps.copy_blocks(i, k)
	local from = world.servers[i]
	if not from or world.servers[k] or not from.dir.file then return end
	copy_device(from, k)
end

local function deep_copy(x, done)
	if type(x) ~= 'table' then return x end
	if done[x] then return done[x] end
	local copy = {}
	done[x] = copy
	for k, v in pairs(x) do copy[k] = deep_copy(v, done) end
	return copy
end

-- A memory image of the machine, resumed beside it.
function steps.copy_memory(i, k)
	local from = running(i)
	if not from or world.servers[k] or from.mem.call or from.crash_in or from.mem.keeper then return end
	local s = copy_device(from, k)
	s.machine, s.device, s.fixed, s.home, s.next_home = from.machine, from.device, from.fixed, from.home, from.next_home
	s.mem = deep_copy(from.mem, {})
	s.keeper_at, s.registry_at = from.keeper_at, from.registry_at
	s.start_time, s.contact, s.learned, s.answered = from.start_time, from.contact, from.learned, from.answered
	from.memory_kin = from.memory_kin or {}
	s.memory_kin = from.memory_kin
	from.image_at, s.image_at = world.now, world.now
	from.first_contact, s.first_contact = FOREVER, FOREVER
end

function steps.backup(i)
	local s = world.servers[i]
	if s and s.dir.file then s.backup = {file = s.dir.file, wal = copy_of(s.dir.wal)} end
end

-- The files of the backup are put back in place of the directory's.
function steps.restore(i)
	local s = world.servers[i]
	if not s or not s.backup then return end
	steps.kill(i)
	s.dir.life = unique('life')
	s.dir.file, s.dir.wal = s.backup.file, copy_of(s.backup.wal)
	s.restored, s.restored_at = true, world.now
end

-- The volume is set back to a snapshot.
function steps.revert(i)
	local s = world.servers[i]
	if not s or not s.backup then return end
	steps.kill(i)
	s.dir.file, s.dir.wal = s.backup.file, copy_of(s.backup.wal)
	s.restored, s.reverted_at = true, world.now
end

-- pg_rewind: the other's files but for pg_control's inode.
function steps.rewind(i, k)
	local s, from = world.servers[i], world.servers[k]
	if not s or not from or s == from or not from.dir.file then return end
	steps.kill(i)
	-- from a copy of itself that was never started, that is a revert
	if from.dir.file.place == s.dir.place then s.reverted_at = world.now end
	s.dir.file, s.dir.wal = from.dir.file, copy_of(from.dir.wal)
	s.restored, s.restored_at = true, world.now
end

-- A fresh directory in its place; the old one is gone for ever.
function steps.initdb(i)
	local s = world.servers[i]
	if not s then return end
	steps.kill(i)
	s.dir = {place = unique(''), life = unique('life'), wal = {}}
	s.restored, s.block_kin, s.memory_kin = true, nil, nil
	steps.start(i)
end

-- Gone for ever.
function steps.destroy(i)
	local s = world.servers[i]
	if not s then return end
	steps.kill(i)
	s.gone = true
end

local function ask(i, request)
	local s = running(i)
	if s then
		s.mem.request = request
		s.registry_at = min(s.registry_at, s.mem.call and FOREVER or world.now)
	end
end

function steps.release(i, worker, force)
	ask(i, {operation = 'release', worker = worker, force = force == 1})
end

function steps.reclaim(i) ask(i, {operation = 'reclaim'}) end

-- From the next start on: another registry.
function steps.move(i)
	local s = world.servers[i]
	if s then s.next_home = 3 - s.home end
end

-- The next steps concern the other Redis.
function steps.other_redis()
	world.redis = world.redis == world.redises[1] and world.redises[2] or world.redises[1]
end

-- Started with a worker ID of its settings, and with Redis again.
function steps.leave(i)
	local s = world.servers[i]
	if s and not s.standby then
		steps.kill(i)
		s.fixed, s.moved = true, true
		local claim = s.dir.file and s.dir.file.claim
		local own = claim and world.own[claim.ownership]
		if own then own.left, own.left_at = s, world.now end
		steps.start(i)
	end
end

function steps.come_back(i)
	local s = world.servers[i]
	if s and s.fixed then
		steps.kill(i)
		s.fixed = nil
		steps.start(i)
	end
end

-- Makes the server keys with this ID, now?  Has it no owner?
function steps.has(i, worker)
	local s = world.servers[i]
	local m = s and s.mem
	if not (m and m.open and m.pair.worker == worker and m.usable >= Server.wall(s) - 1000) then
		world.fault('expected', 'server ' .. i .. ' does not make keys as ' .. worker)
	end
end

function steps.vacant(worker)
	local r = world.redis:record(at(worker))
	if r and r.owner ~= '' then world.fault('expected', 'worker ID ' .. worker .. ' has an owner') end
end

-- By a reload.
local function setting(name)
	return function(i, value)
		local s = world.servers[i]
		if s then
			if s.mem then Server.produce(s) end
			s[name] = value
			s.lead = min(s.lead, s.max_lead)
		end
	end
end

steps.datacenter, steps.max_lead, steps.max_jump = setting('dc'), setting('max_lead'), setting('max_jump')

-- At the next start.
function steps.lease(i, ms)
	local s = world.servers[i]
	if s then s.next_lease = ms end
end

world.steps = steps

---- Time

local function keeper_event(s)
	s.keeper_at = FOREVER
	-- a turn that was held began before the answers of that time
	if not s.mem.keeper then s.turn_answered = s.answered end
	Server.keeper_turn(s)
	if not s.mem.keeper then s.learned = s.turn_answered end
end

local function registry_event(s)
	s.registry_at = FOREVER
	Server.registry_turn(s)
end

-- Runs until that time, all that servers do by themselves.
local function run_until(til)
	local servers = world.servers
	local guard = 0
	while true do
		local at, who, what = til, nil, nil
		for i = 1, world.nservers do
			local s = servers[i]
			if s and s.mem then
				local k, r = s.keeper_at, s.registry_at
				if k < s.paused_until then k = s.paused_until end
				if r < s.paused_until then r = s.paused_until end
				if k < at then at, who, what = k, s, keeper_event end
				if r < at and not s.mem.call then at, who, what = r, s, registry_event end
			end
		end
		if world.next_message < at then
			at, who = world.next_message, 0
		end
		if not who then break end
		if at > world.now then
			world.now, guard = at, 0
		else
			guard = guard + 1
			if guard > 500 then
				world.fault('loop', 'time stands still')
				return
			end
		end
		if who == 0 then
			local list, first = world.messages, nil
			for i = 1, #list do
				if list[i].at <= at then first = i break end
			end
			local message = table.remove(list, first)
			local nearest = FOREVER
			for i = 1, #list do nearest = min(nearest, list[i].at) end
			world.next_message = nearest
			deliver(message)
		else
			if who.unpaused then
				-- clients continue where they stood
				who.unpaused = nil
				who.mem.produced = Server.wall(who)
			end
			guarded(who, what)
		end
		if world.found and world.stop_at_fault then return end
	end
	world.now = max(world.now, til)
end

function world.step(step)
	local name = step[2]
	if world.trace then world.say('STEP ' .. world.describe(step)) end
	steps[name](step[3], step[4], step[5])
end

function world.describe(step)
	local text = step[2]
	for i = 3, #step do text = text .. ' ' .. tostring(step[i]) end
	return text
end

---- The end: all is healed, and then nobody waits and nothing leaks

-- Of one that cannot be read, nothing is known.
local function records(home)
	local all, redis = {}, world.redises[home]
	for at in pairs(redis.hash) do
		if at:match('^%d+:%d+$') then all[at] = redis:record(at) or {} end
	end
	return all
end

local function heal()
	world.redis_down_until, world.lag_until, world.old = -1, -1, nil
	for s in each_server() do
		s.cut_until, s.paused_until, s.crash_in, s.hold_in = -1, -1, nil, nil
		s.faults, s.nfaults, s.busy, s.losses = {}, 0, true, 0
		if s.mem then s.bad_at = max(s.bad_at, world.now + MARK) end
		if s.keeper_at == FOREVER and s.mem then s.keeper_at = world.now end
	end
end

-- Did Redis forget that the server let an ownership go, which no state file has noted?  Or was
-- that given by an answer that was lost, before the server left the ID?  The server's next
-- claim lets it go.
local function is_unused(s, o, ownership)
	for _, past in ipairs(s.mem.identity.past) do
		if past.ownership == ownership then return false end
		if past.worker == o.worker then return true end
	end
	return o.lost ~= nil
end

-- A server that lives and has another ID has left no record behind.
local function check_own_leaks()
	for home = 1, 2 do
		for at, r in pairs(records(home)) do
			local o = world.own[r.claim]
			local s = o and o.s
			if s and s.mem and not s.fixed and s.home == home and s.mem.state == 'held' and s.mem.confirmed and
				s.mem.claim.ownership ~= r.claim and not s.moved and not s.restored and not s.block_kin and
				not s.memory_kin and r.lease == '0' and r.owner ~= s.taken_for_copy and not o.freed and not o.damaged and not is_unused(s, o, r.claim) and
				s.mem.entered == s.mem.claim.ownership then
				world.fault('leak', 'server ' .. s.id .. ' has another ID, and its record ' .. at .. ' is still there')
			end
		end
	end
end

-- An administrator gives back what nobody uses.
local function free_by_administrator(home)
	local helper
	for s in each_server(true) do
		if s.home == home and not s.fixed and s.mem.identity then helper = helper or s end
	end
	if not helper then return end
	local living = {}
	for s in each_server(true) do
		if s.mem.state == 'held' then living[s.mem.claim.ownership] = s end
	end
	for at, r in pairs(records(home)) do
		local dc, worker = at:match('^(%d+):(%d+)$')
		if not living[r.claim] then
			worker = 1000 * dc + worker
			local who = helper
			for s in each_server(true) do
				if s.home == home and not s.fixed and s.mem.identity and s.mem.identity.id ~= r.owner then who = s end
			end
			local function ask(op, own)
				local m = who.mem
				local argv = protocol.argv(who, m, op, own, m.n + 1, Server.interval_of(who) + who.timeout)
				argv[#argv + 1] = 'deadline'
				argv[#argv + 1] = '9000000000000000'
				return execute(who, m, argv, op)
			end
			local answer = ask('list', {from = worker, records = 1})
			local ownership, state, is_own = protocol.listed(answer, worker)
			if ownership and state == 'live' then
				world.fault('leak', 'worker ID ' .. worker .. ' is shown as live, and nobody has it')
			elseif ownership and is_own ~= '1' then
				answer = ask('free', {worker = worker, ownership = ownership})
				if answer[1] ~= 'released' and answer[1] ~= 'free' then
					world.fault('leak', 'worker ID ' .. worker .. ' is ' .. tostring(state) .. ', and cannot be released: ' .. answer[1])
				end
			end
		end
	end
end

-- Who waits, though an ID is free?
local function check_waiting(home)
	local all = records(home)
	for s in each_server(true) do
		-- a memory image whose original's record is beyond its own max_jump waits for an administrator
		if s.home == home and not s.fixed and not s.standby and not (s.memory_kin and s.mem.unreadable) then
			local now = Server.wall(s)
			local could
			for worker = 0, world.workers - 1 do
				local r = all[s.dc .. ':' .. worker]
				if not r or r.owner == '' and max(tonumber(r.ceiling), tonumber(r.floor)) <= now - 2 * MARK then
					could = worker
				end
			end
			local m, pair = s.mem, s.mem.pair
			-- with an ID it waits for its clock, if that is not too far behind
			if m.state ~= 'held' and could or m.state == 'held' and not m.open and
				(not pair or pair.opens_at <= now and pair.floor <= now or
				 could and m.unwanted == m.claim.ownership and world.now - m.unwanted_at > 3 * max(MARK, s.lease)) then
				world.fault('waits', 'server ' .. s.id .. ' waits, and ' .. tostring(could) .. ' is free')
			elseif could and m.claim and floor(m.claim.worker / 1000) ~= s.dc then
				world.fault('waits', 'server ' .. s.id .. ' has ' .. m.claim.worker .. ', and ' .. could .. ' of its datacenter is free')
			end
		end
	end
end

-- The fields of a server's and of a place's records, and of the IDs that are taken,
-- say what the records say.
local function check_indexes(home)
	local hash, all, found = world.redises[home].hash, records(home), {}
	for at, r in pairs(all) do
		if r.owner ~= '' then
			found['server:' .. r.owner .. ' ' .. at] = true
			found['taken ' .. at .. ((r.lease ~= '0' or r.revoked == '1') and ' 2' or ' 1')] = true
		end
		if r.place ~= '' then found['place:' .. r.place .. ' ' .. at] = true end
	end
	local function check(name)
		if not found[name] then world.fault('index', 'the hash says "' .. name .. '", and the record does not') end
		found[name] = nil
	end
	for field, text in pairs(hash) do
		if field:match('^server:') or field:match('^place:') then
			if text == '' then check(field) end
			for at in text:gmatch('%S+') do check(field .. ' ' .. at) end
		elseif field:match('^taken:') then
			for i = 1, #text do
				if text:sub(i, i) ~= '0' then
					check('taken ' .. field:match(':(%d+:)') .. 512 * field:match('%d+$') + i - 1 .. ' ' .. text:sub(i, i))
				end
			end
		end
	end
	local name = next(found)
	if name then world.fault('index', 'the record says "' .. name .. '", and the hash does not') end
end

local function check_end()
	heal()
	local longest = 12000
	for s in each_server() do longest = max(longest, s.lease) end
	-- silence, settling, a lease that lapses, and a little
	run_until(world.now + 8 * longest + 10000)
	if world.found then return end

	check_own_leaks()
	for home = 1, 2 do free_by_administrator(home) end
	run_until(world.now + 5 * longest + 5000)
	for s in each_server(true) do
		if s.losses > 3 then
			world.fault('unrest', 'server ' .. s.id .. ' has lost its worker ID ' .. s.losses .. ' times')
		end
	end
	for home = 1, 2 do check_waiting(home) end
end

---- A schedule

function world.run(schedule, trace)
	world.trace = trace or false
	world.now, world.ids, world.boots, world.uniques = 0, 0, 0, 0
	world.instances, world.redis_epoch = 0, 0
	world.servers, world.nservers, world.messages, world.next_message = {}, max(8, schedule.setup.servers + 5), {}, FOREVER
	world.makers, world.own, world.owns, world.cases = {}, {}, {}, {}
	world.redis_offset, world.redis_down_until, world.lost_at = 0, -1, -1
	world.lag_until, world.unreplicated, world.old, world.unflushed = -1, 0, nil, false
	world.found, world.found_text, world.clock_back = nil, nil, -FOREVER
	world.stop_at_fault = true
	local setup = schedule.setup
	world.workers, world.lease = setup.workers, setup.lease
	world.max_lead, world.reserve = setup.max_lead, setup.reserve
	world.leases, world.max_leads, world.max_jumps, world.dcs = setup.leases or {}, setup.max_leads or {}, setup.max_jumps or {}, setup.dcs or {}
	-- snowid.redis_wait_replicas is set; each server has the addresses of all Redis
	world.waits, world.sees_all = not setup.no_replicas, setup.sees_all
	local damages = false
	for _, step in ipairs(schedule.steps) do damages = damages or step[2] == 'damage' end
	world.redises = {Redis.new(0), Redis.new(0)}
	for i = 2, 1, -1 do
		world.redis = world.redises[i]
		new_instance()
	end
	for i = 1, setup.servers do
		local s = new_slot(i)
		s.offset = setup.offsets[i] or 0
		if setup.mixed and i % 2 == 0 and not setup.leases then s.lease = world.lease > 0 and 0 or 12000 end
		Server.start(s)
	end
	for _, step in ipairs(schedule.steps) do
		run_until(step[1])
		if world.found then return world.found end
		world.step(step)
		if world.found then return world.found end
	end
	run_until(world.now + setup.tail)
	if not world.found and setup.liveness then check_end() end
	for home = 1, 2 do
		if not world.found and not damages then check_indexes(home) end
	end
	return world.found
end

return world
