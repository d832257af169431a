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
		{'reboot', 3}, {'kill_registry', 1}, {'kill_keeper', 1}, {'pause', 4}, {'stall', 2},
		{'stall_keeper', 2}, {'burst', 3}, {'idle', 2}, {'new', 4},
	},
	network = {{'cut', 8}, {'drop', 4}, {'noanswer', 6}, {'late', 6}, {'double', 4}, {'redis_down', 2}},
	losses = {{'lose', 14}, {'flush', 2}, {'damage', 1}},
	clocks = {{'clock', 5}, {'drift', 2}, {'redis_clock', 3}},
	admin = {{'release', 8}, {'reclaim', 6}},
	settings = {{'worker_id', 7}, {'interval', 2}, {'lease', 2}},
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

local arguments = {
	kill_in = function(i) return {i, random(14) + 1} end,
	reboot = function(i) return {i, one_of({0, 0, clock_step()})} end,
	pause = function(i) return {i, length()} end,
	stall = function(i) return {i, length()} end,
	stall_keeper = function(i) return {i, length()} end,
	burst = function(i) return {i, one_of({0, 500, 1000})} end,
	cut = function(i) return {i, length()} end,
	late = function(i) return {i, one_of({20, 400, 900, 1500, 5000, 15000})} end,
	double = function(i) return {i, one_of({1, 400, 1500, 6000, 15000})} end,
	drop = function(i) return {i, 0} end,
	noanswer = function(i) return {i, 0} end,
	redis_down = function() return {length()} end,
	lose = function() return {one_of({0, 1, 1, 2, 2, 3, 4, 5, 7, 10, 15, 25, 40, -1}), random(2)} end,
	flush = function() return {} end,
	damage = function() return {random(3)} end,
	clock = function(i) return {i, clock_step()} end,
	drift = function(i) return {i, random(1001) - 500} end,
	redis_clock = function() return {one_of({-3600000, -60000, -4000, 4000, 60000, 3600000})} end,
	interval = function(i) return {i, one_of({2000, 5000, 8000})} end,
	lease = function(i) return {i, one_of({0, 9000, 15000})} end,
}

local function draw(weights, total)
	local x = random(total)
	for _, kind in ipairs(weights) do
		x = x - kind[2]
		if x < 0 then return kind[1] end
	end
end

-- What is known to have been dangerous: steps after one another, amid the others.
-- "i" is a server, "k" a new one, "w" the worker ID that i is likely to have.
local stories = {
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
	function(i, k, w)			-- asks for what it cannot have, and is forgotten
		return {{'worker_id', i, (w + 1) % 2}, {'flush'}, {'new', k}}
	end,
	function(i, k, w)			-- started, and that is forgotten
		return {{'restart', i}, {'lose', 1 + random(3), random(2)}, {'kill_in', i, random(9) + 1}, {'start', i}}
	end,
	function(i, k, w)			-- a copy beside the original
		return {{one_of({'copy_blocks', 'copy_files'}), i, k}, {one_of({'kill', 'cut', 'pause', 'reboot', 'lose'}), i, 14000}, {'start', k}, {'start', i}}
	end,
	function(i, k, w)			-- Redis' clock is set right
		return {{'redis_clock', 3600000}, {one_of({'kill', 'cut', 'restart'}), i, 20000}, {'redis_clock', -3600000}, {'new', k}, {'release', k, w, random(2)}}
	end,
	function(i, k, w)			-- its keys lie ahead, and it changes its ID while it is cut off
		return {{'burst', i, 1000}, {'clock', i, clock_step()}, {'cut', i, 8000}, {'worker_id', i, (w + 2) % 4}, {'kill', i}, {'start', i}, {'new', k}}
	end,
	function(i, k, w)			-- restored in place, and forgotten
		return {{'backup', i}, {one_of({'reclaim', 'restart', 'idle'}), i}, {one_of({'restore', 'rewind'}), i, 1}, {'start', i}, {one_of({'lose', 'new'}), k}}
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
		interval = 5000,
		max_lead = one_of({0, 1000, 1000}),
		reserve = one_of({500, 2000}),
		mixed = random(8) == 0,
		backwards = random(2) == 0,
		tail = one_of({2000, 8000}),
		liveness = random(6) == 0,
		offsets = {},
	}
	for i = 1, 3 do setup.offsets[i] = one_of({0, 0, 0, random(3000) - 1500, clock_step()}) end

	local steps, at, known = {}, 0, setup.servers
	-- at first they get their IDs, as a rule
	if random(4) > 0 then at = 14000 + random(3000) end
	local quick = random(3) == 0
	if random(3) == 0 then
		known = known + 1
		local i = random(setup.servers) + 1
		local when = max(at, 14000)
		for _, step in ipairs(stories[random(#stories) + 1](i, known, i - 1)) do
			when = when + one_of({1, 200, 2500, 6000, 13000, 14000, 30000})
			steps[#steps + 1] = {when, step[1], step[2], step[3], step[4]}
		end
	end
	for _ = 1, (#steps > 0 and random(6) or 3 + random(12)) do
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
			args = {i, random(min(setup.workers, 4)), random(2)}
		elseif name == 'worker_id' then
			args = {i, one_of({-1, 0, 1, 2}) }
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
