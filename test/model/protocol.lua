-- protocol.lua
--		How a call of the script is written, and what its answers say.

local world = ...

local format = string.format
local protocol = {}

local function num(x) return format('%.0f', x) end

-- the first version
function protocol.argv(s, m, op, own, n, interval)
	local node = m.node
	local argv = {op, world.instance, 'twitter', node.id, s.name, m.token, num(node.starts),
		num(n), num(interval), num(s.lease), '0'}
	local k = own.known
	local a
	if op == 'claim' then
		a = {num(world.workers), num(own.wanted), own.boot, own.fresh, num(own.ceiling),
			num(own.reach), k and '0:' .. k.worker or '', k and k.ownership or '0000000000000000',
			own.owner and '1' or '0', num(own.used), own.unchanged, own.move and '1' or '0',
			own.leaving and '0:' .. own.leaving.worker or ''}
	elseif op == 'mark' then
		a = {num(own.claim.worker), num(own.ceiling), num(own.used)}
	elseif op == 'release' then
		a = {num(own.claim.worker), own.claim.ownership, own.ceiling and num(own.ceiling) or ''}
	elseif op == 'list' then
		a = {num(own.from), num(own.count)}
	elseif op == 'free' then
		a = {num(own.worker), own.ownership, own.force and '1' or '0'}
	end
	for i = 1, #a do argv[11 + i] = a[i] end
	argv.frees = own.ownership
	return argv
end

function protocol.claim(answer)
	return {worker = tonumber(answer[2]), ownership = answer[3], floor = tonumber(answer[4]),
		generation = 0}, tonumber(answer[5])
end

-- The ownership of a worker ID, as list tells it; nil: it has none.
function protocol.listed(answer, worker)
	if answer[1] == 'list' and answer[2] == tostring(worker) then return answer[10], answer[8] end
end

return protocol
