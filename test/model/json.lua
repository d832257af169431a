-- json.lua
--		In place of lua-cjson where that is missing: flat tables of strings.

local names = {['"'] = '\\"', ['\\'] = '\\\\', ['\n'] = '\\n', ['\r'] = '\\r', ['\t'] = '\\t'}
local chars = {}
for char, name in pairs(names) do chars[name:sub(2)] = char end

local json = {}

local function quote(text)
	return '"' .. text:gsub('[%c"\\]', function(c)
		return names[c] or string.format('\\u%04x', c:byte())
	end) .. '"'
end

function json.encode(record)
	local parts = {}
	for name, value in pairs(record) do
		assert(type(value) == 'string', 'not a string: ' .. tostring(name))
		parts[#parts + 1] = quote(name) .. ':' .. quote(value)
	end
	return '{' .. table.concat(parts, ',') .. '}'
end

local function unquote(text)
	if not text:find('\\', 1, true) then return text end
	return (text:gsub('\\(.)(%x?%x?%x?%x?)', function(c, hex)
		if c == 'u' then return string.char(tonumber(hex, 16) % 256) end
		return (chars[c] or c) .. hex
	end))
end

function json.decode(text)
	local record, at = {}, 2
	if text:sub(1, 1) ~= '{' or text:sub(-1) ~= '}' then error('not an object') end
	while at < #text do
		local from, to, name = text:find('^"(.-)":"', at)
		if not from then error('not a flat object of strings') end
		local begin = to + 1
		local stop = begin
		while true do
			stop = text:find('"', stop, true)
			if not stop then error('not closed') end
			local slashes = text:sub(begin, stop - 1):match('\\*$')
			if #slashes % 2 == 0 then break end
			stop = stop + 1
		end
		record[name] = unquote(text:sub(begin, stop - 1))
		at = stop + 1
		if text:sub(at, at) == ',' then at = at + 1 end
	end
	return record
end

return json
