-- schedule.lua
--		Random schedules, from a seed.

local max, min, floor = math.max, math.min, math.floor

local schedule = {}

-- The same numbers in every Lua.
local state = 1
local function random(n)
	state = state * 16807 % 2147483647
	return floor(state / 2147483647 * n)
end

local function seed(n)
	state = (n * 69621 + 1234567) % 2147483646 + 1
	for _ = 1, 4 do random(1) end
end

local function one_of(list) return list[random(#list) + 1] end

-- Name, weight, and what draws its arguments.  "k" is the next new server.
local kinds = {
	calm = {
		{'stop', 6}, {'start', 14}, {'kill', 4}, {'kill_in', 8}, {'restart', 4},
		{'reboot', 3}, {'kill_registry', 2}, {'kill_keeper', 2}, {'pause', 4}, {'stall', 2},
		{'stall_keeper', 2}, {'hold', 2}, {'burst', 3}, {'idle', 2}, {'new', 4},
	},
	network = {{'cut', 8}, {'drop', 4}, {'noanswer', 6}, {'late', 6}, {'double', 4}, {'redis_down', 2}},
	losses = {{'lose', 14}, {'flush', 2}, {'damage', 1}, {'unname', 2}, {'save_hash', 2}, {'put_back', 3}, {'lag', 1}, {'failover', 2}},
	clocks = {{'clock', 5}, {'redis_clock', 3}},
	admin = {{'release', 8}, {'reclaim', 6}},
	settings = {{'lease', 3}, {'leave', 3}, {'come_back', 6}, {'move', 4}, {'other_redis', 4},
		{'datacenter', 3}, {'max_lead', 3}, {'max_jump', 2}},
	copies = {{'copy_files', 5}, {'copy_blocks', 5}, {'copy_memory', 2}, {'standby', 4},
		{'replicate', 3}, {'promote', 4}, {'backup', 4}, {'restore', 4}, {'revert', 2}, {'rewind', 4},
		{'initdb', 2}, {'destroy', 2}},
}

local function length()
	return one_of({0, 1, 20, 300, 1000, 3000, 6000, 8000, 13000, 20000, 40000}) + random(500)
end

local function clock_step()
	return one_of({-300000, -60000, -5000, -1500, -200, 200, 1500, 5000, 60000, 300000}) + random(100)
end

local function max_lead() return one_of({0, 1000, 1000, 20000, 90000}) end
local function max_jump() return one_of({1000, 30000, 3600000, 86400000}) end

local arguments = {
	kill_keeper = function(i) return {i, random(2)} end,
	kill_in = function(i) return {i, random(14) + 1} end,
	reboot = function(i) return {i, one_of({0, 0, clock_step()})} end,
	pause = function(i) return {i, length()} end,
	stall = function(i) return {i, length()} end,
	stall_keeper = function(i) return {i, length()} end,
	hold = function(i) return {i, random(10) + 1, length()} end,
	burst = function(i) return {i, one_of({0, 500, 1000, 90000})} end,
	cut = function(i) return {i, length()} end,
	late = function(i) return {i, one_of({20, 400, 900, 1500, 5000, 15000})} end,
	double = function(i) return {i, one_of({1, 400, 1500, 6000, 15000})} end,
	redis_down = function() return {length()} end,
	lose = function() return {one_of({0, 1, 1, 2, 2, 3, 4, 5, 7, 10, 15, 25, 40, -1}), random(2)} end,
	damage = function() return {random(3)} end,
	clock = function(i) return {i, clock_step()} end,
	redis_clock = function() return {one_of({-3600000, -60000, -4000, 4000, 60000, 3600000})} end,
	lease = function(i) return {i, one_of({0, 3000, 9000, 15000, 60000})} end,
	lag = function() return {one_of({1, 6000, 15000})} end,
	failover = function() return {one_of({3000, 30000})} end,
	datacenter = function(i) return {i, random(2)} end,
	max_lead = function(i) return {i, max_lead()} end,
	max_jump = function(i) return {i, max_jump()} end,
}

local function draw(weights, total)
	local x = random(total)
	for _, kind in ipairs(weights) do
		x = x - kind[2]
		if x < 0 then return kind[1] end
	end
end

-- Sequences that were dangerous once: steps after one another, amid the others.
-- "i" is a server, "k" a new one, "w" the worker ID that i is likely to have.
local stories = {
	function(i, k, w)			-- "meta" is removed, while a server is down
		return {{'stop', i, after = 1000}, {'unname', after = one_of({10, 8000})}, {one_of({'release', 'start', 'reclaim'}), i % 2 + 1, w, 0, after = 1},
			{'new', k, after = one_of({10, 14000})}, {one_of({'redis_down', 'idle'}), 3000, after = 14000}, {'start', i, after = 1}, {'idle', 9, after = 20000},
			setup = {servers = 2, workers = 4}}
	end,
	function(i, k, w)			-- cut off, and forgotten
		return {{'cut', i, length() + 20000}, {'lose', one_of({-1, 3, 10}), random(2)}, {'new', k}}
	end,
	function(i, k, w)			-- cut off, and released
		return {{'cut', i, length() + 20000}, {'release', i % 2 + 1, w, random(2)}, {'new', k}}
	end,
	function(i, k, w)			-- stopped, its ID given to another, all of that forgotten
		return {{'stop', i}, {'new', k}, {'lose', random(6), random(2)}, {'start', i}}
	end,
	function(i, k, w)			-- the same, of one that changes its ID
		return {{'reclaim', i}, {'new', k}, {'lose', random(8), random(2)}}
	end,
	function(i, k, w)			-- changes its ID, and is forgotten
		return {{'reclaim', i}, {'flush'}, {'new', k}}
	end,
	function(i, k, w)			-- started, and that is forgotten
		return {{'restart', i}, {'lose', 1 + random(3), random(2)}, {'kill_in', i, random(9) + 1}, {'start', i}}
	end,
	function(i, k, w)			-- a copy beside the original
		return {{one_of({'copy_blocks', 'copy_files'}), i, k}, {one_of({'kill', 'cut', 'pause', 'reboot', 'lose'}), i, 14000}, {'start', k}, {'start', i}}
	end,
	function(i, k, w)			-- a copy of the files takes over
		return {{'copy_files', i, k}, {'cut', i, 60000, after = 10}, {'start', k, after = 10}, {'idle', k, after = 40000}}
	end,
	function(i, k, w)			-- a copy by block beside the original, which is cut off when it gets its answer
		return {{'copy_blocks', i, k}, {'start', k, after = 10}, {'cut', k, 60000, after = 1500},
			{one_of({'restart', 'kill_registry', 'cut'}), i, 1, after = 100}, {'idle', k, after = 20000}}
	end,
	function(i, k, w)			-- a memory image beside the original
		return {{'copy_memory', i, k}, {'idle', 9, after = 20000}, {one_of({'restart', 'idle'}), k}, {'idle', 9, after = 20000}, setup = {liveness = random(2) == 0}}
	end,
	function(i, k, w)			-- one of which is started again
		return {{'copy_memory', i, k}, {'restart', k, after = 10}, {'idle', 9, after = 30000}}
	end,
	function(i, k, w)			-- one of which is restored in place
		return {{'copy_memory', i, k}, {'backup', k}, {'restore', k}, {one_of({'reclaim', 'idle'}), i, w}, {one_of({'reclaim', 'idle'}), k, random(3)},
			{'start', k}, {'idle', 9, after = 20000}, setup = {liveness = true}}
	end,
	function(i, k, w)			-- crashes with keys ahead, is forgotten, and back in the settling, or after it
		return {{'clock', i, one_of({30000, 300000})}, {'kill', i, after = 6000}, {'flush', after = one_of({1, 10})}, {'clock', i, one_of({-30000, -300000}), after = 1},
			{one_of({'start', 'reboot'}), i, 0, after = one_of({10, 3000, 14000, 40000})}, {one_of({'new', 'kill'}), one_of({i, k}), after = one_of({10, 14000})},
			{'new', k + 1, after = 14000}, {'new', k + 2, after = one_of({1, 30000})}, {'idle', 9, after = 60000},
			setup = {servers = 2, workers = 8, lease = one_of({9000, 15000, 0})}}
	end,
	function(i, k, w)			-- has no ID, and its keys lie ahead
		return {{'clock', i, 60000}, {'reclaim', i, after = 6000}, {'restart', i, after = 10}, {'flush', after = 12000}, {'new', k, after = 10},
			{'idle', 9, after = 85000}, setup = {servers = 2, workers = 4}}
	end,
	function(i, k, w)			-- Redis' clock is set right
		return {{'redis_clock', 3600000}, {one_of({'kill', 'cut', 'restart'}), i, 20000}, {'redis_clock', -3600000}, {'new', k}, {'release', k, w, random(2)},
			setup = {liveness = random(2) == 0}}
	end,
	function(i, k, w)			-- Redis' clock jumps, at the worst time
		return {{one_of({'flush', 'idle'}), 9}, {'redis_clock', 3600000, after = one_of({1, 100, 1000})},
			{'new', k, after = 1}, {'release', i % 2 + 1, w, 0, after = 100}, {'new', k + 1, after = 100},
			setup = {servers = 2, lease = one_of({0, 9000})}}
	end,
	function(i, k, w)			-- its generation is ahead of Redis' clock
		return {{'redis_clock', 3600000}, {'new', k, after = 1000}, {'redis_clock', -3600000, after = 20000},
			{'cut', k, 45000, after = 8000}, {'flush', after = 100}, {'new', k + 1, after = 100}, {'idle', 9, after = 55000},
			setup = {workers = 4}}
	end,
	function(i, k, w)			-- its keys lie ahead, and it changes its ID while it is cut off
		return {{'burst', i, 1000}, {'clock', i, clock_step()}, {'cut', i, 8000}, {'reclaim', i}, {'kill', i}, {'start', i}, {'new', k}}
	end,
	function(i, k, w)			-- a former owner starts beside a damaged record, or after its release
		return {{'kill', i}, {'release', i % 2 + 1, w, 0, after = 14000}, {'new', k, after = 1000}, {'stall', k, one_of({1, 4000}), after = 6000},
			{'damage', w, after = 1}, {one_of({'release', 'idle'}), i % 2 + 1, w, 0, after = one_of({1, 1000})},
			{'start', i, after = one_of({1, 1000})}, {'idle', 9, after = 30000}, setup = {servers = 2, lease = one_of({0, 0, 9000}), workers = 4}}
	end,
	function(i, k, w)			-- restored in place, and forgotten
		return {{'backup', i}, {one_of({'reclaim', 'restart', 'idle'}), i}, {one_of({'restore', 'rewind'}), i, 1}, {'start', i}, {one_of({'lose', 'new'}), k}}
	end,
	function(i, k, w)			-- restored or set back in place, when its keys lay ahead
		return {{'backup', i}, {'clock', i, 60000, after = 500}, {'clock', i, -60000, after = one_of({600, 6000})}, {one_of({'restore', 'revert'}), i, after = 10},
			{'start', i, after = 10}, {'idle', 9, after = 80000}}
	end,
	function(i, k, w)			-- a copy by block is another server, and claims; or has its name
		return {{'copy_blocks', i, k}, {'clock', i, one_of({-60000, 60000}), after = random(5000)}, {'reclaim', k, one_of({w, -1}), after = one_of({1, 13000})},
			{one_of({'initdb', 'rewind'}), k, i % 2 + 1, after = 1}, {'start', k, after = 1}, {'idle', 9, after = 80000},
			setup = {servers = 2}}
	end,
	function(i, k, w)			-- its keys lie ahead when it gives its ID away; and is gone, or forgotten
		return {{'clock', i, 60000}, {one_of({'reclaim', 'reclaim'}), i, w + 2, after = one_of({600, 6000})},
			{one_of({'idle', 'destroy', 'flush', 'restart', 'kill'}), i, after = 2500}, {one_of({'idle', 'damage'}), w, after = 10},
			{one_of({'flush', 'idle'}), 9, after = 10}, {'start', i, after = one_of({10, 8000})}, {'new', k, after = one_of({10, 500, 14000})},
			{'idle', 9, after = 85000}, setup = {workers = 4}}
	end,
	function(i, k, w)			-- its keys lie ahead, and it is forgotten while it is down, or starts
		return {{'clock', i, 60000}, {'flush', after = 6000}, {one_of({'restart', 'reboot'}), i, 0, after = 10},
			{'new', k, after = 1}, {one_of({'reclaim', 'idle'}), i, w + 2, after = one_of({1, 3000, 13000})}, {'idle', 9, after = 85000},
			setup = {workers = 4}}
	end,
	function(i, k, w)			-- its ID was given to another, and its keys lie ahead
		return {{'clock', i, 60000}, {'cut', i, 26000, after = 100}, {'release', i % 2 + 1, w, 0, after = 15000}, {'new', k, after = 1000},
			{one_of({'kill_in', 'idle'}), i, 3 + random(4), after = 9900}, {one_of({'destroy', 'idle'}), i, after = 8100}, {one_of({'reclaim', 'kill'}), k, after = 4000}, {'release', i % 2 + 1, w, 0, after = 15000}, {'new', k + 1, after = 3000},
			{'idle', 9, after = 60000}, setup = {servers = 2, workers = 4, lease = 0}}
	end,
	function(i, k, w)			-- its clock is set back as it begins
		return {{'reclaim', i}, {'new', k, after = one_of({1200, 2500})}, {'clock', k, -5000, after = random(1000)}, {'idle', 9, after = 10000}}
	end,
	function(i, k, w)			-- released, and all learn of it too late
		return {{'cut', i, one_of({40000, 60000})}, {'release', i % 2 + 1, w, 0, after = 14000}, {'new', k, after = 1000},
			{'lose', one_of({0, 0, 1}), 0, after = 8000}, {'idle', 9, after = 40000}, setup = {servers = 2, lease = 0, workers = 4}}
	end,
	function(i, k, w)			-- started after its ID was given to another, and that forgotten
		return {{'kill', i}, {'release', i % 2 + 1, w, 0, after = 14000}, {'new', k, after = 1000},
			{one_of({'flush', 'lose'}), 1 + random(5), 0, after = 8000}, {'start', i, after = 1}, {'idle', 9, after = 9000},
			setup = {servers = 2, lease = 0, workers = 4}}
	end,
	function(i, k, w)			-- cut off for long, on lease; its clock is ahead
		local lease = one_of({9000, 15000})
		return {{one_of({'clock', 'idle'}), i, floor(lease * 5 / 3)}, {'cut', i, 4 * lease, after = 12000}, {one_of({'new', 'restart'}), one_of({i, k}), after = one_of({10, 2 * lease + 1500})},
			{'new', k, after = 2 * lease}, {'flush', after = 4 * lease - 500 - 2 * lease - 1500}, {one_of({'stall', 'cut'}), k, 4500, after = 10}, {'idle', 9, after = 12000},
			setup = {lease = lease, mixed = false}}
	end,
	function(i, k, w)			-- cut off for less than the settling, on lease; its clock is ahead
		return {{'clock', i, 30000}, {'cut', i, 17500, after = 12000}, {'flush', after = 500}, {'new', k, after = 20000},
			{one_of({'stall', 'kill'}), i, 12000, after = 8000}, {'idle', 9, after = 50000}, setup = {lease = 15000, mixed = false}}
	end,
	function(i, k, w)			-- what it forgot is as old as what is cut off
		return {{'reclaim', i}, {'reclaim', i, after = 8000}, {'cut', i, 75000, after = 8000}, {'flush', after = 10}, {'new', k, after = 20000},
			{'lose', 0, 0, after = 25000}, {'idle', 9, after = 40000}, setup = {lease = 0, workers = 4}}
	end,
	function(i, k, w)			-- a release comes twice
		return {{'restart', i}, {'reclaim', i, after = 7000}, {one_of({'double', 'late'}), i, 12000, after = random(900) + 5}, {'new', k, after = 3000}, {'idle', 9, after = 20000}}
	end,
	function(i, k, w)			-- its keeper is slow as it gets another ID, and then it has no Redis
		return {{'stall_keeper', i, 8000}, {'reclaim', i, after = 100}, {'kill', i, after = 300}, {'cut', i, 60000, after = 1}, {'start', i, after = 1},
			{'new', k, after = 12000}, {'idle', 9, after = 20000}, setup = {lease = 0, mixed = false}}
	end,
	function(i, k, w)			-- a first claim among servers that mark more often is forgotten
		return {{'new', k, after = 40000}, {'lose', one_of({1, 1, 2, 3}), random(2), after = one_of({1, 10, 400})},
			{'new', k + 1, after = one_of({1, 300})}, {'idle', 9, after = 30000},
			setup = {servers = 2, leases = {1500, 1500, 0, 0, 1500}, workers = 4}}
	end,
	function(i, k, w)			-- different leases
		return {{one_of({'flush', 'lose'}), one_of({-1, 5}), 0, after = 40000}, {'new', k, after = one_of({1, 3000})}, {'idle', 9, after = 60000},
			setup = {servers = 3, leases = {60000, 3000, 3000}, workers = 4}}
	end,
	function(i, k, w)			-- started with another registry, in which others have its ID
		return {{'move', 2}, {'restart', 2, after = 1}, {'other_redis', after = 20000}, {one_of({'lose', 'flush', 'idle'}), one_of({0, 1, 5, -1}), 0, after = 10000},
			{'move', 1, after = one_of({1, 4000, 30000})}, {one_of({'redis_down', 'idle'}), 3000, after = 1}, {'restart', 1, after = 1}, {'idle', 9, after = 30000},
			setup = {servers = 2, workers = 4, lease = one_of({0, 0, 9000})}}
	end,
	function(i, k, w)			-- leaves Redis, its ID is given to another, and it comes back when Redis is away
		return {{'leave', i}, {'release', i % 2 + 1, w, 0, after = 20000}, {'new', k, after = 100}, {one_of({'redis_down', 'idle'}), 9000, after = 8000},
			{'come_back', i, after = 1}, {'idle', 9, after = 20000}, setup = {servers = 2, workers = 4, lease = 0}}
	end,
	function(i, k, w)			-- all lose power, and Redis its last writes
		return {{'reboot', 1, 0}, {'reboot', 2, 0, after = 10}, {'lose', 1 + random(12), random(2), after = one_of({100, 2000, 9000})}, {'idle', 9, after = 40000},
			setup = {servers = 2, liveness = true, lease = 0}}
	end,
	function(i, k, w)			-- revoked, and there is no other
		return {{'new', 3}, {'release', i % 2 + 1, w, 1, after = 1000}, {one_of({'destroy', 'restart', 'idle'}), 3, after = 40000},
			setup = {servers = 2, workers = 2, liveness = true, lease = 0}}
	end,
	function(i, k, w)			-- revoked, and another comes
		return {{one_of({'clock', 'idle'}), i, -60000}, {'release', i % 2 + 1, w, random(2), after = 13000}, {one_of({'new', 'restart'}), one_of({i, k}), after = 1}, {'new', k, after = 100}, {'idle', 9, after = 20000},
			setup = {servers = 2}}
	end,
	function(i, k, w)			-- cut off, released, and back
		return {{'cut', i, 20000}, {'release', i % 2 + 1, w, 0, after = 15000}, {'new', k, after = 100}, {'idle', 9, after = 15000},
			setup = {servers = 2, lease = 0, liveness = random(2) == 0}}
	end,
	function(i, k, w)			-- leases that differ by a hundred times
		return {{'cut', 1, one_of({1000, 100000})}, {one_of({'flush', 'lose'}), one_of({-1, 5}), 0, after = one_of({10, 20000})}, {'new', k, after = one_of({1, 3000})}, {'idle', 9, after = 330000},
			setup = {servers = 3, leases = {300000, 3000, one_of({0, 3000})}, workers = 4, liveness = false}}
	end,
	function(i, k, w)			-- a lease is shorter than all marks
		return {{'flush', after = one_of({10000, 13000})}, {'new', k, after = 1}, {'idle', 9, after = 30000},
			setup = {servers = 2, leases = {0, 0, 0, one_of({1500, 3000})}, workers = 4, liveness = false}}
	end,
	function(i, k, w)			-- several moves, and Redis forgets some of them
		return {{'reclaim', i}, {'reclaim', i, after = one_of({100, 7000})}, {'reclaim', i, after = one_of({100, 7000})}, {'reclaim', i, after = 7000},
			{one_of({'idle', 'restart', 'kill'}), i, after = 1}, {'lose', 1 + random(12), random(2), after = one_of({1, 3000})},
			{'new', k, after = 1}, {'new', k + 1, after = 1}, {'start', i, after = 8000}, {'idle', 9, after = 20000}, setup = {servers = 2, workers = 8}}
	end,
	function(i, k, w)			-- a copy by block takes over, and the keys lie ahead
		return {{'clock', i, one_of({-60000, 60000})}, {'copy_blocks', i, k, after = 6000}, {'clock', i, 60000, after = 1}, {one_of({'destroy', 'kill', 'cut'}), i, 60000, after = 8000},
			{'start', k, after = 1}, {one_of({'idle', 'flush', 'release'}), one_of({1, 2}), w, 0, after = 16000}, {'new', k + 1, after = 3000}, {'idle', 9, after = 70000},
			setup = {servers = 2, workers = 4}}
	end,
	function(i, k, w)			-- restored in place, and Redis forgets that, too
		return {{'backup', i}, {one_of({'reclaim', 'clock', 'idle'}), i, 60000}, {'restore', i, after = 6000}, {'start', i, after = 1},
			{'lose', 1 + random(6), random(2), after = one_of({1, 1000, 6000})}, {one_of({'restart', 'new'}), one_of({i, k}), after = 1}, {'idle', 9, after = 60000}}
	end,
	function(i, k, w)			-- steps of the clocks that are shorter than an interval
		return {{'clock', i, -one_of({200, 1500, 3000})}, {'redis_clock', one_of({-2000, 2000}), after = 100}, {one_of({'reclaim', 'restart', 'reboot'}), i, 0, after = one_of({1, 1000})},
			{'clock', i, one_of({200, 1500, 3000}), after = 500}, {one_of({'release', 'lose', 'idle'}), 1, w, 0, after = 13000}, {'new', k, after = 1}, {'idle', 9, after = 12000}}
	end,
	function(i, k, w)			-- its keeper is held between two steps, while the claim changes
		return {{one_of({'reclaim', 'restart', 'idle'}), i}, {'hold', i, 1 + random(8), one_of({500, 6000, 20000}), after = 10},
			{one_of({'reclaim', 'kill_registry', 'release', 'cut', 'flush'}), one_of({i, i % 2 + 1}), one_of({w, 0}), 1, after = one_of({1, 1000, 6000})},
			{one_of({'new', 'kill'}), one_of({i, k}), after = one_of({1000, 14000})}, {'start', i, after = 1}, {'idle', 9, after = 30000}}
	end,
	function(i, k, w)			-- a hash from before a claim is put back
		return {{'save_hash', after = 6000}, {one_of({'new', 'reclaim'}), one_of({i, k}), after = 1}, {'put_back', after = one_of({1000, 20000})},
			{one_of({'new', 'reclaim', 'restart'}), one_of({i, k + 1}), after = one_of({1, 1000})}, {'idle', 9, after = 20000}}
	end,
	function(i, k, w)			-- fifty servers, and a power failure
		if random(6) > 0 then return {{'reboot', i, 0}, {'flush'}, {'new', k}} end
		return {{'reboot', 1, 0}, {'reboot', 2, 0, after = 1}, {one_of({'flush', 'lose'}), random(60), random(2), after = one_of({1, 3000})},
			{'destroy', 3, after = 1}, {'new', 51, after = 1}, {'new', 52, after = 1}, {'idle', 9, after = 40000}, setup = {servers = 50, workers = one_of({51, 64}), liveness = false}}
	end,
}

function schedule.make(n)
	seed(n)
	local profile = {'calm'}
	local function maybe(kind, percent)
		if random(100) < percent then profile[#profile + 1] = kind end
	end
	maybe('network', 60)
	maybe('losses', 65)
	maybe('clocks', 30)
	maybe('admin', 35)
	maybe('settings', 30)
	maybe('copies', 40)
	local weights, total = {}, 0
	for _, name in ipairs(profile) do
		for _, kind in ipairs(kinds[name]) do
			weights[#weights + 1] = kind
			total = total + kind[2]
		end
	end
	local setup = {
		servers = one_of({1, 2, 2, 3}),
		workers = one_of({2, 4, 4, 8}),
		lease = one_of({0, 0, 0, 9000, 15000}),
		max_lead = one_of({0, 1000, 1000}),
		reserve = one_of({500, 2000}),
		mixed = random(8) == 0,
		tail = one_of({2000, 8000}),
		liveness = random(6) == 0,
		offsets = {},
	}
	if random(6) == 0 then setup.dcs = {0, 1, random(2), random(2), 0, 1} end
	if random(6) == 0 then setup.max_leads = {max_lead(), max_lead(), max_lead(), max_lead(), max_lead()} end
	if random(6) == 0 then setup.max_jumps = {max_jump(), max_jump(), max_jump(), max_jump(), max_jump()} end
	-- of two masters, servers see both, or wait for replicas, or both
	setup.sees_all = random(2) == 0
	setup.no_replicas = setup.sees_all and random(2) == 0
	for i = 1, 3 do setup.offsets[i] = one_of({0, 0, 0, random(3000) - 1500, clock_step()}) end

	local steps, at, known = {}, 0, setup.servers
	-- at first they get their IDs, as a rule
	if random(4) > 0 then at = 14000 + random(3000) end
	local quick = random(3) == 0
	if random(2) == 0 then
		local i = random(2) + 1
		local story = stories[random(#stories) + 1](i, 4, i - 1)
		for name, value in pairs(story.setup or {}) do setup[name] = value end
		i = min(i, setup.servers)
		known = 5
		local when = max(at, 14000) + random(5000)
		for _, step in ipairs(story) do
			when = when + (step.after or one_of({1, 200, 2500, 6000, 13000, 14000, 30000}))
			steps[#steps + 1] = {when, step[1], step[2], step[3], step[4]}
		end
	end
	for _ = 1, (#steps > 0 and one_of({0, 0, 1, 2, 4}) or 3 + random(12)) do
		local gap = one_of({0, 1, 50, 900, 2500, 5000, 6000, 13000})
		if quick then gap = floor(gap / 10) end
		at = at + gap + random(min(gap, 200) + 1)
		local name = draw(weights, total)
		local i = random(known) + 1
		local args
		if name == 'new' or name == 'copy_files' or name == 'copy_blocks' or name == 'copy_memory' or name == 'standby' then
			if known < 6 then
				known = known + 1
				args = name == 'new' and {known} or {i, known}
			end
		elseif name == 'rewind' then
			args = {i, random(known) + 1}
		elseif name == 'release' then
			args = {i, random(min(setup.workers, 4)) + (setup.dcs and 1000 * random(2) or 0), random(2)}
		else
			args = arguments[name] and arguments[name](i) or {i}
		end
		if args then
			steps[#steps + 1] = {at, name, args[1], args[2], args[3]}
			-- what is copied, is mostly started soon; what was killed, too
			if name == 'copy_files' or name == 'copy_blocks' then
				if random(4) > 0 then steps[#steps + 1] = {at + one_of({0, 100, 3000}), 'start', args[2]} end
			elseif (name == 'restore' or name == 'revert' or name == 'rewind' or name == 'stop' or
					name == 'kill' or name == 'kill_in') and random(3) > 0 then
				steps[#steps + 1] = {at + one_of({0, 100, 3000, 15000}), 'start', args[1]}
			end
		end
	end
	table.sort(steps, function(a, b)
		if a[1] ~= b[1] then return a[1] < b[1] end
		if a[2] ~= b[2] then return a[2] < b[2] end
		if a[3] ~= b[3] then return (a[3] or 0) < (b[3] or 0) end
		return (a[4] or 0) < (b[4] or 0)
	end)
	return {seed = n, setup = setup, steps = steps}
end

return schedule
