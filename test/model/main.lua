-- main.lua
--		Runs schedules; shrinks and prints what fails.  See run.

local here = assert(arg[0]:match('^(.*)/[^/]*$'))

local usage = [=[
usage: run [--seconds N] [--schedules N] [--seed N] [--replay FILE]
           [--all] [--no-shrink] [--script FILE]
           [--mutate NAME | --mutations [--only TEXT] [--known N] [--no-answers]]

Looks at what the script answers call by call (answers.lua).  Then it runs the fixed
schedules (their seeds are 0, -1 ...), and random ones, each from
its seed, until the seconds or the schedules are over, or 20 have failed (--all:
it continues).  A schedule that fails is shrunk (unless --no-shrink) and printed, to be
kept in a file and run again by --replay; --seed N --schedules 1 does the same for
its seed.
--mutate NAME takes a guard out; --mutations does so with each statement of the
script, and each condition and guard of the C side's model, one after the other, and
tells which schedule of --schedules (6,000) catches it.  What is not caught must be in
survivors.lua, with the reason (of these, --known schedules are tried: 20).
--no-answers: which ones a schedule catches.
]=]

local options = {}
do
	local flags = {mutations = true, ['no-answers'] = true, trace = true, names = true, all = true, ['no-shrink'] = true}
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
	local f = assert(io.open(name))
	local text = f:read('*a')
	f:close()
	return text
end

local script_file = options.script or here .. '/../../src/registry/registry.lua'
local mutations = assert(loadfile(here .. '/mutations.lua'))()
for _, mutation in ipairs(mutations.of('registry', slurp(script_file))) do
	mutations[#mutations + 1] = mutation
end
for _, mutation in ipairs(mutations.of('server', slurp(here .. '/server.lua'))) do
	mutations[#mutations + 1] = mutation
end

local function replace(text, mutation, file)
	local n = 0
	local from, to = 1, nil
	local old, new = mutation[3], mutation[4]
	from, to = text:find(old, 1, true)
	if not from then
		io.stderr:write(string.format('mutation "%s": its text is not in %s any more:\n%s\n', mutation[1], file, old))
		os.exit(2, true)
	end
	if text:find(old, to + 1, true) then
		io.stderr:write(string.format('mutation "%s": its text is in %s twice:\n%s\n', mutation[1], file, old))
		os.exit(2, true)
	end
	return text:sub(1, from - 1) .. new .. text:sub(to + 1)
end

local answers = assert(loadfile(here .. '/answers.lua'))()
local json
do
	local ok, found = pcall(require, 'cjson')
	json = ok and found or assert(loadfile(here .. '/json.lua'))()
end

local function load_world(mutation)
	local function source(name)
		local text = slurp(here .. '/' .. name .. '.lua')
		if mutation and mutation[2] == name then text = mutation.source or replace(text, mutation, name .. '.lua') end
		return loadstring(text, '@' .. name .. '.lua')
	end
	local Redis = assert(source('redis'))(json)
	local script = slurp(script_file)
	if mutation and mutation[2] == 'registry' then script = mutation.source or replace(script, mutation, 'registry.lua') end
	Redis.load(script)
	local world = assert(source('world'))(Redis, source)
	world.answers = function(is_mutated) return answers.run(Redis, is_mutated) end
	return world
end

local schedules = assert(loadfile(here .. '/schedule.lua'))()
local fixed = assert(loadfile(here .. '/fixed.lua'))()
options.seed = options.seed or 1 - #fixed
options.known = options.known or 20

-- Up to 0 the fixed ones, then random ones.
local function schedule_of(seed)
	if seed > 0 then return schedules.make(seed) end
	fixed[1 - seed].seed = seed
	return fixed[1 - seed]
end

---- Shrinking

local function with(schedule, steps, setup)
	return {seed = schedule.seed, setup = setup or schedule.setup, steps = steps}
end

local function without(steps, from, to)
	local rest = {}
	for i = 1, #steps do
		if i < from or i > to then rest[#rest + 1] = steps[i] end
	end
	return rest
end

local function shrink(world, schedule, kind)
	local function fails(candidate) return world.run(candidate) == kind end
	local best = schedule
	local chunk = #best.steps
	while chunk >= 1 do
		local i, removed = 1, false
		while i <= #best.steps do
			local candidate = with(best, without(best.steps, i, i + chunk - 1))
			if fails(candidate) then
				best, removed = candidate, true
			else
				i = i + chunk
			end
		end
		if not removed or chunk > 1 then chunk = math.floor(chunk / 2) end
	end
	-- a simpler world
	local function try(name, value)
		local setup = {}
		for k, v in pairs(best.setup) do setup[k] = v end
		setup[name] = value
		local candidate = with(best, best.steps, setup)
		if fails(candidate) then best = candidate end
	end
	for _, name in ipairs({'max_leads', 'max_jumps', 'dcs', 'sees_all', 'no_replicas'}) do try(name, nil) end
	try('offsets', {})
	try('mixed', false)
	try('lease', 0)
	for n = 1, best.setup.servers - 1 do
		if best.setup.servers > n then try('servers', n) end
	end
	try('liveness', false)
	try('tail', 0)
	try('max_lead', 1000)
	try('backwards', false)
	-- rounder times, and smaller numbers
	for i = 1, #best.steps do
		local function change(at, value)
			local steps = {}
			for k, step in ipairs(best.steps) do steps[k] = step end
			local step = {}
			for k = 1, 5 do step[k] = best.steps[i][k] end
			step[at] = value
			if i > 1 and step[1] < steps[i - 1][1] or steps[i + 1] and step[1] > steps[i + 1][1] then return end
			steps[i] = step
			local candidate = with(best, steps)
			if fails(candidate) then best = candidate end
		end
		change(1, math.floor(best.steps[i][1] / 1000) * 1000)
		if i > 1 then change(1, best.steps[i - 1][1] + 1000) end
	end
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

local function report(world, schedule, kind, text)
	print(string.format('seed %s: %s: %s', tostring(schedule.seed), kind, text))
	local small = schedule
	if not options['no-shrink'] then small = shrink(world, schedule, kind) end
	print(to_text(small))
	world.run(small, true)
	print()
end

---- Runs

-- Schedules from a seed on, until as many or so long.  "enough" of them failing
-- ends it.
local function run(world, first, count, seconds, enough)
	local began = os.clock()
	local done, faults, cases = 0, {}, {}
	local failures = {}
	while (not count or done < count) and (not seconds or os.clock() - began < seconds) do
		local schedule = schedule_of(first + done)
		done = done + 1
		local kind = world.run(schedule)
		if kind then
			faults[kind] = (faults[kind] or 0) + 1
			if #failures < 100000 then failures[#failures + 1] = {schedule, kind, world.found_text} end
			if #failures >= enough then break end
		end
		for case, n in pairs(world.cases) do cases[case] = (cases[case] or 0) + n end
	end
	return done, faults, cases, failures, os.clock() - began
end

local function summary(done, faults, cases)
	local function of(kind) return faults[kind] or 0 end
	local admitted = {}
	for _, case in ipairs({'A1', 'A2', 'A3', 'A4', 'A5', 'A6'}) do
		admitted[#admitted + 1] = case .. ' ' .. (cases[case] or 0)
	end
	local others = 0
	for kind, n in pairs(faults) do
		if kind ~= 'overlap' and kind ~= 'leak' and kind ~= 'waits' and kind ~= 'thrown out' then others = others + n end
	end
	return string.format('model: %d schedules, %d overlaps, %d leaks, %d waits, %d thrown out, %d other faults; admitted: %s',
		done, of('overlap'), of('leak'), of('waits'), of('thrown out'), others, table.concat(admitted, ', '))
end

if options.names then
	for _, mutation in ipairs(mutations) do print(mutation[1]) end
	os.exit(0, true)
end

-- The seeds that catch mutations: first those that caught one of the same place, the
-- last one first, then those that caught any other.
local good, good_of = {}, {}

local function put_first(list, seed)
	for i, other in ipairs(list) do
		if other == seed then table.remove(list, i) break end
	end
	table.insert(list, 1, seed)
end

-- The kind of the fault that a mutated world shows, how many schedules that took, and
-- which one it is.
local function catch(world, mutation, count)
	local tried, done = {}, 0
	if mutation[2] == 'registry' and not options['no-answers'] and world.answers(true) then return 'answer', 0 end
	local function try(seed)
		if tried[seed] then return end
		tried[seed], done = true, done + 1
		local ok, kind = pcall(world.run, schedule_of(seed))
		return not ok and 'error' or kind
	end
	for _, list in ipairs({good_of[mutation.place or mutation[2]] or {}, good}) do
		for _, seed in ipairs(list) do
			local kind = try(seed)
			if kind then return kind, done, seed end
		end
	end
	for seed = 1 - #fixed, count do
		local kind = try(seed)
		if kind then return kind, done, seed end
	end
	return nil, done
end

-- Takes out one after the other.  Those that stay uncaught must be those of
-- survivors.lua, no more and no less.
local function run_mutations()
	local survivors = assert(loadfile(here .. '/survivors.lua'))()
	local plain, passes = load_world(), {}
	local count, only = options.schedules or 6000, options.only
	local wrong, uncaught, tried, schedules, began = 0, 0, 0, 0, os.clock()
	for _, mutation in ipairs(mutations) do
		local name = mutation[1]
		if not only or name:find(only, 1, true) then
			local loads, world = pcall(load_world, mutation)
			local kind, done, seed = 'does not load', 0, nil
			if loads then kind, done, seed = catch(world, mutation, survivors[name] and options.known or count) end
			if seed then
				-- what the script without a mutation does not pass, catches nothing
				if passes[seed] == nil then passes[seed] = plain.run(schedule_of(seed)) or false end
				if passes[seed] then
					print(string.format('seed %d fails without a mutation: %s: %s', seed, passes[seed], plain.found_text))
					os.exit(1, true)
				end
				local place = mutation.place or mutation[2]
				good_of[place] = good_of[place] or {}
				put_first(good_of[place], seed)
				put_first(good, seed)
			end
			tried, schedules = tried + 1, schedules + done
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
	io.stderr:write(string.format('%d schedules, %.0f a second\n', schedules, schedules / (os.clock() - began)))
	print(string.format('model: %d mutations, %d not caught, %d of which are not as survivors.lua says', tried, uncaught, wrong))
	os.exit(wrong == 0 and 0 or 1, true)
end

if options.mutations then run_mutations() end

local mutation
if options.mutate then
	for _, m in ipairs(mutations) do
		if m[1] == options.mutate then mutation = m end
	end
	if not mutation then
		io.stderr:write('there is no mutation "' .. options.mutate .. '"\n')
		os.exit(2, true)
	end
end

local world = load_world(mutation)

if options.replay then
	local schedule = assert(loadfile(options.replay))()
	local kind = world.run(schedule, true)
	print('model: ' .. (kind and kind .. ': ' .. world.found_text or 'nothing is wrong'))
	os.exit(kind and 1 or 0, true)
end

if options.trace then
	local schedule = schedule_of(options.seed)
	local kind = world.run(schedule, true)
	print('model: ' .. (kind and kind .. ': ' .. world.found_text or 'nothing is wrong'))
	os.exit(kind and 1 or 0, true)
end

if not options.schedules and not options.seconds then options.schedules, options.seconds = 20000, 30 end
local wrong = not mutation and world.answers()
if wrong then
	print('model: answers: ' .. wrong)
	os.exit(1, true)
end
local done, faults, cases, failures, took = run(world, options.seed, options.schedules, options.seconds,
	options.all and math.huge or options.enough or 20)
local shown = {}
for _, failure in ipairs(failures) do
	local kind = failure[2]
	if (shown[kind] or 0) < (options.show or 1) then
		shown[kind] = (shown[kind] or 0) + 1
		report(world, failure[1], kind, failure[3])
	else
		print(string.format('seed %s: %s: %s', tostring(failure[1].seed), kind, failure[3]))
	end
end
io.stderr:write(string.format('%.1f s\n', took))
print(summary(done, faults, cases))
os.exit(#failures == 0 and 0 or 1, true)
