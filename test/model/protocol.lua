-- protocol.lua
--		How a call of the script is written, and what its answers say.

local world = ...

local tonumber = tonumber
local protocol = {}

local num = tostring			-- whole, and of 13 digits at most

-- A pair as a number: 1000 for each datacenter ID, and the worker ID.
function protocol.at(pair) return math.floor(pair / 1000) .. ':' .. pair % 1000 end
local at = protocol.at

-- Is there a claim that the server leaves, and has the keeper left it?
function protocol.has_left(m)
	return m.leaving and (m.known and m.known.ownership == m.claim.ownership or m.unwanted == m.claim.ownership)
end

-- The claims that were given up: <registry>/<dc>:<w>/<ownership>/<ceiling>/<'1': that is exact>; without
-- what is held.  What the keeper still uses has no ownership: only its keys count.
local function past_of(m, leaving_used)
	local text = ''
	local leaving = m.leaving and not protocol.has_left(m) and m.leaving.ownership
	local held = m.state == 'held' and m.claim.ownership
	for _, p in ipairs(m.identity.past) do
		if p.ownership ~= leaving and p.ownership ~= held then
			text = text .. ' ' .. p.registry .. '/' .. at(p.worker) .. '/' .. p.ownership .. '/' .. num(p.ceiling) .. '/' ..
				(p.exact and '1' or '0')
		end
	end
	if m.leaving then
		text = text .. ' ' .. m.leaving.registry .. '/' .. at(m.leaving.worker) .. '/' ..
			(leaving and '0' or m.leaving.ownership) .. '/' .. num(leaving_used) .. '/0'
	end
	return text
end

-- The ownerships that this server has.
local function own_of(m)
	local text = m.entered or ''
	for _, claim in ipairs({m.state == 'held' and m.claim or {}, m.known or {}, m.leaving or {}}) do
		text = text .. ' ' .. (claim.ownership or '')
	end
	return text
end

function protocol.argv(s, m, op, own, n, interval)
	local identity = m.identity
	local dc = op == 'claim' and s.dc or math.floor((own.claim and own.claim.worker or own.from or own.worker) / 1000)
	local argv = {'version', '4', 'operation', op, 'layout', 'twitter', 'server', identity.id,
		'name', s.name, 'place', m.place, 'token', m.token, 'starts', num(identity.starts),
		'n', num(n), 'interval', num(interval), 'lease', num(s.lease), 'least', '12000',
		'latest', num(world.latest(s)), 'boot', s.machine.boot .. '/' .. s.device, 'dc', num(dc), 'count', num(world.workers),
		'registry', own.known and own.known.registry or own.claim and own.claim.registry or '',
		'span', num(m.span), 'high', num(m.high)}
	argv.pairs, argv.claim = 1000 * dc, op == 'claim' and own.known or own.claim
	local i = #argv
	local function add(name, value)
		argv[i + 1], argv[i + 2] = name, value
		i = i + 2
	end
	if op == 'claim' then
		local k = own.known
		add('fresh', own.fresh)
		add('ceiling', num(own.ceiling))
		add('reach', num(own.reach))
		add('known', k and at(k.worker) or '')
		add('ownership', k and k.ownership or '0000000000000000')
		add('generation', k and num(k.generation) or '0')
		add('floor', k and num(k.floor) or '0')
		add('used', num(own.used))
		add('resume', own.resume)
		add('up', num(own.up))
		add('move', own.move and '1' or '0')
		add('leaving', own.leaving and at(own.leaving.worker) or '')
		add('past', past_of(m, own.leaving_used))
	elseif op == 'mark' then
		add('worker', num(own.claim.worker % 1000))
		add('ownership', own.claim.ownership)
		add('generation', num(own.claim.generation))
		add('floor', num(own.claim.floor))
		add('ceiling', num(own.ceiling))
		add('used', num(own.used))
		add('resume', own.resume)
		add('past', past_of(m, own.leaving_used))
	elseif op == 'list' then
		add('from', num(own.from % 1000))
		add('records', num(own.records))
		add('own', own_of(m))
	elseif op == 'free' then
		add('worker', num(own.worker % 1000))
		add('ownership', own.ownership)
		add('force', own.force and '1' or '0')
		argv.frees, argv.worker = own.ownership, own.worker
	end
	return argv
end

function protocol.claim(answer, dc)
	return {worker = 1000 * dc + tonumber(answer[2]), ownership = answer[3], floor = tonumber(answer[4]),
		generation = tonumber(answer[6]), registry = answer[7]}, tonumber(answer[5])
end

-- The ownership of a worker ID, as list tells it, the state, and '1': the caller uses it;
-- nil: it has none.
function protocol.listed(answer, worker)
	if answer[1] == 'list' and answer[2] == tostring(worker % 1000) then return answer[10], answer[8], answer[9] end
end

return protocol
