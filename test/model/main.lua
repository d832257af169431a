-- main.lua
--		Runs schedules; shrinks and prints what fails.  See run.

local here = assert(arg[0]:match('^(.*)/[^/]*$'))

local usage = [=[
usage: run [--seconds N] [--schedules N] [--seed N] [--all | --enough N] [--no-shrink]
           [--replay FILE | --mutate NAME | --mutations [--only TEXT]]

Looks at what the script answers call by call (answers.lua).  Then it runs the fixed
schedules (their seeds are 0, -1 ...), and random ones, each from
its seed, until the seconds or the schedules are over, or 20 have failed (--enough; --all:
it continues).  A schedule that fails is shrunk (unless --no-shrink) and printed, to be
kept in a file and run again by --replay; --seed N --schedules 1 does so for its seed.
--mutate NAME takes a guard out; --mutations does so with each statement of the
script, and each condition and guard of the C side's model, one after the other, and
tells which of --schedules (6,000) catches it.  What is not caught must be in
survivors.lua, with the reason (of these, 20 schedules are tried).
]=]

local options = {}
do
	local flags = {mutations = true, all = true, ['no-shrink'] = true}
	local i = 1
	while arg[i] do
		local name = arg[i]:match('^%-%-([%w-]+)$')
		if name and flags[name] then
			options[name] = true
		elseif name and arg[i + 1] then
			i = i + 1
			options[name] = tonumber(arg[i]) or arg[i]
		else
			io.stderr:write(usage)
			os.exit(2, true)
		end
		i = i + 1
	end
end

-- The script is full of what is not compiled, and makes closures at each call.
collectgarbage('setpause', 400)
if jit then
	jit.opt.start('maxtrace=8000', 'maxmcode=32768', 'maxsnap=1000')
end

---- Sources, with a mutation or without

local function slurp(name)
	local f = assert(io.open(here .. (name == 'registry' and '/../../src/registry/' or '/') .. name .. '.lua'))
	local text = f:read('*a')
	f:close()
	return text
end

local function load(name, ...) return assert(loadstring(slurp(name), '@' .. name .. '.lua'))(...) end

local mutations = load('mutations', slurp)
local answers, schedules, fixed = load('answers'), load('schedule'), load('fixed')
options.seed = options.seed or 1 - #fixed

local function load_world(mutation)
	local function text_of(name)
		return mutation and mutation.file == name and mutation.source or slurp(name)
	end
	local function source(name) return loadstring(text_of(name), '@' .. name .. '.lua') end
	local Redis = load('redis')
	Redis.load(text_of('registry'))
	local world = load('world', Redis, source)
	world.answers = function() return answers.run(Redis, mutation) end
	return world
end

-- Up to 0 the fixed ones, then random ones.
local function schedule_of(seed)
	if seed > 0 then return schedules.make(seed) end
	fixed[1 - seed].seed = seed
	return fixed[1 - seed]
end

---- Shrinking

local function without(steps, from, to)
	local rest = {}
	for i = 1, #steps do
		if i < from or i > to then rest[#rest + 1] = steps[i] end
	end
	return rest
end

local function shrink(world, best, kind)
	local function try(steps, setup)
		local candidate = {seed = best.seed, setup = setup, steps = steps}
		local fails = world.run(candidate) == kind
		if fails then best = candidate end
		return fails
	end
	local chunk = #best.steps
	while chunk >= 1 do
		local i, removed = 1, false
		while i <= #best.steps do
			if try(without(best.steps, i, i + chunk - 1), best.setup) then
				removed = true
			else
				i = i + chunk
			end
		end
		if not removed or chunk > 1 then chunk = math.floor(chunk / 2) end
	end
	-- a simpler world
	local function simpler(name, value)
		local setup = {}
		for k, v in pairs(best.setup) do setup[k] = v end
		setup[name] = value
		try(best.steps, setup)
	end
	for _, name in ipairs({'max_leads', 'max_jumps', 'dcs', 'sees_all', 'no_replicas'}) do simpler(name, nil) end
	simpler('offsets', {})
	simpler('mixed', false)
	simpler('lease', 0)
	for n = best.setup.servers - 1, 1, -1 do simpler('servers', n) end
	simpler('liveness', false)
	simpler('tail', 0)
	simpler('max_lead', 1000)
	return best
end

---- A schedule as text, that is Lua

local function to_text(schedule)
	local lines = {'return {seed = ' .. tostring(schedule.seed) .. ', setup = {'}
	local names = {}
	for name in pairs(schedule.setup) do names[#names + 1] = name end
	table.sort(names)
	for _, name in ipairs(names) do
		local value = schedule.setup[name]
		if type(value) == 'table' then
			local all = {}
			for i = 1, math.max(3, #value) do all[i] = tostring(value[i] or 0) end
			value = '{' .. table.concat(all, ', ') .. '}'
		end
		lines[#lines + 1] = '\t' .. name .. ' = ' .. tostring(value) .. ','
	end
	lines[#lines + 1] = '}, steps = {'
	for i, step in ipairs(schedule.steps) do
		local text = string.format("{%d, '%s'", step[1], step[2])
		for k = 3, 5 do if step[k] then text = text .. ', ' .. step[k] end end
		lines[#lines + 1] = '\t' .. text .. '},\t-- ' .. i
	end
	lines[#lines + 1] = '}}'
	return table.concat(lines, '\n')
end

---- Mutations

-- The seeds that catch mutations, the last one first: the next mutation is beside it.
local good = {}

-- The kind of the fault that a mutated world shows, and which schedule shows it.
local function catch(world, mutation, count)
	local tried = {}
	if mutation.file == 'registry' and world.answers() then return 'answer' end
	local function try(seed)
		if tried[seed] then return end
		tried[seed] = true
		local ok, kind = pcall(world.run, schedule_of(seed))
		return not ok and 'error' or kind
	end
	for i, seed in ipairs(good) do
		local kind = try(seed)
		if kind then
			table.insert(good, 1, table.remove(good, i))
			return kind, seed
		end
	end
	for seed = 1 - #fixed, count do
		local kind = try(seed)
		if kind then
			table.insert(good, 1, seed)
			return kind, seed
		end
	end
end

-- Takes out one after the other.  Those that stay uncaught must be those of
-- survivors.lua, no more and no less.
local function run_mutations()
	local survivors = load('survivors')
	local count, only = options.schedules or 6000, options.only
	local wrong, uncaught, tried = 0, 0, 0
	for _, mutation in ipairs(mutations) do
		local name = mutation.name
		if not only or name:find(only, 1, true) then
			local loads, world = pcall(load_world, mutation)
			local kind, seed = 'does not load', nil
			if loads then kind, seed = catch(world, mutation, survivors[name] and 20 or count) end
			tried = tried + 1
			local outcome = kind
			if not kind then
				uncaught = uncaught + 1
				outcome = survivors[name] and 'survives' or 'NOT CAUGHT'
			elseif survivors[name] then
				outcome = 'CAUGHT: ' .. kind
			end
			if outcome:match('CAUGHT') then wrong = wrong + 1 end
			print(string.format('%6s  %-12s %s', seed or '-', outcome, name))
			io.stdout:flush()
			survivors[name] = nil
		end
	end
	if not only then
		for name in pairs(survivors) do
			wrong = wrong + 1
			print('in survivors.lua, and no mutation: ' .. name)
		end
	end
	print(string.format('model: %d mutations, %d not caught, %d of which are not as survivors.lua says', tried, uncaught, wrong))
	os.exit(wrong == 0 and 0 or 1, true)
end

if options.mutations then run_mutations() end

---- Runs

local mutation
if options.mutate then
	for _, m in ipairs(mutations) do
		if m.name == options.mutate then mutation = m end
	end
	assert(mutation, 'there is no such mutation')
end

local world = load_world(mutation)

if options.replay then
	local kind = world.run(assert(loadfile(options.replay))(), true)
	print('model: ' .. (kind and kind .. ': ' .. world.found_text or 'nothing is wrong'))
	os.exit(kind and 1 or 0, true)
end

local wrong = not mutation and world.answers()
if wrong then
	print('model: answers: ' .. wrong)
	os.exit(1, true)
end

if not options.schedules and not options.seconds then options.schedules, options.seconds = 20000, 30 end
local enough = options.all and math.huge or options.enough or 20
local done, began, failures = 0, os.clock(), {}
local faults, cases = setmetatable({}, {__index = function() return 0 end}), {A1 = 0, A2 = 0, A3 = 0, A4 = 0, A5 = 0, A6 = 0}
while (not options.schedules or done < options.schedules) and
	(not options.seconds or os.clock() - began < options.seconds) and #failures < enough do
	local schedule = schedule_of(options.seed + done)
	local kind = world.run(schedule)
	done = done + 1
	if kind then
		faults[kind] = faults[kind] + 1
		failures[#failures + 1] = {schedule, kind, world.found_text}
	end
	for case, n in pairs(world.cases) do cases[case] = cases[case] + n end
end
io.stderr:write(string.format('%.1f s\n', os.clock() - began))

-- One of each kind in full
local shown = {}
for _, failure in ipairs(failures) do
	local schedule, kind, text = unpack(failure)
	print(string.format('seed %s: %s: %s', tostring(schedule.seed), kind, text))
	if not shown[kind] then
		if not options['no-shrink'] then schedule = shrink(world, schedule, kind) end
		print(to_text(schedule))
		world.run(schedule, true)
		print()
	end
	shown[kind] = true
end

local others = #failures - faults.overlap - faults.leak - faults.waits - faults['thrown out']
print(string.format('model: %d schedules, %d overlaps, %d leaks, %d waits, %d thrown out, %d other faults; ' ..
	'admitted: A1 %d, A2 %d, A3 %d, A4 %d, A5 %d, A6 %d', done, faults.overlap, faults.leak, faults.waits, faults['thrown out'],
	others, cases.A1, cases.A2, cases.A3, cases.A4, cases.A5, cases.A6))
os.exit(#failures == 0 and 0 or 1, true)
