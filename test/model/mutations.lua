-- mutations.lua
--		Guards that are taken out.  Of the script: every statement, and every condition,
--		by machine.  Of the C side's model: every condition, by machine; and what is not
--		one: name, text (which must be there once), and what comes in its place.

local slurp = ...				-- reads a source

local server = {
	{'the file is not written',
		"\t\tremember(s, m, c)\n\t\tpair.remember = false", "\t\tset_identity(s, m, false)\n\t\tpair.remember = false"},
	{'the WAL has no ceiling', "\twal[m.pair.worker] = til\n", ""},
	{'the WAL is not read before the first call', "used = s.dir.wal[m.identity.claim.worker] or 0", "used = 0"},
	{'keys go beyond the lease', "\ttil = min(til, m.limit_unit)\n", ""},
	{'the past is not remembered', "\t\tnew.past = past\n", ""},
	{'the restored are the same', "file.place == s.dir.place and file.life == s.dir.life", "file.place == s.dir.place"},
	{'copies and the restored are the same',
		"if file and file.place == s.dir.place and file.life == s.dir.life then", "if file then"},
	{'starts are not counted', "m.identity.starts = m.identity.starts + 1", "m.identity.starts = 1"},
	{'calls are not counted', "m.n = m.n + 1", "m.n = 1"},
	{'the claim\'s floor is forgotten',
		"return max(own, others, claim.floor)", "return own"},
	{'a lost claim stays in the file',
		"if m.state == 'lost' then remember(s, m, nil) end",
		"if m.state == 'lost' then m.state = 'none' end"},
	{'the file does not say that it watches', "\tnew.home = 0\n", ""},
	{'asks again before the file says that it watches', " and not in_doubt(m)\n", "\n"},
	{'what cannot be read is silence', " and not m.unreadable and known", " and known"},
	{'continues with a lease', "known.lease == 0 and\n\t\ts.lease == 0 and settings_allow", "settings_allow"},
	{'the settings allow every datacenter', "floor(claim.worker / 1000) == s.dc", "true"},
	{'continues with another registry\'s claim', " and m.identity.home == s.home then", " then"},
	{'a server that leaves Redis keeps its claim', "if m.identity.claim then remember(s, m, nil) end\n\t\treturn", "return"},
	{'the span is not brought back', "m.span, m.high = tonumber(span), tonumber(high)", "m.high = tonumber(high)"},
	{'the generation is not brought back', "m.span, m.high = tonumber(span), tonumber(high)", "m.span = tonumber(span)"},
	{'a lease cannot lapse',
		"(for_good or (m.confirmed and now - m.renewed_at < s.lease))", "true"},
	{'who was cut off is sure', "return (connected or not for_good) and 'now' or 'held'", "return 'now'"},
	{'what just started is in use',
		"return for_good and not m.watching and 'settled' or 'record'", "return 'now'"},
	{'the revoked waits for another', "if by_move then r.revoked_claim = nil end", ""},
	{'the exact ceiling is not', "past.ceiling = max(used, claim.floor)", "past.ceiling = claim.floor"},
}

local registry = {
	{'all registries are one', "local knows = arg.registry == meta.name", "local knows = true"},
	{'newcomers do not settle',
		"if now < settled + num(arg.interval) then return wait_until(settled + num(arg.interval)) end", ""},
}

local protocol = {
	{'released while in use', "and (m.known and m.known.ownership == m.claim.ownership or m.unwanted == m.claim.ownership)", ""},
	{'released before the keeper has seen another one', "(m.known and m.known.ownership == m.claim.ownership or m.unwanted == m.claim.ownership)",
		"(not m.known or m.known.ownership ~= m.leaving.ownership)"},
}

local mutations = {}

local function by_hand(file, list)
	local source = slurp(file)
	for _, m in ipairs(list) do
		local name, old, new = unpack(m)
		local from, to = source:find(old, 1, true)
		assert(from and not source:find(old, to + 1, true), 'the text of a mutation is not there once: ' .. name)
		mutations[#mutations + 1] = {name = name, file = file, source = source:sub(1, from - 1) .. new .. source:sub(to + 1)}
	end
end

-- Functions that the C side does not have: the simulator's own.
local harness = {point = true, log = true, produce = true, ['Server.keeper_turn'] = true, ['Server.crash'] = true}

-- Of the script: each line that can be removed, and each condition that can be false,
-- or be without one of its lines.  Of the C side's model: the conditions.  Named after
-- function and text.
local function by_machine(file)
	local lines, named = {}, {}
	for line in (slurp(file) .. '\n'):gmatch('(.-)\n') do lines[#lines + 1] = line end

	local prefix = file == 'registry' and '' or file .. ': '
	local place = 'script'
	local function try(i, text, how)
		local before = lines[i]
		lines[i] = text
		local mutated = table.concat(lines, '\n')
		lines[i] = before
		if loadstring(mutated) then
			local name = string.format('%s%s: %s: %s', prefix, place, how, (before:gsub('^%s+', '')))
			named[name] = (named[name] or 0) + 1
			if named[name] > 1 then name = name .. ' #' .. named[name] end
			mutations[#mutations + 1] = {name = name, file = file, source = mutated}
		end
	end
	for i, line in ipairs(lines) do
		local code = line:gsub('%s*%-%- .*$', ''):gsub('^%s+', '')
		local indent, word, condition = line:match('^(%s*)(e?l?s?e?if) (.*) then$')
		place = line:match('^local function ([%w_]+)') or line:match('^function ([%w_.]+)') or
			line:match('^%a') and line ~= 'end' and 'script' or place
		if file == 'server' and (not word or harness[place]) or code == '' or code:match('^%-%-') or code:match('^local function') or
			code:match('^function') or code == 'end' or code == 'else' then
			-- nothing that is done
		elseif word then
			try(i, indent .. word .. ' false then', 'never')
			try(i, indent .. word .. ' true then', 'always')
		else
			try(i, '', 'without')
			local back = line:match('^(%s*)return ')
			if back and lines[i + 1] and not loadstring('') then try(i, back, 'without') end
		end
	end
end

by_hand('protocol', protocol)
by_hand('registry', registry)
by_hand('server', server)
by_machine('registry')
by_machine('server')
return mutations
