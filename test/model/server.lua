-- server.lua
--		The C side, small: the keeper with gate, ceiling and state file, and the
--		registry process.  One millisecond is one unit.
--
-- Follows keeper.c, opening.c, pair.c, identity.c, claim.c and registry.c, with
-- their order of steps.  point() stands wherever the process can
-- be killed with a difference.

local world, protocol = ...

local max, min, floor = math.max, math.min, math.floor
local FOREVER = math.huge
local FIRST_PAUSE = 100

local Server = {}

---- Small things

local function wall(s) return floor(world.base + world.now) + s.offset end
Server.wall = wall

local function mono() return floor(world.now) end

local function log(s, ...)
	if world.trace then world.say('server ' .. s.id .. ': ' .. string.format(...)) end
end

-- A place where the process can be killed, and the keeper held.
local function point(s)
	if s.hold_in and s.mem.keeper and coroutine.running() == s.mem.keeper then
		s.hold_in = s.hold_in - 1
		if s.hold_in <= 0 then
			s.hold_in = nil
			coroutine.yield()
		end
	end
	if s.crash_in then
		s.crash_in = s.crash_in - 1
		if s.crash_in <= 0 then
			s.crash_in = nil
			error(world.KILLED, 0)
		end
	end
end

local function wake_keeper(s)
	if not s.mem.keeper or coroutine.running() == s.mem.keeper then s.keeper_at = min(s.keeper_at, world.now) end
end

local function wake_registry(s)
	if s.mem and not s.mem.call then s.registry_at = min(s.registry_at, world.now) end
end

local function copy_claim(c)
	return {worker = c.worker, ownership = c.ownership, generation = c.generation,
		floor = c.floor, lease = c.lease, registry = c.registry}
end

local function interval_of(s)
	return s.lease > 0 and min(world.MARK, floor(s.lease / 3)) or world.MARK
end
Server.interval_of = interval_of

---- Keys

-- The clients make keys all the time: all that the gate allows up to now.
local function produce(s)
	local m = s.mem
	local now = wall(s)
	if m.open and s.busy and world.now >= s.paused_until then
		local hi = min(m.usable, now + s.lead)
		local lo = max(m.last + 1, m.produced)
		if hi >= lo then
			world.made(s, m.pair, lo, hi)
			m.last = hi
		end
	end
	m.produced = now
end
Server.produce = produce

---- The state file

local function write_file(s, identity)
	point(s)
	s.dir.file = {id = identity.id, starts = identity.starts, place = identity.place, life = identity.life,
		home = identity.home, span = identity.span, high = identity.high, claim = identity.claim,
		past = identity.past}
	point(s)
end

local function become_new(s, m)
	m.identity = {id = world.random_id() .. world.random_id(), starts = 0, place = s.dir.place,
		life = s.dir.life, home = s.home, span = 0, high = 0, claim = nil, past = {}}
end

-- The registry's copy of the identity: a new ID, or the first, begins a start.
local function set_identity(s, m, is_start)
	if not m.has_identity or m.reg_id ~= m.identity.id then
		m.token, m.n, m.state = world.random_id(), 0, 'lost'
		m.reg_id = m.identity.id
	end
	m.has_identity = true
	m.known = m.identity.claim
	if m.state == 'lost' and (is_start or not m.identity.claim) then
		m.state, m.clone, m.leaving = 'none', false, nil
	end
	wake_registry(s)
end

-- The past claim that is left, with the ceiling of its last key: from the WAL, or a guess.
local function gave_up(s, m, claim)
	local past = {worker = claim.worker, ownership = claim.ownership, registry = claim.registry, exact = true}
	local used = not s.standby and s.dir.wal[claim.worker]
	if not used then
		used, past.exact = wall(s) + s.max_lead + s.reserve, false
	end
	past.ceiling = max(used, claim.floor)
	return past
end

-- Remembers a claim, or none; what it gives up is in the past from then on.
local function remember(s, m, claim)
	local identity = m.identity
	local old = identity.claim
	local new = {id = identity.id, starts = identity.starts, place = identity.place, life = identity.life,
		home = s.home, span = m.span, high = m.high, claim = claim and copy_claim(claim), past = identity.past}
	if old and (not claim or old.ownership ~= claim.ownership) then
		local past = {}
		for i = 1, min(#identity.past, 7) do past[i + 1] = identity.past[i] end
		past[1] = gave_up(s, m, old)
		new.past = past
	end
	write_file(s, new)
	m.identity = new
	set_identity(s, m, false)
end

-- Redis says that another server may have the claim in the file, which does not say so yet.
local function in_doubt(m)
	return m.state == 'none' and m.watching and m.identity.claim and m.identity.home ~= 0
end

-- Without Redis the claim is not used any more, not after a restart either, until it is
-- remembered again.
local function doubt_claim(s, m)
	local new = {}
	for name, value in pairs(m.identity) do new[name] = value end
	new.home = 0
	write_file(s, new)
	m.identity = new
	set_identity(s, m, false)
end

-- Tells the registry who this is: at the start, and when it becomes another server.
local function introduce(s, m)
	if m.has_identity and not m.clone then
		if in_doubt(m) then
			doubt_claim(s, m)
		end
		return
	end
	if m.clone then
		become_new(s, m)
	else
		local file = s.dir.file
		if file and file.place == s.dir.place and file.life == s.dir.life then
			m.identity = {id = file.id, starts = file.starts, place = file.place, life = file.life,
				home = file.home, span = file.span, high = file.high,
				claim = file.claim and copy_claim(file.claim), past = file.past}
		else
			if file then log(s, 'this directory is a copy, or was restored') end
			become_new(s, m)
		end
	end
	m.place = s.dir.place
	m.span, m.high = m.identity.span, m.identity.high
	m.identity.starts = m.identity.starts + 1
	if s.lease > 0 and m.identity.claim then m.identity.claim.lease = s.lease end
	m.left = m.identity.claim and {ownership = m.identity.claim.ownership, used = s.dir.wal[m.identity.claim.worker] or 0}
	write_file(s, m.identity)
	m.clone = false
	set_identity(s, m, true)
end

---- The keeper

local function close_gate(s, m, why)
	if m.open then
		log(s, 'closes the gate, %s; last key %d', why, m.last)
		m.open = false
		point(s)
		s.dir.wal[m.pair.worker] = m.last
		m.usable = m.last
		point(s)
		m.left = {ownership = m.entered, used = m.last}
		m.entered = nil
		wake_registry(s)
	end
	m.pair = nil
end

local function propose(s, m, now, wanted, hurry)
	local horizon = s.lease > 0 and s.lease or 2 * world.MARK
	local wake = hurry or m.proposed == 0
	m.proposed = max(now + s.max_lead + s.reserve + horizon, wanted)
	m.highest = max(m.highest, m.proposed)
	m.reach = now + s.max_lead
	m.hurry = m.hurry or hurry
	if wake then wake_registry(s) end
end

local function grant(s, m, now, last, usable)
	local til = min(max(now, last) + s.reserve, now + s.max_lead + s.reserve)
	if til > m.limit_unit then propose(s, m, now, til, true) end
	til = min(til, m.limit_unit)
	if til <= max(last, usable) then return end
	m.used = max(m.used, til)
	point(s)
	local wal = s.dir.wal
	wal[m.pair.worker] = til
	point(s)
	m.usable = til
end

-- When a pair may begin that others may have used until it was found.
local function settle_opening(s, pair, now)
	pair.opens_at = -FOREVER
	if not pair.waits then return end
	if now < pair.found_at then
		-- found by a clock that was wrong
		pair.found_at, pair.found_mono = now, mono()
	end
	pair.found_at = max(pair.found_at, now - (mono() - pair.found_mono))
	pair.opens_at = pair.found_at + s.max_lead
end

-- No caller waits for a key above it.
local function reach_of(s, now) return now + s.max_lead + 5000 + s.reserve end

-- Where a pair may begin.
local function floor_of(s, claim, now)
	local own, others = s.dir.wal[claim.worker] or 0, 0
	for worker, ceiling in pairs(s.dir.wal) do
		if worker ~= claim.worker and ceiling <= reach_of(s, now) then others = max(others, ceiling) end
	end
	return max(own, others, claim.floor)
end

local function pair_find(s, m, claim, now)
	local identity = m.identity
	local pair = copy_claim(claim)
	local is_new = not identity.claim or identity.claim.ownership ~= claim.ownership
	pair.waits = not s.dir.wal[claim.worker] or is_new
	pair.found_at, pair.found_mono = now, mono()
	pair.opens_at = FOREVER
	pair.remember = is_new or identity.claim.lease ~= claim.lease or identity.home ~= s.home
	return pair
end

-- Was the clock set back so far behind the keys that every caller would be refused?  Then
-- another ID is wanted after a while: longer, the more that were left are ahead of it.
local function is_behind(s, m, now)
	local ends, wanted = m.open and m.last or m.pair.floor, m.unwanted
	m.unwanted = nil
	if ends <= reach_of(s, now) then
		m.behind_since = nil
		return false
	end
	m.behind_since = m.behind_since or mono()
	local behind, patience = mono() - m.behind_since, 500
	for _, past in ipairs(m.identity.past) do
		if past.ceiling > reach_of(s, now) then patience = max(2 * patience, 10000) end
	end
	if behind >= patience then
		m.unwanted, m.unwanted_ms = m.claim.ownership, ends
		if wanted ~= m.unwanted then m.no_other, m.unwanted_at = false, world.now end
		wake_registry(s)
	end
	s.keeper_at = world.now + 500
	return not m.open or behind >= 500
end

local function keeper_turn(s)
	local m = s.mem
	produce(s)
	local now = wall(s)
	s.keeper_at = world.now + 1000
	propose(s, m, now, 0, false)

	if m.state == 'lost' then
		close_gate(s, m, 'the claim is lost')
		introduce(s, m)
		if m.state == 'lost' then remember(s, m, nil) end
		return
	end
	introduce(s, m)
	if s.fixed then
		-- before anything else: what it gives up, it never resumes
		if m.identity.claim then remember(s, m, nil) end
		return
	end
	if s.standby then
		close_gate(s, m, 'recovery')
		local c = m.claim
		if m.state == 'held' and
			(not m.identity.claim or m.identity.claim.ownership ~= c.ownership or m.identity.claim.lease ~= c.lease or
			 m.identity.home ~= s.home) then
			local early = copy_claim(c)
			if not m.identity.claim or m.identity.claim.ownership ~= c.ownership then
				early.floor = max(early.floor, now + s.max_lead)
			end
			remember(s, m, early)
		end
		return
	end
	if m.state ~= 'held' then return close_gate(s, m, 'no claim') end
	m.limit_unit = m.limit
	local claim = m.claim
	if not m.pair or m.pair.ownership ~= claim.ownership then
		if m.open and m.entered ~= claim.ownership then close_gate(s, m, 'another claim') end
		if m.identity.claim and m.identity.claim.ownership ~= claim.ownership then remember(s, m, nil) end
		m.pair = pair_find(s, m, claim, now)
	end
	local pair = m.pair
	if not m.open then pair.floor = floor_of(s, claim, now) end
	if is_behind(s, m, now) then
		if m.open then close_gate(s, m, 'its keys are ahead of the clock') end
		return
	end
	if m.open then
		if m.usable - max(now, m.last) <= s.reserve / 2 then grant(s, m, now, m.last, m.usable) end
		return
	end
	settle_opening(s, pair, now)
	if now < pair.opens_at then
		s.keeper_at = world.now + min(pair.opens_at - now, 1000)
		return
	end
	pair.floor = max(pair.floor, pair.opens_at)
	if pair.remember then
		local c = copy_claim(claim)
		c.floor = pair.floor
		remember(s, m, c)
		pair.remember = false
	end

	-- opens
	local other_pair = m.opened and m.opened ~= pair.worker
	local forget = other_pair and m.last > reach_of(s, now)
	local begin = (forget or not m.opened) and pair.floor or max(pair.floor, m.last)
	m.usable = begin
	m.used = 0
	grant(s, m, now, begin, begin)
	point(s)
	if m.state ~= 'held' or m.claim.ownership ~= claim.ownership then return end
	m.entered = claim.ownership
	m.used = max(m.usable, 0)
	m.last, m.opened, m.open, m.produced = begin, pair.worker, true, now
	point(s)
	log(s, 'makes keys as %d, above %d, ownership %s', pair.worker, begin, pair.ownership)
end

---- The registry process

local function used_of(m, claim)
	if m.entered == claim.ownership then
		return m.claim and m.claim.ownership == claim.ownership and m.limit < FOREVER and max(m.used, m.limit) or m.used
	end
	return m.left and m.left.ownership == claim.ownership and m.left.used or 0
end

-- The claim in the file may be of another datacenter than the settings.
local function settings_allow(s, claim) return floor(claim.worker / 1000) == s.dc end

local function try_later(s, r)
	r.backoff = min(max(2 * r.backoff, FIRST_PAUSE), interval_of(s))
	r.next_contact = world.now + r.backoff
end

local function no_answer(s, m, err)
	local r = m.reg
	r.answered, r.redis_offset = false, nil
	local known = m.known
	if m.state == 'none' and not m.unreadable and known and known.lease == 0 and
		s.lease == 0 and settings_allow(s, known) and m.identity.home == s.home then
		m.state, m.claim, m.limit = 'held', copy_claim(known), FOREVER
		m.went_on = s.could_not_read and 'unread' or 'silence'
		log(s, 'continues with %d without Redis', known.worker)
		wake_keeper(s)
	end
	try_later(s, r)
end

-- Calls the script; next(answer, err) follows, now or later.
local function call(s, m, operation, own, next)
	local r = m.reg
	m.n = m.n + 1
	local argv = protocol.argv(s, m, operation, own, m.n, interval_of(s) + s.timeout)
	-- Redis' clock, as it was read when the connection was made
	r.redis_offset = r.redis_offset or world.redis_offset
	argv[#argv + 1] = 'deadline'
	argv[#argv + 1] = tostring(floor(world.base + world.now + r.redis_offset + s.timeout))
	point(s)
	world.call(s, m, argv, operation, function(answer, err)
		point(s)
		if answer and answer[1] == 'expired' then
			r.redis_offset = nil
			answer, err = nil, 'expired'
		elseif answer and (answer[1] == 'damaged' or answer[1] == 'version' or answer[1] == 'beyond') then
			m.unreadable = m.unreadable or answer[4] ~= 'own'
			s.could_not_read = m.unreadable
			answer, err = nil, answer[1]
		elseif answer then
			r.answered, m.unreadable = true, false
			s.could_not_read = false
			world.heard(s, operation, answer)
		end
		next(answer, err)
		if r.answered then r.backoff = 0 end
	end)
end

local function lose(s, m, clone, why)
	local r = m.reg
	log(s, 'loses its claim: %s', why)
	world.lost(s, m, why)
	m.state, m.confirmed, m.clone = 'lost', false, clone
	m.watching = false
	r.next_contact = world.now < r.last_loss + 10 * interval_of(s) and
		world.now + interval_of(s) or 0
	r.last_loss = world.now
	wake_keeper(s)
end

-- A twin is one that got the claim while this server had it.
local function lose_to(s, m, twin, why)
	lose(s, m, m.confirmed and twin == 'server', why .. twin)
end

local function got_claim(s, m, claim, ceiling, asked_at, known)
	local r = m.reg
	if known and known.worker ~= claim.worker then m.leaving = copy_claim(known) end
	log(s, 'claimed %d, ownership %s, above %d', claim.worker, claim.ownership, claim.floor)
	m.claim = claim
	m.limit = claim.lease > 0 and ceiling or FOREVER
	m.renewed_at = asked_at
	m.state, m.confirmed, m.refused, m.confirmed_once = 'held', true, false, true
	m.watching, r.revoked_claim = false, nil
	wake_keeper(s)
end

local function refuse(s, m, change, why)
	m.reg.refusal = why
	log(s, 'refused: %s', why)
	if change then return end
	if m.state == 'held' or m.known then
		m.state, m.confirmed = 'lost', false
	end
	wake_keeper(s)
end

-- Is what it has a lease that it could not renew in time?
function Server.has_lapsed(s)
	return s.lease > 0 and mono() - s.mem.renewed_at >= s.lease
end

-- Keeps the last answer's values that outlive Redis.
local function keep_marks(m, span, high)
	m.span, m.high = tonumber(span), tonumber(high)
end

-- May it resume what Redis forgot: at once, after the settling, or never?
local function resume_of(s, m, known, now)
	if not known then return 'record' end
	local for_good = known.lease == 0 and s.lease == 0
	if m.state == 'held' and m.claim.ownership == known.ownership and
		(for_good or (m.confirmed and now - m.renewed_at < s.lease)) then
		local connected = m.confirmed and now - m.renewed_at < 2 * (interval_of(s) + s.timeout)
		return (connected or not for_good) and 'now' or 'held'
	end
	return for_good and not m.watching and 'settled' or 'record'
end

local function claim_worker_id(s, m, move, after)
	local r = m.reg
	local known = m.state == 'held' and m.claim or m.known
	local change = m.state == 'held' and (move or not settings_allow(s, m.claim))
	local began, mono_began = world.now, mono()
	local by_move = nil
	if m.state == 'none' and r.revoked_claim then
		known, move, by_move = r.revoked_claim, true, true
	end
	local own = {
		fresh = world.random_id(), ceiling = m.proposed,
		reach = min(m.reach, wall(s) + s.max_lead),
		known = known,
		resume = resume_of(s, m, known, mono_began),
		used = known and used_of(m, known) or 0, leaving_used = m.leaving and used_of(m, m.leaving),
		up = mono_began - m.started,
		move = move, leaving = m.leaving,
	}
	if (move or not known or not settings_allow(s, known) or own.resume == 'record') and not world.is_one(s) then
		refuse(s, m, change, 'two masters')
		r.next_contact = world.now + interval_of(s)
		return after and after()
	end
	local dc = s.dc
	return call(s, m, 'claim', own, function(answer, err)
		if not answer then
			no_answer(s, m, err)
			r.untidy = r.untidy or change
			return
		end
		r.untidy = false
		r.next_contact = world.now + interval_of(s)
		local a = answer[1]
		if a == 'yours' then
			local claim, ceiling = protocol.claim(answer, dc)
			claim.lease = s.lease
			keep_marks(m, answer[8], answer[9])
			if by_move then known = m.known end
			got_claim(s, m, claim, ceiling, mono_began, known)
		elseif a == 'lost' then
			lose_to(s, m, answer[3], 'claim: it is another\'s')
		elseif a == 'late' then
			lose(s, m, true, 'claim: a copy of the memory')
		elseif a == 'older' then
			lose(s, m, true, 'claim: an older copy')
		elseif a == 'twin' then
			lose(s, m, true, 'claim: another server uses a copy')
		elseif a == 'other' then
			lose(s, m, false, 'claim: of another registry')
		elseif a == 'silence' then
			m.watching = true
			m.watched = m.watched or m.state ~= 'held'
			wake_keeper(s)
			r.next_contact = min(r.next_contact, world.now + max(tonumber(answer[2]), FIRST_PAUSE))
		elseif a == 'settling' then
			if not change then log(s, 'has to wait: settling') end
			r.next_contact = min(r.next_contact, world.now + tonumber(answer[2]) + 1)
		elseif a == 'full' and answer[5] == 'more' then
			return claim_worker_id(s, m, move, after)
		elseif a == 'full' then
			-- what was revoked is for others, unless there is nothing else
			if by_move then r.revoked_claim = nil end
			refuse(s, m, change, a)
		else
			world.nonsense(s, 'claim', a)
			no_answer(s, m, 'nonsense')
		end
		return after and after()
	end)
end

local function mark(s, m)
	local r = m.reg
	local mono_began = mono()
	local used, leaves = used_of(m, m.claim), protocol.has_left(m)
	return call(s, m, 'mark', {claim = m.claim, ceiling = m.proposed, used = used, leaving_used = m.leaving and used_of(m, m.leaving),
		resume = resume_of(s, m, m.claim, mono_began)}, function(answer, err)
		if not answer then return no_answer(s, m, err) end
		local a = answer[1]
		r.next_contact = world.now + interval_of(s)
		if a == 'ok' then
			if m.claim.lease > 0 then
				m.limit = tonumber(answer[2])
				wake_keeper(s)
			end
			m.hurry = false
			if leaves then m.leaving = nil end
			m.renewed_at = mono_began
			keep_marks(m, answer[4], answer[5])
		elseif a == 'late' then
			lose(s, m, true, 'mark: a copy of the memory')
		elseif a == 'gone' then
			if settings_allow(s, m.claim) then return claim_worker_id(s, m, false) end
			lose(s, m, false, 'mark: the settings want another datacenter')
		elseif a == 'other' then
			lose(s, m, false, 'mark: of another registry')
		elseif a == 'lost' then
			lose_to(s, m, answer[3], 'mark: it is another\'s')
		elseif a == 'revoked' then
			r.revoked_claim = copy_claim(m.claim)
			lose(s, m, false, 'mark: revoked')
		else
			world.nonsense(s, 'mark', a)
			no_answer(s, m, 'nonsense')
		end
	end)
end

-- Claims another worker ID for the keeper, or for the settings; the present one is marked all
-- the same, or confirmed.
local function change_worker_id(s, m)
	local before = m.claim.ownership
	m.no_other = true
	return claim_worker_id(s, m, m.unwanted == before, function()
		if m.state ~= 'held' or m.claim.ownership ~= before then return end
		if m.confirmed then return mark(s, m) end
		return claim_worker_id(s, m, false)
	end)
end

local function tend_claim(s, m)
	local r = m.reg
	local due = world.now >= r.next_contact
	local unwanted = m.state == 'held' and m.unwanted == m.claim.ownership
	local wants_another = m.state == 'held' and (unwanted or not settings_allow(s, m.claim))
	if m.state == 'none' or not m.confirmed or (r.untidy and due) then
		if due and unwanted and not m.confirmed and not m.leaving then
			return change_worker_id(s, m)
		end
		if due then return claim_worker_id(s, m, false) end
	elseif wants_another and not m.leaving and (due or unwanted and not m.no_other and r.backoff == 0) then
		return change_worker_id(s, m)
	elseif due or ((m.hurry or protocol.has_left(m)) and r.backoff == 0) then
		return mark(s, m)
	end
end

-- Does what an administrator asked of this server.
local function serve_request(s, m)
	local request = m.request
	m.request = nil
	if request.operation == 'reclaim' then
		if m.state == 'held' and m.confirmed and not m.leaving then
			return claim_worker_id(s, m, true)
		end
		return
	end
	return call(s, m, 'list', {from = request.worker, records = 1}, function(answer, err)
		if not answer then return no_answer(s, m, err) end
		local ownership, _, is_own = protocol.listed(answer, request.worker)
		if not ownership or is_own == '1' then return end
		return call(s, m, 'free', {worker = request.worker, ownership = ownership,
			force = request.force}, function(answer, err)
				if not answer then return no_answer(s, m, err) end
				log(s, 'an administrator releases %d%s: %s', request.worker,
					request.force and ' by force' or '', answer[1])
			end)
	end)
end

local function registry_turn(s)
	local m = s.mem
	local r = m.reg
	if s.fixed then
		return
	end
	r.answered = false
	if m.request and m.has_identity then serve_request(s, m) end
	local ready = m.has_identity and m.proposed ~= 0 and m.state ~= 'lost' and not in_doubt(m)
	if ready and not m.call then tend_claim(s, m) end
	s.registry_at = ready and max(r.next_contact, world.now + 1) or world.now + 1000
end

---- The server as a whole

local function new_registry_process()
	return {next_contact = 0, backoff = 0, last_loss = -FOREVER}
end

function Server.start(s)
	s.mem = {
		state = 'none', confirmed = false, limit = FOREVER, proposed = 0, reach = 0,
		n = 0, written = 0, used = 0, last = 0, usable = 0, open = false, produced = 0, highest = 0,
		renewed_at = -FOREVER, reg = new_registry_process(), started = mono(), span = 0, high = 0,
	}
	s.mem.produced = wall(s)
	s.keeper_at, s.registry_at = world.now, world.now + 1
	s.start_time, s.first_contact, s.could_not_read = world.now, FOREVER, false
	log(s, 'starts')
end

-- A process of the server ends, and its successor finds the shared memory.
function Server.restart_registry(s)
	s.mem.reg, s.mem.call = new_registry_process(), nil
	s.registry_at = world.now + 1
end

-- With "asked" it closes the gate; otherwise it has failed.
function Server.restart_keeper(s, asked)
	local m = s.mem
	if asked then
		produce(s)
		close_gate(s, m, 'the keeper leaves')
	end
	m.pair, m.keeper, s.hold_in, m.behind_since = m.open and m.pair or nil, nil, nil, nil
	s.keeper_at = world.now + 1
end

function Server.crash(s)
	produce(s)
	log(s, 'is killed')
	s.mem = nil
	s.crash_in = nil
end

-- A clean stop.
function Server.stop(s)
	produce(s)
	log(s, 'is stopped')
	close_gate(s, s.mem, 'shutdown')
	s.mem = nil
end

-- The turn of a keeper that may be held: the rest of it follows later.
function Server.keeper_turn(s)
	local m = s.mem
	if not m.keeper and not s.hold_in then return keeper_turn(s) end
	m.keeper = m.keeper or coroutine.create(keeper_turn)
	local ok, err = coroutine.resume(m.keeper, s)
	if not ok then
		m.keeper = nil
		error(err, 0)
	elseif coroutine.status(m.keeper) == 'dead' then
		m.keeper = nil
		s.keeper_at = min(s.keeper_at, world.now + 1000)	-- or woken while it was held
	else
		s.keeper_at = world.now + s.hold_for
		log(s, 'its keeper is held')
	end
end
Server.registry_turn = registry_turn
return Server
