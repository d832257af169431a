-- redis.lua
--		A Redis that runs the real registry.lua: one hash, a clock that can be
--		stepped, and a log of writes of which any suffix can be lost.
--
-- A script's writes are lost together or not at all, as Redis does it.  Its
-- answers are held to what the C side takes: an array of strings.

local json = require('cjson')

local Redis = {}
Redis.__index = Redis

local floor = math.floor

-- No SHA-1, but as good here.
local function sha1hex(text)
	local sum = 0
	for i = 1, #text do sum = (sum * 31 + text:byte(i)) % 2 ^ 40 end
	return string.format('%016x%024x', sum, sum)
end

-- The part of Redis' sandbox that the script needs.  It has no pairs(): a schedule is to
-- run again as it did.
local env = setmetatable({
	KEYS = {}, ARGV = {}, redis = {sha1hex = sha1hex}, cjson = json,
	ipairs = ipairs, type = type, tonumber = tonumber, tostring = tostring, pcall = pcall,
	select = select, string = string, table = table, math = math,
}, {
	__index = function(_, name) error('the script reads the global "' .. tostring(name) .. '"', 2) end,
	__newindex = function(_, name) error('the script sets the global "' .. tostring(name) .. '"', 2) end,
})

-- The script, compiled once, is bound to the Redis that is current.
local current, script

function env.redis.call(command, key, ...)
	local self = current
	if command == 'HGET' then
		return self.hash[...] or false
	elseif command == 'HSET' then
		local field, value = ...
		assert(type(value) == 'string', 'HSET of what is no string')
		return self:write(field, value)
	elseif command == 'HDEL' then
		return self:write((...), nil)
	elseif command == 'INFO' then
		return self.info
	elseif command == 'TIME' then
		return {tostring(floor(self.now / 1000)), tostring(self.now % 1000 * 1000)}
	end
	error('unknown command ' .. command)
end

function Redis.load(source)
	script = setfenv(assert(loadstring(source, '=registry.lua')), env)
end

function Redis.new(now)
	return setmetatable({hash = {}, log = {}, nlog = 0, now = now, writes = 0}, Redis)
end

-- The record of a field; nil: there is none that can be read.
function Redis:record(at)
	local ok, r = pcall(json.decode, self.hash[at])
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
	self.hash[field] = value
	self.wrote = true
	self.writes = self.writes + 1
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
	local ok, answer = pcall(script)
	if self.wrote then self:commit() end
	if not ok then return nil, tostring(answer) end
	if type(answer) ~= 'table' then return nil, 'the answer is no array' end
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
	for field in pairs(self.hash) do fields[#fields + 1] = field end
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
