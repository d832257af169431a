-- answers.lua
--		What the script answers, and what the hash has then, call by call: what a random
--		schedule does not look at, as the words for people, lists, and records that are
--		damaged.  run(Redis) gives nil, or what is wrong.

local BASE = 1700000000000

-- A server: what its calls have, and the claim that it was given.
local Server = {}
Server.__index = Server

local world						-- of the test that runs: Redis, and the numbers given out

local function hex(n) return string.format('%016x', n) end

local function at(ms) return string.format('%.0f', BASE + ms) end

-- "with" is kept for all its calls.
local function server(with)
	world.servers = world.servers + 1
	local i = world.servers
	local s = setmetatable({common = {version = '4', layout = 'L', server = hex(0) .. hex(i), name = 's' .. i,
		place = '', token = hex(100 + i), starts = '1', interval = '1000', lease = '0', least = '12000', latest = '9000000000000000',
		boot = 'boot' .. i, dc = '0', count = '32', registry = '', span = '0', high = '0', deadline = '9000000000000000'},
		n = 0}, Server)
	for name, value in pairs(with or {}) do s.common[name] = value end
	return s
end

-- The answer, its parts separated by spaces.
function Server:call(operation, ...)
	self.n = self.n + 1
	local all = {operation = operation, n = tostring(self.n)}
	for name, value in pairs(self.common) do all[name] = value end
	for _, more in ipairs({...}) do
		for name, value in pairs(more) do all[name] = value end
	end
	local argv = {}
	for name, value in pairs(all) do argv[#argv + 1], argv[#argv + 2] = name, value end
	local answer, err = world.redis:run('snowid', argv)
	if world.is_endless then error(err, 0) end
	return answer and table.concat(answer, ' ') or 'error: ' .. err, answer
end

function Server:claim(with)
	local k = self.known
	world.fresh = world.fresh + 1
	local text, answer = self:call('claim', {fresh = hex(world.fresh), ceiling = at(2000), reach = at(1000),
		known = k and '0:' .. k.worker or '', ownership = k and k.ownership or hex(0), generation = k and k.generation or '0',
		floor = k and k.floor or '0', used = '0', resume = k and 'now' or 'record', up = '100', move = '0', leaving = '', past = '',
		registry = k and k.registry or ''}, with or {})
	if answer and answer[1] == 'yours' then
		self.known = {worker = answer[2], ownership = answer[3], floor = answer[4], generation = answer[6], registry = answer[7]}
	end
	return text
end

function Server:mark(with)
	local k = self.known
	return (self:call('mark', {worker = k.worker, ownership = k.ownership, generation = k.generation, floor = k.floor,
		ceiling = at(2000), used = '0', resume = 'now', past = '', registry = k.registry}, with or {}))
end

-- Its claim, as one that it gave up.
local function past(s, more)
	local k = s.known
	local p = {registry = k.registry, worker = k.worker, ownership = k.ownership, ceiling = at(1500), exact = '1'}
	for name, value in pairs(more or {}) do p[name] = value end
	return {past = ' ' .. p.registry .. '/0:' .. p.worker .. '/' .. p.ownership .. '/' .. p.ceiling .. '/' .. p.exact}
end

-- Tells that it makes no more keys with its claim, by a mark that changes nothing else.
-- The owner that the record has then.
function Server:leave(with)
	local k = self.known
	self:call('mark', {worker = k.worker, ownership = hex(0), generation = '0', floor = '0', used = '0', resume = 'record',
		registry = k.registry}, past(self, with), with or {}, {ceiling = '0'})
	return world.redis:record('0:' .. k.worker).owner
end

function Server:free(worker, ownership, with)
	return (self:call('free', {worker = tostring(worker), ownership = ownership, force = '0'}, with or {}))
end

function Server:list(with)
	return (self:call('list', {from = '0', records = '20', own = self.known and self.known.ownership or ''}, with or {}))
end

-- Another start of it.
function Server:restart(with)
	self.common.token, self.n = hex(tonumber(self.common.token, 16) + 1000), 0
	self.common.starts = tostring(self.common.starts + 1)
	for name, value in pairs(with or {}) do self.common[name] = value end
end

local function jump(ms) world.redis.now = world.redis.now + ms end

-- Time, in which somebody calls each second.
local function wait(ms)
	while ms > 0 do
		local step = math.min(ms, 1000)
		jump(step)
		world.caller:list()
		ms = ms - step
	end
end

-- Another process of Redis.
local function restart_redis()
	world.instances = world.instances + 1
	world.redis.info = string.format('run_id:%040x\r\nmaster_replid:%040x\r\n', world.instances, 1)
end

local function promote_replica()
	world.instances = world.instances + 1
	world.redis.info = world.redis.info:gsub('master_replid:%w+', string.format('master_replid:%016d%024d', world.instances, 0))
end

local function hash(field) return world.redis.hash[field] end
-- Which IDs are taken, up to the last of those.
local function taken() return hash('taken:0:0') and hash('taken:0:0'):gsub('0+$', ''):gsub('2', '1') end
local function record(worker) return world.redis:record('0:' .. worker) end

local function fail(what, got, level)
	local line = debug.getinfo(level + 1, 'l').currentline
	error({failed = string.format('answers.lua:%d: not "%s", but "%s"', line, what, tostring(got))}, 0)
end

-- Is the answer so?  A pattern.
local function expect(got, pattern)
	if not tostring(got):match('^' .. pattern .. '$') then fail(pattern, got, 2) end
end

-- A registry that has settled, without owners; then s, which has ID 0.
local function settled()
	expect(world.caller:claim(), 'settling 13000 ' .. at(13000))
	wait(14000)
end

local function owner(with)
	local s = server(with)
	local answer = s:claim()
	if not answer:match('^yours') then fail('yours', answer, 2) end
	return s
end

local tests = {}

function tests.calls()
	expect(server({version = '3'}):claim(), 'version 4 3')
	expect(server({version = nil}):call('claim', {version = 'x y'}), 'version 4 x y')
	expect(server({deadline = at(-1)}):claim(), 'expired')
	expect(next(world.redis.hash), 'nil')
	expect(server({deadline = at(0)}):claim(), 'settling 13000 ' .. at(13000))
end

function tests.layouts()
	expect(server({layout = 'other'}):claim(), 'settling .*')
	settled()
	owner({name = 'first'})
	expect(server({layout = 'other'}):claim(), 'layout L first')
	local second = owner()
	expect(second:mark(), 'ok .*')
	expect(server({layout = 'other'}):claim(), 'layout L first')
end

function tests.meta_is_damaged()
	settled()
	local s = owner()
	local good = hash('meta')
	local function damaged(text, answer)
		world.redis.hash.meta = text
		expect(s:mark(), answer)
	end
	damaged('not JSON', 'damaged meta ')
	damaged('5', 'damaged meta ')
	damaged('{}', 'damaged meta ')
	damaged(good:gsub('"v":"4"', '"v":"3"'), 'version meta 3')
	damaged((good:gsub('"v":"4",?', '')), 'damaged meta ')
	for name in good:gmatch('"(%w+)":') do
		if name ~= 'v' then damaged(good:gsub('("' .. name .. '":)"[^"]*"', '%1null'), 'damaged meta ') end
	end
	for name, digits in pairs({since = 15, span = 9, longest = 9, window = 15, heard = 15, offset = 15, high = 14}) do
		for _, value in ipairs({'-1', ('1'):rep(digits + 1)}) do
			damaged(good:gsub('("' .. name .. '":)"[^"]*"', '%1"' .. value .. '"'), 'damaged meta ')
		end
	end
	local beat = hash('mark:meta')
	for _, value in ipairs({'', '-1', ('1'):rep(14), ('1'):rep(16)}) do
		world.redis.hash['mark:meta'] = value
		damaged(good, 'damaged meta ')
	end
	world.redis.hash['mark:meta'] = beat
	damaged(good, 'ok .*')
end

function tests.records_are_damaged()
	settled()
	local s, other = owner(), owner()
	local good, marks = hash('0:0'), hash('mark:0:0')
	local function damaged(text, its_marks)
		world.redis.hash['0:0'], world.redis.hash['mark:0:0'] = text, its_marks or marks
		world.redis.hash['taken:0:0'] = '01'		-- what gives it away, if anything does
		expect(server():claim({count = '2'}), 'full 2 0 0 ')
		expect(taken(), '11')
		expect(s:mark(), 'damaged 0:0 ')
		expect(s:claim(), 'damaged 0:0 ')
		expect(other:list(), 'list 0 +damaged 0  1 s3 .*')
	end
	for _, text in ipairs({'not JSON', '5', '', 'null', '[]', '{}', '[' .. good .. ']', good:sub(1, -20)}) do damaged(text) end
	for name in good:gmatch('"(%w+)":') do
		if name ~= 'v' then
			damaged((good:gsub('"' .. name .. '":"[^"]*",?', ''):gsub(',}', '}')))
			damaged((good:gsub('("' .. name .. '":)"[^"]*"', '%1 1')))
		end
	end
	for name, digits in pairs({generation = 14, floor = 16, starts = 16, since = 15, lease = 8, interval = 8}) do
		for _, value in ipairs({'', '-1', '1e3', ('1'):rep(digits + 1)}) do
			damaged((good:gsub('("' .. name .. '":)"[^"]*"', '%1"' .. value .. '"')))
		end
	end
	for i, digits in ipairs({16, 15, 16}) do
		for _, value in ipairs({'', '-1', '1e3', ('1'):rep(digits + 1)}) do
			local words = {'1', at(0), at(0)}
			words[i] = value
			damaged(good, table.concat(words, ' '))
		end
	end
	damaged(good, '')
	world.redis.hash['mark:0:0'] = marks
	world.redis.hash['0:0'] = good:gsub('^{', '{"span":1,')
	expect(s:mark(), 'ok .*')
	world.redis.hash['0:0'] = good:gsub('"v":"4"', '"v":"3"')
	expect(s:mark(), 'version 0:0 3')
	expect(other:list(), 'list 0 +version 0  1 s3 .*')
	expect(other:free(0, s.known.ownership, {force = '1'}), 'version 0:0 3')
	-- it can have another one
	world.redis.hash['0:0'] = '{}'
	local known = s.known
	expect(s:claim({move = '1'}), 'yours 2 .*')
	s.known = known
	-- what is damaged is released at once; its owner has the time to put it back
	expect(other:free(0, 'any'), 'released ')
	expect(server():claim({count = '2'}), 'full 2 0 0 ')
	expect(s:mark(), 'ok .*')
	expect(other:list(), 'list 0 s2 .* live 0 ' .. s.known.ownership .. ' 1 s3 .*')
	-- one whose record is gone is left to an administrator, too
	wait(1001)
	world.redis.hash['0:0'] = nil
	for _, kinds in ipairs({'11', '21'}) do
		world.redis.hash['taken:0:0'] = kinds
		expect(server():claim({count = '2'}), 'full 2 0 0 ')
	end
	expect(other:list(), 'list 0 +damaged 0  1 .*')
	expect(other:free(0, ''), 'released ')
end

-- Its owner puts it back; a server that has just started waits, since that may be another one.
-- An owner that was cut off meanwhile loses it, but not to an earlier one, which makes no
-- keys below its own.
function tests.a_damaged_record_and_its_former_owner()
	settled()
	local s, other = owner(), owner()
	local former = {known = s.known}
	wait(2001)
	expect(other:mark(), 'ok .*')
	expect(other:free(0, s.known.ownership), 'released s2')
	local new = owner({place = 'p'})
	expect(new:claim({move = '1', reach = at(9000)}), 'yours 0 .*')
	for _, owner_is in ipairs({'connected', 'cut off', 'gone'}) do
		world.redis.hash['0:0'] = '{}'
		s:restart()
		expect(s:claim({resume = 'settled'}), 'damaged 0:0 ')
		expect(other:free(0, ''), 'released ')
		expect(s:claim({resume = 'settled', used = at(30000)}), 'settling 12001 %d+')
		expect(record(0).floor, at(30000))
		expect(s:claim({resume = 'record', count = '2'}), 'full .*')
		if owner_is == 'cut off' then expect(new:mark({resume = 'held'}), 'lost .*') end
		wait(12000)
		expect(s:claim({resume = 'settled'}), 'settling 1 %d+')
		if owner_is == 'connected' then
			expect(new:mark(), 'ok .*')
			expect(s:claim({resume = 'settled'}), 'lost s4 ')
		else
			wait(1)
			expect(s:claim({resume = 'settled'}),
				owner_is == 'gone' and 'yours 0 ' .. former.known.ownership .. ' .*' or 'lost  ')
		end
	end
end

-- The field of its server, which it does not tell, still names the record.
function tests.a_damaged_record_has_another_owner()
	settled()
	local s, other = owner(), owner()
	world.redis.hash['0:0'] = '{}'
	expect(other:free(0, ''), 'released ')
	for _ = 1, 2 do
		wait(7000)
		expect(other:mark(), 'ok .*')
	end
	expect(server({starts = '5'}):claim(), 'yours 0 .*')
	s.common.token, s.common.starts = hex(99), '2'
	expect(s:claim({resume = 'settled'}), 'lost .*')
	s.known = nil
	expect(s:claim(), 'yours 2 .*')
	expect(hash('server:' .. s.common.server), '0:2')
end

function tests.times_that_cannot_be()
	settled()
	local latest = at(100000)
	local s, other = owner({latest = latest}), owner({latest = latest})
	expect(s:mark({ceiling = at(100001)}), 'ok .*')
	expect(s:mark(), 'beyond 0:0 ' .. at(100001) .. ' own')
	expect(s:claim(), 'beyond 0:0 ' .. at(100001) .. ' own')
	expect(s:claim({move = '1'}), 'yours 2 .*')
	-- while its owner lives, others do not judge
	local r = record(0)
	expect(other:list(), 'list 0 s2 %d+ %d+ ' .. at(100001) .. '  live 0 %x+ .*')
	expect(other:free(0, r.claim), 'live s2 0')
	wait(2001)
	expect(other:mark(), 'ok .*')
	expect(s:mark(), 'ok .*')
	expect(other:list(), 'list 0 s2 %d+ %d+ ' .. at(100001) .. '  damaged 0 %x+ 1 s3 .* live 1 %x+ 2 s2 .* live 0 %x+')
	expect(other:free(0, r.claim), 'released ')
	expect(record(0).ceiling, '0')
	expect(hash('server:' .. s.common.server), '0:2')
	-- of a former life, or one that Redis forgot
	local a = owner({place = 'p'})
	expect(a:mark({ceiling = at(100001)}), 'ok .*')
	expect(server({place = 'p', boot = a.common.boot, latest = latest}):claim(), 'yours 4 .*')
	a.common.latest = latest
	local later = tostring(a.known.generation + 1)
	expect(a:mark({generation = later, ownership = hex(9)}), 'beyond .*')
	expect(a:claim({generation = later, ownership = hex(9)}), 'beyond .*')
	restart_redis()
	local b = server({latest = latest})
	b.known = {worker = a.known.worker, ownership = hex(9), generation = later, floor = '0', registry = a.known.registry}
	expect(b:claim(), 'beyond .*')
end

-- A copy by block waits for its original in another datacenter, too.
function tests.a_copy_for_another_datacenter()
	settled()
	local s = owner()
	local copy = server({server = s.common.server, dc = '1', boot = 'another'})
	copy.known = s.known
	copy:restart()
	expect(copy:claim({resume = 'settled', up = '1'}), 'silence 2001')
	wait(2000)
	expect(s:mark(), 'ok .*')
	expect(copy:claim({resume = 'settled', up = '2001'}), 'twin')
	local leased = owner({lease = '3000'})
	leased:restart({boot = 'another'})
	expect(leased:claim({dc = '1', resume = 'record'}), 'twin')
end


-- A server whose record has such a time is alive, and is not released as silent.
function tests.alive_beyond_times_that_cannot_be()
	settled()
	local s, other = owner({latest = at(100000)}), server()
	local beyond = 'beyond 0:0 ' .. at(100001) .. ' own'
	local function seen_ago(ms) expect(other:free(0, s.known.ownership), 'live s2 ' .. ms) end
	expect(s:mark({ceiling = at(100001)}), 'ok .*')
	wait(2001)
	expect(s:mark(), beyond)
	seen_ago(0)
	expect(s:mark({n = s.n - 1}), 'late')
	wait(2000)
	expect(s:claim(), beyond)
	seen_ago(0)
	-- started again
	local former = {token = s.common.token, starts = s.common.starts}
	s:restart()
	wait(2000)
	expect(s:claim({resume = 'settled'}), beyond)
	seen_ago(0)
	expect(s:claim(former), 'older')
	expect(s:mark(), beyond)
	-- on another boot it may be a copy
	s:restart({boot = 'another'})
	wait(2000)
	expect(s:claim({resume = 'settled'}), 'silence 1')
	seen_ago(2000)
	wait(1)
	expect(s:claim({resume = 'settled'}), beyond)
	seen_ago(0)
	wait(1000)
	expect(s:claim({resume = 'settled'}), beyond)
	seen_ago(0)
	s:restart()
	wait(1000)
	expect(s:claim({resume = 'settled'}), beyond)
	seen_ago(0)
end

function tests.list()
	settled()
	local s, other = owner({name = 'me'}), owner({name = 'other'})
	local leased = owner({name = 'leased', lease = '3000'})
	wait(500)
	expect(s:list(), string.format('list 0 me %s %s %s  live 1 %s 1 other %s %s %s  live 0 %s 2 leased %s %s %s 2500 live 0 %s',
		at(14000), at(14000), at(2000), s.known.ownership, at(14000), at(14000), at(2000), other.known.ownership,
		at(14000), at(14000), at(2000), leased.known.ownership))
	expect(s:list({from = '1', records = '1'}), 'list 1 other .* live 0 ' .. other.known.ownership)
	expect(s:list({from = '3'}), 'list')
	expect(s:list({own = ''}), 'list 0 me .* unused 0 .*')
	expect(s:list({own = leased.known.ownership}), 'list 0 .* unused 0 .* 2 leased .* live 1 ' .. leased.known.ownership)
	expect(s:list({dc = '1'}), 'list')
	local away = owner({dc = '1', name = 'away'})
	expect(s:list({dc = '1'}), 'list 0 away .*')
	-- their states
	expect(s:free(1, other.known.ownership, {force = '1'}), 'revoked other')
	expect(s:list(), 'list 0 .* live 1 .* 1 other .* revoked 0 .*')
	expect(s:mark(), 'ok .*')
	wait(2500)
	expect(s:mark(), 'ok .*')
	expect(s:list(), 'list 0 .* live 1 .* 1 other .* revoked 0 .* 0 live 0 %x+')
	wait(1)
	expect(s:list(), 'list 0 .* live 1 .* 1 other .* revoked 0 .* %-1 ended 0 %x+')
	expect(away:list(), 'list 0 away .* silent 1 .*')
	wait(2999)
	expect(s:mark(), 'ok .*')
	expect(s:list(), 'list .* ended 0 %x+')
	wait(1)
	expect(s:list(), 'list .* lapsed 0 %x+')
	-- by Redis' clock, also where the registry's is ahead of it
	jump(-100000)
	expect(s:mark(), 'ok .*')
	expect(s:list({records = '1'}), string.format('list 0 me %s %s .*', at(14000 - 100000), at(14000 + 6001 - 100000)))
	world.redis.now = 1
	expect(s:list({records = '1'}), string.format('list 0 me 0 1 .*'))
end

function tests.free()
	settled()
	local s, other = owner(), owner()
	local new = {server(), server()}
	expect(s:free(0, 'another'), 'free')
	wait(700)
	expect(s:free(1, other.known.ownership), 'live s3 700')
	wait(1300)
	expect(s:free(1, other.known.ownership), 'live s3 2000')
	wait(1)
	local old = record(1)
	expect(s:free(1, other.known.ownership), 'released s3')
	expect(s:free(1, other.known.ownership), 'free')
	expect(record(1).ceiling, old.ceiling)
	expect(taken(), '1')
	expect(hash('server:' .. other.common.server), 'nil')
	expect(other:mark(), 'lost s3 ')
	expect(other:claim(), 'lost s3 ')
	expect(new[1]:claim({count = '2'}), 'full 1 1 ' .. at(2000) .. ' ')
	expect(new[1]:claim({reach = at(2000)}), 'yours 1 .*')
	expect(record(1).since, at(16001))
	-- what this very server has, and does not use, at once
	expect(new[1]:free(1, new[1].known.ownership), 'released s4')
	other.known = nil
	expect(other:claim({reach = at(2000)}), 'yours 1 .*')
	expect(other:free(1, other.known.ownership, {boot = 'another'}), 'live s3 0')
	-- by force: when it says so, or is silent
	expect(s:free(1, other.known.ownership, {force = '1'}), 'revoked s3')
	expect(other:mark(), 'revoked')
	expect(new[2]:claim({count = '2', reach = at(9000)}), 'full 2 0 0 ')
	expect(other:claim({resume = 'settled'}), 'lost s3 ')
	expect(other:leave(), '')
	expect(new[2]:claim({count = '2', reach = at(9000)}), 'yours 1 .*')
	expect(s:free(1, new[2].known.ownership, {force = '1'}), 'revoked s5')
	wait(2001)
	other.known = nil
	expect(other:claim({count = '2', reach = at(9000)}), 'yours 1 .*')
end

---- Claims

-- Of a server that has an ID; "x" is its second claim.
function tests.the_same_start_claims_again()
	settled()
	local s = owner()
	local k = s.known
	expect(s:claim(), 'yours 0 ' .. k.ownership .. ' 0 ' .. at(2000) .. ' ' .. k.generation .. ' ' .. k.registry .. ' 12000 ' .. k.generation)
	s.n = s.n - 1
	expect(s:claim(), 'late')
	s.n = s.n - 1
	expect(s:mark(), 'late')
	expect(s:mark({used = at(7000)}), 'ok ' .. at(7000) .. ' .*')
	expect(s:claim({used = at(8000)}), 'yours 0 %x+ ' .. at(8000) .. ' ' .. at(7000) .. ' .*')
	expect(record(0).seen, at(14000))
	wait(500)
	local writes = world.redis.writes
	expect(s:mark(), 'ok .*')
	expect(world.redis.writes - writes, '2')		-- its record, and meta
	expect(record(0).seen .. ' ' .. record(0).since, at(14500) .. ' ' .. at(14000))
end

-- Its ID was released meanwhile: the next owner begins above its keys.
function tests.it_wants_another_one_and_was_released()
	settled()
	local s, other = owner(), owner()
	wait(2001)
	expect(other:mark(), 'ok .*')
	expect(other:free(0, s.known.ownership), 'released s2')
	expect(s:claim({move = '1', used = at(30000)}), 'yours 2 .*')
	expect(record(0).floor, at(30000))
end


function tests.another_start_on_the_same_boot()
	settled()
	local s = owner()
	local k = s.known
	local before = s.common.token
	s:restart()
	expect(s:claim({resume = 'settled'}), 'yours 0 ' .. k.ownership .. ' .*')
	expect(record(0).starts, '2')
	-- the former one is late
	expect(s:call('claim', {known = '', ownership = k.ownership, generation = '0', floor = '0', used = '0', resume = 'now', up = '100',
		move = '0', leaving = '', past = '', registry = k.registry, token = before, starts = '1', n = '77', count = '32', fresh = hex(9),
		ceiling = at(0), reach = at(0)}), 'older')
	expect(s:mark({token = before, starts = '1'}), 'lost s2 server')
	expect(s:mark({token = before, starts = '2'}), 'lost s2 server')
	expect(s:mark(), 'ok .*')
end

function tests.another_start_on_another_boot()
	settled()
	local s = owner()
	local k = s.known
	wait(500)
	s:restart({boot = 'another'})
	expect(s:claim({resume = 'settled'}), 'silence 1501')
	expect(s:leave(), s.common.server)
	wait(1500)
	expect(s:claim({resume = 'settled'}), 'silence 1')
	wait(1)
	expect(s:claim({resume = 'settled'}), 'yours 0 %x+ ' .. at(2000) .. ' ' .. at(2000) .. ' .*')
	expect(s.known.ownership ~= k.ownership, 'true')
	-- its original lives
	s:restart({boot = 'a third'})
	expect(s:claim({resume = 'settled', up = '1000'}), 'silence .*')
	expect(s:claim({resume = 'settled', up = '1001'}), 'twin')
	expect(record(0).boot, 'another')
end

-- Its keys count, whether it has to wait or is refused; those of no claim are of no ID.
function tests.keys_of_one_that_gets_nothing()
	settled()
	local s = owner()
	local before = s.common.token
	s:restart({boot = 'another'})
	expect(s:claim({resume = 'settled', used = at(7000)}), 'silence .*')
	expect(record(0).floor, at(7000))
	expect(s:claim({known = '', used = at(9000)}), 'silence .*')
	expect(record(0).floor, at(7000))
	wait(2001)
	expect(s:claim({resume = 'settled'}), 'yours 0 %x+ ' .. at(7000) .. ' .*')
	expect(s:claim({token = before, starts = '1', used = at(8000)}), 'older')
	expect(record(0).floor, at(8000))
	expect(s:claim({n = '1', used = at(9000)}), 'late')
	expect(record(0).floor, at(9000))
end

-- It waits for that, and Redis forgets all: if nobody puts the claim back, it has its ID.
function tests.another_boot_and_an_empty_redis()
	settled()
	local s, other, leased = owner(), owner(), owner({lease = '3000'})
	local k = s.known
	s:restart({boot = 'another'})
	leased:restart({boot = 'another'})
	expect(s:claim({resume = 'settled'}), 'silence .*')
	world.redis:flush()
	restart_redis()
	expect(other:mark(), 'ok .*')
	expect(s:claim({resume = 'record', used = at(1500)}), 'settling 13000 .*')
	expect(record(0).owner, '')
	expect(leased:claim({resume = 'record'}), 'settling 13000 .*')
	wait(12000)
	expect(s:claim({resume = 'record'}), 'yours 0 ' .. k.ownership .. ' .*')
	expect(leased:claim({resume = 'record'}), 'settling .*')
end


-- Claimed by a call whose answer got lost.
function tests.an_id_that_it_never_heard_of()
	settled()
	local s = owner()
	s.known = nil
	expect(s:claim(), 'yours 0 %x+ 0 ' .. at(2000) .. ' .*')
	s.known = nil
	s:restart({boot = 'another'})
	expect(s:claim(), 'silence 2001')
	expect(s:claim({up = '5000'}), 'twin')
	wait(2001)
	expect(s:claim(), 'yours 0 %x+ ' .. at(2000) .. ' ' .. at(2000) .. ' .*')
	-- where it has one, the other is let go
	expect(s:claim({move = '1', known = '0:0'}), 'yours 1 .*')
	local k = s.known
	expect(hash('server:' .. s.common.server), '0:0 0:1')
	expect(s:claim(), 'yours 1 .*')
	expect(hash('server:' .. s.common.server), '0:1')
	expect(taken(), '01')
end

function tests.an_unheard_id_is_revoked()
	settled()
	local s, other = owner(), owner()
	expect(other:free(0, s.known.ownership, {force = '1'}), 'revoked s2')
	s.known = nil
	expect(s:claim({reach = at(500)}), 'yours 2 .*')
	expect(taken(), '011')
	s.known = nil
	expect(s:claim({count = '2'}), 'full 1 1 ' .. at(2000) .. ' ')
	expect(taken(), '01')
end


-- A directory that was restored in place: another server ID, and its place.
function tests.a_former_life()
	settled()
	local s = owner({place = 'p'})
	expect(hash('place:p'), '0:0')
	local new = server({place = 'p', boot = s.common.boot})
	expect(new:claim({up = '999'}), 'yours 0 %x+ ' .. at(2000) .. ' .*')
	expect(hash('server:' .. s.common.server), 'nil')
	expect(s:mark(), 'lost s3 ')
	-- one that was written since it started is another's
	local third = server({place = 'p', boot = s.common.boot})
	expect(third:claim({up = '1001'}), 'yours 1 .*')
	expect(hash('place:p'), '0:0 0:1')
	-- it has one, and the former life's of this boot goes, if it is silent
	wait(1000)
	expect(third:claim(), 'yours 1 .*')
	expect(taken(), '11')
	wait(1001)
	expect(third:claim(), 'yours 1 .*')
	expect(taken(), '01')
	-- another boot: when it is silent
	local fourth = server({place = 'p', boot = 'another'})
	expect(fourth:claim(), 'silence 2001')
	wait(2001)
	expect(fourth:claim({latest = at(2000)}), 'yours 1 %x+ ' .. at(2000) .. ' .*')
	wait(2001)
	local fifth = server({place = 'p', boot = 'a third'})
	expect(fifth:claim({latest = at(1999)}), 'yours 2 .*')
	-- no place, no former life
	expect(server():claim({reach = at(2000)}), 'yours 0 .*')
	expect(server():claim({reach = at(2000)}), 'yours 3 .*')
	expect(hash('place:'), 'nil')
end

function tests.former_lives_with_leases()
	settled()
	local s = owner({place = 'p', lease = '3000'})
	-- on another boot a lease lapses, and is no reason to wait
	expect(server({place = 'p', boot = 'x'}):claim({reach = at(9000)}), 'yours 1 .*')
	expect(taken(), '11')
	wait(6001)
	expect(server({place = 'p', boot = s.common.boot, lease = '3000'}):claim({reach = at(4999)}), 'yours 1 .*')
	expect(taken(), '01')
end

function tests.two_former_lives()
	settled()
	local a = owner({place = 'p', boot = 'one'})
	local b = owner({place = 'q', boot = 'two'})
	b.common.place = 'p'
	expect(b:mark(), 'ok .*')
	expect(hash('place:p') .. ' ' .. tostring(hash('place:q')), '0:0 0:1 nil')
	local new = server({place = 'p', boot = 'two'})
	expect(new:claim(), 'yours 1 .*')
	expect(taken(), '11')
	wait(2001)
	expect(new:mark(), 'ok .*')
	-- of both on this boot, one is enough
	local c = owner({place = 'r', boot = 'three'})
	local d = owner({place = 'r', boot = 'three'})
	expect(d.known.worker, '2')
	expect(taken(), '111')
end

function tests.releases()
	settled()
	local s = owner()
	expect(s:mark({used = at(9000)}), 'ok .*')
	local k = s.known
	expect(s:leave({exact = '0', ceiling = at(9001)}), '')
	expect(record(0).ceiling, at(9001))
	-- above its floor, in any case
	local t = owner({lease = '3000'})
	expect(t:claim({move = '1', reach = at(9001)}), 'yours 0 %x+ ' .. at(9001) .. ' .*')
	expect(t:leave({ceiling = at(100)}), '')
	expect(record(0).ceiling, at(9001))
	-- a lease that is not exact lasts
	local u = owner({lease = '3000'})
	expect(u:leave({exact = '0'}), '')
	expect(record(u.known.worker).ceiling, at(5000))
	local v = owner({lease = '3000'})
	local copy = {boot = 'x', token = hex(7), starts = '3', ceiling = at(2500)}
	expect(v:leave(copy), v.common.server)
	expect(record(v.known.worker).ceiling .. record(v.known.worker).floor, at(2000) .. at(2500))
	wait(6001)
	expect(v:leave(copy), '')
	expect(record(v.known.worker).ceiling, at(5500))
end

function tests.other_registries()
	settled()
	local s = owner()
	expect(s:mark({registry = hex(3)}), 'other')
	expect(s:claim({registry = hex(3)}), 'other')
	expect(s:claim({registry = hex(3), resume = 'held'}), 'other')
	expect(s:claim({registry = hex(3), resume = 'settled'}), 'other')
	expect(s:claim({registry = hex(3), resume = 'record'}), 'yours 0 .*')
	local new = server()
	restart_redis()
	expect(new:claim({registry = hex(3), known = '0:5', ownership = hex(5), generation = '5', resume = 'settled'}), 'settling .*')
	expect(world.redis:record('meta').name, s.known.registry)
	expect(s:mark(), 'ok .*')
	wait(14000)
	expect(new:claim({registry = hex(3), known = '0:5', ownership = hex(5), generation = '5', resume = 'settled'}), 'other')
	expect(new:claim({registry = hex(3)}), 'yours 1 .*')
end

function tests.the_name_of_an_empty_registry()
	settled()
	local a, b, c = owner(), owner(), owner()
	local name = a.known.registry
	world.redis:flush()
	b.known.registry, c.known.registry = hex(2), hex(3)
	local new = server()
	expect(new:claim(), 'settling .*')
	b:restart()
	expect(b:claim({resume = 'settled'}), 'settling .*')
	expect(world.redis:record('meta').name, hex(2))
	c:restart()
	expect(c:claim({resume = 'record'}), 'settling .*')
	expect(world.redis:record('meta').name, hex(2))
	expect(taken(), '01')
	expect(a:mark(), 'ok .*')
	expect(world.redis:record('meta').name, name)
	expect(c:mark(), 'other')
	expect(world.redis:record('meta').name, name)
	wait(14000)
	expect(a:mark(), 'ok .*')
	-- what was reserved under the former name is free
	expect(new:claim({reach = at(2000)}), 'yours 1 .*')
	expect(hash('server:' .. b.common.server), 'nil')
end

-- The hash has lost its name, and nobody has brought it back yet: owners that are
-- down keep what they have.
function tests.the_name_is_removed()
	settled()
	local s, other = owner(), owner()
	local name = s.known.registry
	world.redis.hash.meta = nil
	expect(other:list(), 'list 0 s2 .* live 0 ' .. s.known.ownership .. ' 1 s3 .* live 1 .*')
	expect(other:mark(), 'ok .*')
	expect(world.redis:record('meta').name, name)
	expect(record(0).owner, s.common.server)
	-- nobody brings it back
	world.redis.hash.meta = nil
	expect(server():claim(), 'settling .*')
	wait(14000)
	expect(server():claim({reach = at(2000)}), 'yours 0 .*')
	expect(other:mark(), 'other')
end

-- And Redis' clock was set back: what was written before was heard last when the new record
-- of the registry began, and so did the round over all IDs.
function tests.the_name_is_removed_and_the_clock_set_back()
	settled()
	local few = {count = '2'}
	local s, other = owner(), owner()
	expect(server():claim(few), 'full 2 0 0 ')
	world.redis.hash.meta = nil
	jump(-3600000)
	expect(other:mark(), 'ok .*')
	expect(other:free(0, s.known.ownership), 'live s2 0')
	expect(other:list(), 'list 0 s2 %d+ ' .. at(-3586000) .. ' .*')
	wait(2001)
	expect(other:mark(), 'ok .*')
	expect(other:free(0, s.known.ownership), 'released s2')
	wait(12000)
	world.redis.hash['taken:0:0'] = '11'
	expect(server():claim(few), 'full 2 0 %d+ ')
	expect(tonumber(hash('next:0'):match('%d+ (%d+)')) < tonumber(at(0)), 'true')
end

-- An owner of another registry starts in an empty one, before those of this one are
-- heard.
function tests.the_name_of_another_for_a_moment()
	settled()
	local s = owner({latest = at(100000)})
	local function other_owner(with)
		local other = server()
		other.known = {worker = '0', ownership = hex(8), generation = tostring(s.known.generation + 9), floor = '0', registry = hex(2)}
		world.redis:flush()
		expect(other:claim(with), 'settling .*')
		expect(record(0).registry, hex(2))
		return other.common.server
	end
	-- its lease has a higher generation, and no owner
	other_owner({resume = 'record', used = at(1000)})
	expect(record(0).owner .. record(0).generation, tostring(s.known.generation + 8))
	expect(s:mark(), 'ok ' .. at(2000) .. ' .*')
	-- its ceiling cannot be
	local owner_id = other_owner({resume = 'settled', ceiling = at(100001)})
	expect(record(0).owner, owner_id)
	expect(s:mark(), 'ok ' .. at(2000) .. ' .*')
	other_owner({resume = 'settled', ceiling = at(99999)})
	expect(s:mark(), 'ok ' .. at(99999) .. ' .*')
	expect(record(0).owner, s.common.server)
	-- nor its floor
	other_owner({resume = 'settled', floor = at(100001)})
	expect(s:mark(), 'ok ' .. at(2000) .. ' .*')
end

function tests.what_redis_forgot()
	settled()
	local s, other = owner(), owner()
	local k = s.known
	-- a mark puts it back
	world.redis:flush()
	expect(s:mark(), 'ok .*')
	expect(record(0).generation .. record(0).floor .. record(0).since, k.generation .. '0' .. at(14000))
	-- one who just started has it reserved, and may use it later
	other:restart()
	expect(other:claim({resume = 'settled'}), 'settling 12000 ' .. at(26000))
	expect(record(1).claim .. record(1).instance, other.known.ownership)
	expect(server():claim(), 'settling 13000 ' .. at(27000))
	wait(12000)
	expect(other:claim({resume = 'settled'}), 'yours 1 ' .. other.known.ownership .. ' .*')
	expect(server():claim(), 'settling 1000 .*')
	wait(1000)
	expect(server():claim(), 'yours 2 .*')
end

function tests.who_has_a_forgotten_id()
	settled()
	local s = owner()
	local k = s.known
	world.redis:flush()
	-- 'record': it may have lapsed; the next owner begins above
	expect(s:claim({resume = 'record', used = at(3000), floor = at(4000)}), 'settling .*')
	expect(record(0).owner .. record(0).ceiling .. record(0).floor .. record(0).generation,
		'0' .. at(4000) .. string.format('%.0f', k.generation - 1))
	wait(12000)
	expect(s:claim({resume = 'settled', used = at(4500)}), 'yours 0 ' .. k.ownership .. ' ' .. at(4000) .. ' ' .. at(4500) .. ' .*')
	expect(record(0).since, at(26000))
	wait(1)
	world.redis.hash['0:0'] = nil
	expect(s:claim({resume = 'held', latest = at(4600)}), 'yours 0 ' .. k.ownership .. ' .*')
	world.redis:flush()
	-- a later generation, which is connected, has it
	local later = server()
	later.known = {worker = '0', ownership = hex(7), generation = tostring(k.generation + 5), floor = at(1), registry = k.registry}
	expect(s:mark(), 'ok .*')
	expect(later:mark(), 'ok .*')
	expect(s:mark(), 'lost s3 ')
	expect(record(0).floor .. record(0).ceiling, at(4000) .. at(2000))
	expect(s:mark({used = at(5000)}), 'lost s3 ')
	expect(record(0).floor .. record(0).ceiling, at(5000) .. at(2000))
	-- one that was cut off does not take it from one that is connected
	local cut_off = server()
	cut_off.known = {worker = '0', ownership = hex(8), generation = tostring(k.generation + 9), floor = at(1), registry = k.registry}
	expect(cut_off:mark({resume = 'held'}), 'lost s3 ')
	expect(cut_off:claim({resume = 'held'}), 'lost s3 ')
	restart_redis()
	expect(cut_off:mark({resume = 'held'}), 'ok .*')
	expect(later:mark(), 'lost s4 ')
	-- nor one that is not whole
	local lapsed = server()
	lapsed.known = {worker = '0', ownership = hex(9), generation = tostring(k.generation + 19), floor = at(1), registry = k.registry}
	expect(lapsed:mark({resume = 'record'}), 'lost s4 ')
	wait(2001)
	expect(lapsed:mark({resume = 'record', floor = at(6000), used = at(6001)}), 'gone')
	expect(record(0).owner .. record(0).floor .. record(0).ceiling, cut_off.common.server .. at(6001) .. at(2000))
	expect(lapsed:mark({resume = 'settled'}), 'gone')
	expect(lapsed:mark({resume = 'held', used = at(6500)}), 'ok ' .. at(6500) .. '.*')
	expect(record(0).since, at(28002))
end

function tests.its_start_in_the_settling()
	settled()
	local s = owner()
	restart_redis()
	s:restart()
	expect(s:claim({resume = 'settled', used = at(8000), floor = '0'}), 'settling .*')
	expect(record(0).floor, at(8000))
	-- what this instance has answered, holds
	expect(s:claim({resume = 'now'}), 'yours .*')
	s:restart()
	expect(s:claim({resume = 'settled'}), 'yours .*')
	promote_replica()
	s:restart()
	expect(s:claim({resume = 'settled'}), 'settling .*')
	-- a lease that lapsed may be another's
	wait(14000)
	local leased = owner({lease = '3000'})
	wait(6001)
	restart_redis()
	expect(leased:claim({resume = 'now'}), 'settling .*')
end

function tests.another_layout_or_datacenter()
	settled()
	local s, other = owner(), owner()
	expect(other:claim({count = '1'}), 'full 1 0 0 ')
	expect(other:claim({dc = '1'}), 'yours 0 .*')
	expect(hash('server:' .. other.common.server), '0:1 1:0')
	-- what Redis forgot, it uses until it has another
	local t = owner()
	world.redis:flush()
	expect(t:claim({dc = '1'}), 'settling .*')
	expect(taken(), '001')
	world.redis:flush()
	expect(t:claim({move = '1'}), 'settling .*')
	expect(taken(), '001')
	world.redis:flush()
	expect(t:claim({move = '1', leaving = '0:2'}), 'settling .*')
	expect(taken(), 'nil')
	expect(t:claim({move = '1', latest = '5'}), 'settling .*')
end

---- What it gave up

-- Of two servers with one memory, the one that has another ID by now leaves the other's.
function tests.a_memory_image_that_moves()
	settled()
	local s = owner()
	local image = setmetatable({common = s.common, n = s.n, known = s.known}, getmetatable(s))
	image:list()
	expect(image:claim({move = '1', used = at(1400)}), 'yours 1 .*')
	for _ = 1, 9 do s:list() end
	expect(s:mark(), 'ok .*')
	image.known = s.known
	expect(image:leave({ceiling = at(1400)}), s.common.server)
	expect(record(0).ceiling, at(2000))
	-- or a later start of the server
	image.common = {}
	for name, value in pairs(s.common) do image.common[name] = value end
	s:restart()
	expect(s:mark(), 'ok .*')
	expect(image:leave({n = '99'}), s.common.server)
end

function tests.what_it_gave_up()
	settled()
	local s = owner()
	local left = {known = s.known}
	expect(s:claim({move = '1'}), 'yours 1 .*')
	expect(s:mark(past(left, {ceiling = at(2001)})), 'ok .*')
	expect(taken() .. record(0).ceiling, '01' .. at(2001))
	-- the record is gone, or another's
	world.redis.hash['0:0'] = nil
	expect(s:mark(past(left)), 'ok .*')
	expect(record(0).floor .. record(0).owner .. record(0).generation, at(1500) .. '0')
	expect(s:mark(past(left, {worker = '5', ceiling = at(50)})), 'ok .*')
	expect(record(5).floor, at(50))
	local other = owner({lease = '3000'})
	expect(other:claim({move = '1', reach = at(9000)}), 'yours 0 .*')
	expect(s:mark(past(left, {ceiling = at(7000)})), 'ok .*')
	expect(record(0).ceiling .. record(0).floor .. record(0).owner, at(2000) .. at(7000) .. other.common.server)
	-- another ownership of its own, too; another registry's: not
	expect(s:mark(past(left, {worker = '1', ceiling = at(7000)})), 'ok .*')
	expect(record(1).floor .. record(1).ceiling, at(7000) .. at(2000))
	expect(s:mark(past(left, {registry = hex(3), ceiling = at(8000)})), 'ok .*')
	expect(record(0).floor, at(7000))
	-- a claim tells it, too
	expect(s:claim(past(left, {ceiling = at(8000)})), 'yours 1 .*')
	expect(record(0).floor, at(8000))
	-- a damaged one stays as it is
	world.redis.hash['0:0'] = 'x'
	expect(s:mark(past(left)), 'ok .*')
	expect(hash('0:0'), 'x')
end

-- Of a copy that has the ID reserved when its original says that it left it.
function tests.what_the_original_of_a_copy_gave_up()
	settled()
	local s = owner()
	local copy = server({server = s.common.server, boot = 'another', starts = '2'})
	copy.known = s.known
	local left = {known = s.known}
	expect(s:claim({move = '1'}), 'yours 1 .*')
	world.redis:flush()
	expect(copy:claim({resume = 'settled'}), 'settling 12000 .*')
	expect(s:mark(past(left, {ceiling = at(60000)})), 'ok .*')
	expect(record(0).owner .. record(0).token .. record(0).floor, s.common.server .. copy.common.token .. at(60000))
	-- and is refused with the one that it has now, which Redis forgets, too
	world.redis.hash['0:1'] = nil
	s:restart()
	expect(s:claim({resume = 'settled', used = at(50000)}), 'silence .*')
	expect(record(1).floor .. record(1).owner, at(50000))
	wait(12000)
	expect(copy:claim({resume = 'settled'}), 'yours 0 ' .. left.known.ownership .. ' ' .. at(60000) .. ' .*')
end

---- The settling

function tests.how_long_it_settles()
	local long, short = server({interval = '6000', lease = '60000'}), server({interval = '300'})
	expect(short:claim(), 'settling 12300 .*')
	expect(long:claim(), 'settling 72000 .*')
	expect(short:claim(), 'settling 66300 .*')
	for _ = 1, 12 do
		wait(6000)
		long:claim()
	end
	expect(long:mark(), 'ok %d+ %x+ 66000 .*')
	expect(short:claim(), 'yours .*')
	local generation = long.known.generation
	expect(short:mark(), 'ok %d+ %x+ 66000 ' .. short.known.generation)
	-- an owner that has heard of the longest brings it back
	world.redis:flush()
	expect(short:mark({span = '66000', high = '9000000000000'}), 'ok %d+ %x+ 66000 9000000000000')
	expect(short:claim({move = '1'}), 'settling 66300 .*')
	for _ = 1, 70 do
		wait(1000)
		short:mark({high = '9000000000000'})
	end
	expect(short:claim({move = '1'}), 'yours %d+ %x+ %d+ %d+ 9000000000001 .*')
	-- the longest is gone for long
	wait(127000)
	expect(short:mark(), 'ok %d+ %x+ 66000 .*')
	wait(2000)
	expect(short:mark(), 'ok %d+ %x+ 12000 .*')
	-- one that is there counts
	local longer = server({interval = '2000', lease = '19000'})
	expect(longer:claim(), 'yours .*')
	expect(short:mark({interval = '90000'}), 'ok %d+ %x+ 180000 .*')
	for _, span in ipairs({180000, 21000}) do
		for _ = 1, 182 do
			wait(2000)
			longer:mark()
		end
		expect(short:mark(), 'ok %d+ %x+ ' .. span .. ' .*')
	end
	-- whatever is stored, it is as long as the constants have it
	world.redis.hash.meta = hash('meta'):gsub('"(span)":"%d+"', '"%1":"0"'):gsub('"(longest)":"%d+"', '"%1":"0"')
	restart_redis()
	expect(server({interval = '300'}):claim(), 'settling 12300 .*')
end

function tests.a_jump_of_redis_clock()
	local s, new = server(), server()
	expect(s:claim(), 'settling 13000 .*')
	jump(1001)
	expect(s:claim(), 'settling 13000 .*')
	jump(3600000)
	expect(s:claim(), 'settling 13000 .*')
	wait(14000)
	expect(s:claim(), 'yours .*')
	jump(3600000)
	expect(new:claim(), 'yours .*')
	-- back: the clock stands still; what was silent for so long was not heard
	jump(-3600000)
	expect(s:free(1, new.known.ownership), 'live s3 0')
	wait(2000)
	expect(s:free(1, new.known.ownership), 'live s3 2000')
	wait(1)
	expect(s:free(1, new.known.ownership), 'released s3')
	expect(s:mark(), 'ok .*')
	local third = owner()
	jump(5000)
	expect(s:free(third.known.worker, third.known.ownership), 'live s4 5000')
	wait(2001)
	expect(s:free(third.known.worker, third.known.ownership), 'released s4')
end

---- The lowest free ID

-- An ID that a caller whose clock is behind has passed in this interval.
function tests.a_round_of_one_whose_clock_is_behind()
	settled()
	local all = {}
	for i = 0, 31 do all[i] = owner() end
	for i = 0, 17 do all[i]:leave({ceiling = at(i < 17 and 60000 or 5000)}) end
	expect(server():claim({reach = at(0)}), 'full 14 18 ' .. at(5000) .. ' ')
	expect(server():claim({reach = at(5000)}), 'yours 17 .*')
end

-- It does not get the one that it is about to release, or wants to leave.
function tests.a_lapsed_lease_of_its_own()
	settled()
	local s = owner({lease = '3000'})
	expect(s:claim({move = '1', count = '2'}), 'yours 1 .*')
	wait(6001)
	expect(s:claim({move = '1', leaving = '0:0', count = '2', reach = at(99999)}), 'full 2 0 0 ')
end

-- A claim does not look at all those that have a lease; a lapsed one is found by the round.
function tests.behind_many_leases()
	settled()
	local s, many = owner({lease = '5000'}), {count = '512'}
	for i = 1, 99 do
		world.redis.hash['0:' .. i], world.redis.hash['mark:0:' .. i] = hash('0:0'), hash('mark:0:0')
	end
	world.redis.hash['taken:0:0'], world.redis.hash['next:0'] = ('2'):rep(100) .. ('1'):rep(411) .. '0', nil
	expect(server():claim(many), 'yours 511 .*')
	expect(server():claim(many), 'full 512 0 0 more')
	wait(1001)
	expect(server():claim(many), 'full 512 0 0 more')
	expect(hash('next:0'), '96 .*')
	wait(10001)
	expect(s:claim(), 'yours 0 .*')
	for i = 1, 98 do world.redis.hash['mark:0:' .. i] = hash('mark:0:0') end
	expect(server():claim({count = '512', reach = at(99999)}), 'yours 99 .*')
end

-- The lowest free ID is not reached: the next one is, without a round.
function tests.a_lowest_free_id_that_is_ahead()
	settled()
	owner():leave({ceiling = at(60000)})
	expect(server():claim(), 'yours 1 .*')
	expect(hash('next:0'), '32 0 %d+')
end

-- With a thousand IDs; too slow for each mutation.
local large = {}

-- A fleet whose common clock is ahead by an hour and is set right, four times: each server
-- has another ID within twenty intervals, and newcomers get the last ones.
function large.a_fleet_whose_clock_was_ahead()
	settled()
	local hour = 3600000
	local function claim(s, reach, move)
		for _ = 1, 20 do
			local answer = s:claim({count = '1024', reach = at(reach), move = move or '0'})
			if not answer:match(' more$') then return answer end
		end
	end
	-- all of them try once in an interval, and give their former IDs back
	local function claim_all(servers, intervals, reach, time)
		local left = {}
		for _, s in ipairs(servers) do
			local former = s.known
			if not claim(s, reach, time and '1'):match('^yours') then
				left[#left + 1] = s
			elseif time then
				local now = s.known
				s.known = former
				expect(s:leave({ceiling = at(time * hour)}), '')
				s.known = now
			end
		end
		wait(1001)
		if #left > 0 and intervals > 1 then return claim_all(left, intervals - 1, reach, time) end
		expect(#left, '0')
	end
	local function servers(n)
		local list = {}
		for i = 1, n do list[i] = server() end
		return list
	end
	local function all_begin_at(list, ms)
		local has = {}
		for _, s in ipairs(list) do
			expect(has[s.known.worker], 'nil')
			has[s.known.worker] = true
			expect(s.known.floor, ms == 0 and '0' or at(ms))
		end
	end
	local fleet = servers(200)
	claim_all(fleet, 1, 1000)
	for time = 1, 4 do
		for _, s in ipairs(fleet) do expect(s:mark({ceiling = at(time * hour), used = at(time * hour)}), 'ok .*') end
		claim_all(fleet, 1, 1000, time)
		all_begin_at(fleet, 0)
	end
	local new = servers(24)
	claim_all(new, 1, 1000)
	all_begin_at(new, 0)
	expect(claim(server(), 1000), 'full 224 800 ' .. at(hour) .. ' ')
	-- their time comes
	wait(1001)
	new = servers(200)
	claim_all(new, 1, hour)
	all_begin_at(new, hour)
	expect(claim(server(), hour), 'full 424 600 ' .. at(2 * hour) .. ' ')
end

-- Runs one of them.
local function one(Redis, name)
	world = {redis = Redis.new(BASE), servers = 0, fresh = 1000, instances = 0}
	restart_redis()
	world.caller = server({name = 'caller'})
	local ok, err = pcall(tests[name] or large[name])
	if not ok then return name .. ': ' .. (type(err) == 'table' and err.failed or tostring(err)) end
end

local function names(of)
	local list = {}
	for name in pairs(of) do list[#list + 1] = name end
	table.sort(list)
	return list
end

local all, all_large = names(tests), names(large)

-- What is wrong first, if anything: the next run begins with that test, for the next
-- mutation is beside this one.
local function all_of(Redis, list)
	for i, name in ipairs(list) do
		local wrong = one(Redis, name)
		if wrong then
			table.insert(list, 1, table.remove(list, i))
			return wrong
		end
	end
end

-- A script that does not end, for it is mutated, is stopped; a loop that is compiled
-- cannot be.
local function run(Redis, is_mutated)
	if jit then jit.off() end
	debug.sethook(function()
		world.is_endless = true
		error('it does not end', 2)
	end, '', 20000000)
	local wrong = all_of(Redis, all)
	debug.sethook()
	if jit then jit.on() end
	return wrong or not is_mutated and all_of(Redis, all_large) or nil
end

return {run = run}
