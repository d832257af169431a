-- redis.lua
--		A Redis that runs the real registry.lua: one hash, a clock that can be
--		stepped, and a log of writes of which any suffix can be lost.
--
-- A script's writes are lost together or not at all, as Redis does it.  Its
-- answers are held to what the C side takes: an array of strings.
--
-- Seven of eight schedules are run "quick": the script's functions are made once and
-- not at each call, and its records are kept as tables, with a name in place of their
-- text.  The others, and all in which a record is damaged, run the script as it is.

local json = ...				-- lua-cjson, or a stand-in

local Redis = {}
Redis.__index = Redis

local insert = table.insert
local floor = math.floor

-- No hash, but as good and cheaper: each text has a number of its own.
local sums, nsums = {}, 0
local function sha1hex(text)
	local sum = sums[text]
	if not sum then
		nsums = nsums + 1
		sum = string.format('%016x%024x', nsums * 2654435761, nsums)
		sums[text] = sum
	end
	return sum
end

-- In a fixed order, since a schedule is to run again as it did; which one, the
-- schedule says.
local backwards = false
local function ordered_pairs(t)
	local keys, n = {}, 0
	for k in pairs(t) do
		local i = n
		if backwards then
			while i > 0 and keys[i] < k do keys[i + 1], i = keys[i], i - 1 end
		else
			while i > 0 and keys[i] > k do keys[i + 1], i = keys[i], i - 1 end
		end
		keys[i + 1] = k
		n = n + 1
	end
	local i = 0
	return function()
		i = i + 1
		return keys[i], t[keys[i]]
	end
end

-- The same text is matched again and again.
local matched = {}
local function match(text, pattern)
	local known = matched[pattern]
	if not known then
		known = {}
		matched[pattern] = known
	end
	local found = known[text]
	if found == nil then
		found = string.match(text, pattern) or false
		known[text] = found
	end
	return found or nil
end

local strings = setmetatable({match = match}, {__index = string})

-- The part of Redis' sandbox that the script needs.
local function environment()
	local env = {
		KEYS = {}, ARGV = {}, redis = {sha1hex = sha1hex}, cjson = json,
		pairs = ordered_pairs, ipairs = ipairs, unpack = unpack, type = type,
		tonumber = tonumber, tostring = tostring, error = error, pcall = pcall,
		select = select, next = next, assert = assert, rawget = rawget,
		setmetatable = setmetatable, string = strings, table = table, math = math,
	}
	return setmetatable(env, {
		__index = function(_, name) error('the script reads the global "' .. tostring(name) .. '"', 2) end,
		__newindex = function(_, name) error('the script sets the global "' .. tostring(name) .. '"', 2) end,
	})
end

-- Compiles the script once; it is bound to the Redis that is current.
local current
local env = environment()
local chunks, chunk = {}, nil

function env.redis.call(command, key, ...)
	local self = current
	if command == 'HGET' then
		return self.hash[...] or false
	elseif command == 'HSET' then
		local field, value = ...
		assert(type(value) == 'string' or type(value) == 'number', 'HSET of what is no string')
		return self:write(field, tostring(value))
	elseif command == 'HDEL' then
		return self.hash[...] and self:write((...), nil) or 0
	elseif command == 'INFO' then
		return self.info
	elseif command == 'TIME' then
		return {tostring(floor(self.now / 1000)), tostring(self.now % 1000 * 1000)}
	end
	error('unknown command ' .. command)
end
env.redis.pcall = env.redis.call
env.redis.error_reply = function(text) return {err = text} end

-- A record's fields depend on its text alone: it is read once.  The script
-- changes what it gets, so each gets a copy.
local decoded, copiers, written = {}, {}, 0

local function copier_of(fields)
	local parts = {'v = r.v', 'bad = r.bad', 'text = r.text'}
	for _, name in ipairs(fields) do parts[#parts + 1] = name .. ' = r.' .. name end
	return loadstring('local r = ... return {' .. table.concat(parts, ', ') .. '}')
end

local function copy_of(r, fields)
	local copy = copiers[#fields]
	if not copy then
		copy = copier_of(fields)
		copiers[#fields] = copy
	end
	return copy(r)
end

local function once(decode)
	return function(at, text, fields, marks)
		if not text then return decode(at, text, fields, marks) end
		local both = text .. (marks or '')
		local known = decoded[at]
		if not known then
			known = {}
			decoded[at] = known
		end
		local r = known[both]
		if not r then
			r = decode(at, text, fields, marks)
			known[both] = r
		end
		return copy_of(r, fields)
	end
end

-- In place of put_fields().
local function put_quick(at, r, fields)
	written = written + 1
	local name = 'record ' .. written
	decoded[at] = decoded[at] or {}
	decoded[at][name] = copy_of(r, fields)
	current:write(at, name)
end

-- The script's functions and constants once, and what is left as a function.
local function hoisted(source)
	local definitions, main, names = {}, {}, {}
	local into = main
	for line in (source .. '\n'):gmatch('(.-)\n') do
		if line:match('^local function ') or line:match('^function ') or
			line:match('^local [A-Z_]+ = ') or line:match('^local operations = ') then
			into = definitions
		elseif line:match('^[^%s}]') and not line:match('^end') then
			into = main
			local vars = line:match('^local ([%w_, ]+) = ') or line:match('^local ([%w_, ]+)$')
			if vars then
				names[#names + 1] = vars
				line = line:match(' = ') and line:gsub('^local ', '') or ''
			end
		end
		into[#into + 1] = line
	end
	return 'local ' .. table.concat(names, ', ') .. '\n' .. table.concat(definitions, '\n') ..
		'\nreturn function()\n' .. table.concat(main, '\n') .. '\nend\n'
end

function Redis.load(source)
	local function insert_before(text, what)
		local from = assert(source:find(text, 1, true), 'the script does not keep its records as it did')
		return source:sub(1, from - 1) .. what .. source:sub(from)
	end
	rawset(env, 'once', once)
	rawset(env, 'put_quick', put_quick)
	source = insert_before('\nlocal function read(at, fields)\n', ' decode = once(decode)')
	chunks.whole = setfenv(assert(loadstring(source, '=registry.lua')), env)
	source = insert_before('\nlocal function bad(at, r)\n', ' put_fields = put_quick')
	chunks.quick = setfenv(assert(loadstring(hoisted(source), '=registry.lua, hoisted')), env)()
end

function Redis.new(order, quick)
	backwards = order
	sums, nsums, matched, decoded, written = {}, 0, {}, {}, 0
	chunk = quick and chunks.quick or chunks.whole
	return setmetatable({hash = {}, log = {}, nlog = 0, now = 0, instance = 1, writes = 0}, Redis)
end

-- A second one in the same run.
function Redis.beside(first)
	return setmetatable({hash = {}, log = {}, nlog = 0, now = first.now, instance = 1, writes = 0}, Redis)
end

-- The record of a field; nil: there is none that can be read.
function Redis:record(at)
	local text = self.hash[at]
	if not text then return nil end
	local both = text .. (self.hash['mark:' .. at] or '')
	if decoded[at] and decoded[at][both] then return decoded[at][both] end
	local ok, r = pcall(json.decode, text)
	if not ok or type(r) ~= 'table' then return nil end
	local marks = string.gmatch(self.hash['mark:' .. at] or '', '%S+')
	for _, name in ipairs(at == 'meta' and {'beat'} or {'n', 'seen', 'ceiling'}) do r[name] = marks() end
	return r
end

-- The log has what was there before: field, text or false; and marks between
-- scripts.
function Redis:write(field, value)
	local log, n = self.log, self.nlog
	log[n + 1], log[n + 2] = field, self.hash[field] or false
	self.nlog = n + 2
	local is_new = self.hash[field] == nil
	self.hash[field] = value
	self.wrote = true
	self.writes = self.writes + 1
	return is_new and 1 or 0
end

-- All writes since the last time are lost together, or not.
function Redis:commit()
	self.log[self.nlog + 1], self.log[self.nlog + 2] = 0, 0
	self.nlog = self.nlog + 2
end

-- Runs the script.  Returns an array of strings; or nil and an error.
function Redis:run(key, argv)
	current = self
	env.KEYS[1] = key
	env.ARGV = argv
	self.wrote = false
	local ok, answer = pcall(chunk)
	if self.wrote then self:commit() end
	if not ok then return nil, tostring(answer) end
	if type(answer) ~= 'table' then return nil, 'the answer is no array' end
	if answer.err then return nil, answer.err end
	for i = 1, #answer do
		if type(answer[i]) ~= 'string' then
			return nil, 'the answer\'s part ' .. i .. ' is no string, but ' .. type(answer[i])
		end
	end
	for i in pairs(answer) do
		if type(i) ~= 'number' or i > #answer then return nil, 'the answer has a hole' end
	end
	return answer
end

-- FLUSHALL; it can be forgotten, too.
function Redis:flush()
	local fields = {}
	for field in ordered_pairs(self.hash) do insert(fields, field) end
	for _, field in ipairs(fields) do self:write(field, nil) end
	self:commit()
end

-- Forgets the writes of the last "scripts" scripts; all where that is nil.
function Redis:lose(scripts)
	local log, n = self.log, self.nlog
	if scripts == nil then
		self.hash, self.nlog = {}, 0
		return
	end
	while n > 0 and scripts > 0 do
		n = n - 2				-- the mark after a script
		while n > 0 and log[n] ~= 0 do
			self.hash[log[n - 1]] = log[n] or nil
			n = n - 2
		end
		scripts = scripts - 1
	end
	self.nlog = n
end

return Redis
