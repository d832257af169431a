-- survivors.lua
--		Mutations that neither the answers nor a schedule show, and why they stay:
--		"test/model/run --mutations" fails where another one is not caught, or where one
--		of these is.
--
-- "cost": without it more is written or called, or a server waits for longer.
-- "opening.c": keeper/opening.pl holds it against what must be so.

return {
	['put_fields: without: r.text = text'] =
		'cost: a record that is put twice in one call would be written twice',
	['part_of: always: if not parts[name] then'] =
		'cost: the same part would be read again and again in one call',
	['server: keeper_turn: never: if not m.identity.claim or m.identity.claim.ownership ~= c.ownership then'] =
		'opening.c: the floor of a standby\'s new claim.  It is above the record\'s only where Redis forgot a ceiling: A1',
	['server: keeper_turn: always: if not m.identity.claim or m.identity.claim.ownership ~= c.ownership then'] =
		'cost: another lease would raise the floor of a standby, which waits for it when it is promoted',
	['server: keeper_turn: never: if m.open then'] =
		'opening.c: an open gate is not opened again.  Here that would be at the same unit, since a turn is one step',
	['server: keeper_turn: always: if pair.remember then'] =
		'cost: the file would be written at each opening',
	['server: refuse: always: if m.state == \'held\' or m.known then'] =
		'cost: the file would be written at each refusal, though it has no claim',
	['server: claim_worker_id: always: elseif a == \'full\' then'] =
		'another answer never comes here; registry/nonsense.pl has those',
	['server: claim_worker_id: never: elseif a == \'full\' and answer[5] == \'more\' then'] =
		'cost: the rest of the table is looked at by the next call, an interval later',
	['server: mark: always: elseif a == \'revoked\' then'] =
		'another answer never comes here; registry/nonsense.pl has those',
	['server: serve_request: always: if m.state == \'held\' and m.confirmed and not m.leaving then'] =
		'an administrator has to wait for the change before; without it, the script waits for copies, and the list of past claims frees what is left over',
	['server: Server.restart_keeper: never: if asked then'] =
		'a keeper that closes the gate as it leaves, and one that does not, are both safe',
	['server: Server.restart_keeper: always: if asked then'] =
		'a keeper that closes the gate as it leaves, and one that does not, are both safe',
}
