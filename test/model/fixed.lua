-- fixed.lua
--		Schedules of their own, run before the random ones: each needs a guard that
--		random schedules rarely meet, or was a fault once.

local function setup(changes)
	local all = {servers = 1, workers = 4, lease = 0, max_lead = 1000, reserve = 500,
		mixed = false, tail = 2000, liveness = false, offsets = {}}
	for name, value in pairs(changes) do all[name] = value end
	return all
end

local lease = {lease = 9000, tail = 30000}

return {
	-- before an owner brings the name back, a server lists the IDs
	{name = 'the record of the registry itself is removed', setup = setup {servers = 2, tail = 20000}, steps = {
		{20000, 'stop', 1},
		{24000, 'unname'},
		{24010, 'release', 2, 0, 0},
		{36000, 'new', 3},
		{64000, 'has', 3, 2},
		{70000, 'redis_down', 9000},
		{70010, 'start', 1},
		{72000, 'has', 1, 0},
	}},
	{name = 'a lease of another registry is first in an empty one', setup = setup {servers = 2, leases = {0, 9000}, tail = 20000}, steps = {
		{0, 'move', 2},
		{9000, 'restart', 2},
		{50000, 'move', 2},
		{50010, 'lose', -1, 0},
		{50020, 'restart', 2},
		{70000, 'has', 1, 0},
	}},
	-- both registries' servers have the same ID, and Redis forgets all
	{name = 'moved to another registry, whose owners have its ID', setup = setup {servers = 2, reserve = 2000, tail = 8000}, steps = {
		{16758, 'move', 2},
		{17758, 'restart', 2},
		{18758, 'other_redis'},
		{38000, 'reclaim', 1},
		{43000, 'reclaim', 1},
		{49000, 'has', 1, 0},
		{49000, 'lose', -1, 0},
		{49000, 'move', 1},
		{50000, 'restart', 1},
	}},
	{name = 'killed before its file has the new ID, which Redis forgot was given back', setup = setup {servers = 2, workers = 8, liveness = true}, steps = {
		{37000, 'reclaim', 2},
		{37594, 'restart', 2},
		{37595, 'lose', 1, 0},
	}},
	{name = 'released by force, and then its record is damaged', setup = setup {servers = 2, liveness = true}, steps = {
		{38560, 'release', 2, 0, 1},
		{39560, 'damage', 0},
	}},
	{name = 'one place, two servers', setup = setup {liveness = true}, steps = {
		{16000, 'copy_memory', 1, 4},
		{16100, 'backup', 4},
		{16200, 'restore', 4},
		{16300, 'start', 4},
		{60000, 'idle', 9},
	}},
	-- another process of it has not heard that the original is alive
	{name = 'a copy by block waits, its registry process ends, and an answer is lost', setup = setup {tail = 6000}, steps = {
		{20000, 'copy_blocks', 1, 2},
		{20000, 'start', 2},
		{21000, 'kill_registry', 2},
		{21000, 'noanswer', 2, 0},
	}},
	-- it heard of the settling, and starts without Redis
	{name = 'after a reboot it waits, Redis forgets its record, and it is killed and cut off', setup = setup {servers = 2, tail = 8000}, steps = {
		{20560, 'reboot', 2, 0},
		{20570, 'lose', 40, 1},
		{29660, 'kill', 2},
		{29660, 'cut', 2, 60000},
		{29670, 'start', 2},
		{41670, 'new', 4},
	}},
	-- before its file says so, it does not ask again
	{name = 'the same, and its keeper is held before it writes that', setup = setup {servers = 2, tail = 8000}, steps = {
		{20560, 'reboot', 2, 0},
		{20560, 'hold', 2, 3, 20000},
		{20570, 'lose', 40, 1},
		{29660, 'kill', 2},
		{29660, 'cut', 2, 60000},
		{29670, 'start', 2},
		{41670, 'new', 4},
	}},
	-- it says in its next call up to where it made keys
	{name = 'a lease that Redis forgot while its server was cut off',
		setup = setup {servers = 2, workers = 8, lease = 15000, reserve = 2000, tail = 8000}, steps = {
		{24900, 'clock', 2, 30000},
		{36900, 'cut', 2, 17500},
		{37400, 'flush'},
		{57400, 'new', 4},
		{65400, 'kill', 2, 12000},
	}},
	{name = 'restored after its clock was ahead', setup = setup {servers = 2, workers = 8, tail = 80000}, steps = {
		{34440, 'backup', 2},
		{34940, 'clock', 2, 60000},
		{35540, 'clock', 2, -60000},
		{35550, 'restore', 2},
		{35560, 'start', 2},
	}},
	{name = 'the next owner\'s clock is set back', setup = setup {reserve = 2000, tail = 10000}, steps = {
		{22590, 'reclaim', 1},
		{25090, 'new', 4},
		{25140, 'clock', 4, -5000},
	}},
	{name = 'a first claim beside two masters', setup = setup {servers = 2, workers = 2, sees_all = true}, steps = {
		{16230, 'failover', 30000},
	}},
	{name = 'a lease that Redis forgot: only the WAL says where its keys end',
		setup = setup {servers = 2, workers = 8, lease = 9000, tail = 20000}, steps = {
		{48100, 'clock', 2, 30000},
		{54100, 'flush'},
		{54110, 'clock', 2, -300000},
		{54110, 'reboot', 2, 0},
		{68130, 'new', 6},
		{69500, 'kill', 2},
	}},
	-- the file has it for a moment
	{name = 'an ID is left while it is written into the file', setup = setup {tail = 20000}, steps = {
		{30000, 'new', 2},
		{30300, 'hold', 2, 1, 2500},
		{32500, 'reclaim', 2},
		{33400, 'kill_in', 2, 2},
		{34000, 'cut', 2, 60000},
		{42000, 'new', 3},
		{46000, 'start', 2},
	}},
	{name = 'the original of a copy comes back with keys ahead, after the registry was emptied',
		setup = setup {servers = 2, workers = 8, tail = 80000}, steps = {
		{33500, 'copy_blocks', 1, 4},
		{34000, 'clock', 1, 60000},
		{38500, 'flush'},
		{39100, 'start', 4},
		{40000, 'restart', 1},
		{50800, 'stall', 1, 1000},
	}},
	-- the copy has the ID, reserved in the settling, when the original says up to where it made keys
	{name = 'a copy by block of a server that left the ID with keys ahead, which Redis forgot',
		setup = setup {servers = 2, workers = 8, tail = 60000}, steps = {
		{20000, 'copy_blocks', 1, 4},
		{20500, 'clock', 1, 60000},
		{26000, 'reclaim', 1},
		{30000, 'flush'},
		{30010, 'start', 4},
		{36000, 'stop', 1},
	}},
	-- its WAL has keys of both IDs, and Redis of neither
	{name = 'the clock is set back, and the other ID has keys ahead, too',
		setup = setup {servers = 2, reserve = 2000, mixed = true, liveness = true, tail = 0}, steps = {
		{24270, 'reboot', 2, 0},
		{27740, 'lose', -1, 0},
		{27860, 'clock', 2, -300000},
	}},
	-- an answer that it cannot read, too
	{name = 'a record is damaged, its owner\'s registry process ends, and an answer is lost', setup = setup {servers = 2}, steps = {
		{20000, 'damage', 0},
		{20000, 'restart', 1},
		{21000, 'kill_registry', 1},
		{21000, 'noanswer', 1, 0},
		{26000, 'release', 2, 0, 0},
		{60000, 'has', 1, 0},
	}},
	{name = 'its keys lie ahead, and it is forgotten before it makes keys with another ID', setup = setup {servers = 2, tail = 60000}, steps = {
		{19000, 'clock', 2, 60000},
		{20000, 'max_lead', 2, 90000},
		{21000, 'reclaim', 2},
		{22000, 'flush'},
		{23000, 'new', 4},
	}},
	-- cut off for longer than a lease; then Redis forgets who has its ID now
	{name = 'a lapsed lease comes back', setup = setup(lease), steps = {
		{20000, 'cut', 1, 60000},
		{20010, 'flush'},
		{20020, 'new', 2},
		{79000, 'stall', 2, 4000},
		{79990, 'flush'},
	}},
	{name = 'a copy by block is to have another worker ID', setup = setup {servers = 2, tail = 10000}, steps = {
		{14000, 'stop', 2},
		{25000, 'copy_blocks', 1, 3},
		{26000, 'start', 3},
		{28000, 'reclaim', 3},
		{29500, 'start', 2},
	}},
	{name = 'the ceiling of a damaged record that is released', setup = setup {servers = 2, tail = 60000}, steps = {
		{20000, 'clock', 2, 60000},
		{24000, 'destroy', 2},
		{24010, 'damage', 1},
		{24020, 'release', 1, 1, 0},
		{24030, 'new', 4},
	}},
	-- the ID that it has is another's in the registry that it is moved to
	{name = 'started with another registry, while that is away', setup = setup {servers = 2, tail = 20000}, steps = {
		{20000, 'move', 2},
		{20010, 'initdb', 2},
		{60000, 'redis_down', 9000},
		{60010, 'move', 1},
		{60020, 'restart', 1},
	}},
	{name = 'leaves Redis, and comes back when Redis is away', setup = setup {servers = 2, tail = 20000}, steps = {
		{20000, 'leave', 1},
		{40000, 'release', 2, 0, 0},
		{40100, 'new', 4},
		{60000, 'redis_down', 9000},
		{60010, 'come_back', 1},
	}},
	-- a lease that was cut off for less than it lasts, among servers without one
	{name = 'the span of a lease is brought back', setup = setup {servers = 2, leases = {60000, 0}, tail = 40000}, steps = {
		{100000, 'cut', 1, 45000},
		{100010, 'flush'},
		{100020, 'new', 4},
	}},
	{name = 'its clock is set back as it starts again', setup = setup {tail = 20000}, steps = {
		{25000, 'kill', 1},
		{25000, 'clock', 1, -5000},
		{25010, 'start', 1},
	}},
	-- another server brings the highest generation back, so that the later owner
	-- keeps the ID
	{name = 'forgotten when Redis\' clock was set back, but for the generation', setup = setup {tail = 20000}, steps = {
		{20000, 'redis_clock', 3600000},
		{25000, 'new', 2},
		{60000, 'cut', 2, 60000},
		{60010, 'redis_clock', -3600000},
		{60020, 'flush'},
		{60030, 'new', 3},
		{118100, 'flush'},
	}},
	-- of two owners after A1 the later one is cut off, and Redis forgets it, too
	{name = 'who was cut off takes nothing from who is connected', setup = setup {servers = 2, tail = 80000}, steps = {
		{24000, 'cut', 1, 60000},
		{24010, 'flush'},
		{24020, 'new', 3},
		{70000, 'cut', 3, 60000},
		{70010, 'flush'},
	}},
	{name = 'what administrators do', setup = setup {servers = 3, workers = 8, liveness = true}, steps = {
		{20000, 'standby', 1, 4},
		{30000, 'replicate', 4},
		{31000, 'reclaim', 2},
		{33000, 'has', 2, 4},
		{33100, 'vacant', 1},
		{38000, 'release', 2, 2, 1},
		{45000, 'has', 3, 1},
		{45100, 'vacant', 2},
		{52000, 'stop', 1},
		{52100, 'promote', 4},
		{54500, 'has', 4, 3},
		{60000, 'kill_registry', 2},
		{62000, 'kill_keeper', 2, 1},
		{64000, 'has', 2, 4},
		{66000, 'cut', 2, 20000},
		{70000, 'reboot', 4, 0},
		{79500, 'has', 4, 3},
		{80000, 'start', 1},
		{81500, 'has', 1, 0},
		{90000, 'flush'},
		{91000, 'leave', 3},
		{95000, 'restart', 1},
		{97000, 'has', 1, 0},
		{120000, 'come_back', 3},
		{122500, 'has', 3, 1},
		{130000, 'reclaim', 4},
		{131900, 'has', 4, 2},
		{131950, 'vacant', 3},
		{132000, 'restart', 4},
		{133000, 'has', 4, 2},
		{150000, 'destroy', 2},
	}},
	{name = 'what a server with a lease does', setup = setup {servers = 1, workers = 8, lease = 9000}, steps = {
		{20000, 'has', 1, 0},
		-- after a stop it has its ID again, at once
		{22000, 'stop', 1},
		{22010, 'start', 1},
		{22100, 'has', 1, 0},
		-- also when the lease has lapsed
		{25000, 'stop', 1},
		{50000, 'start', 1},
		{50100, 'has', 1, 0},
		-- not at another boot of the machine, but for the ID of another one
		{52000, 'stop', 1},
		{52010, 'reboot', 1, 0},
		{58000, 'has', 1, 1},
		-- another server has it when two leases are over
		{60000, 'new', 2},
		{64000, 'has', 2, 2},
		{75000, 'new', 3},
		{80000, 'has', 3, 0},
		{90000, 'damage', 0},
	}},
	-- another ID than the one that was revoked, which another server can have at once
	{name = 'revoked by force', setup = setup {servers = 2, workers = 8}, steps = {
		{20000, 'release', 2, 0, 1},
		{25600, 'vacant', 0},
		{25700, 'new', 5},
		{28500, 'has', 1, 2},
		{28510, 'has', 5, 0},
	}},
	-- it gets that back, since it could not have another one
	{name = 'revoked by force, and there is no other', setup = setup {servers = 2, workers = 2}, steps = {
		{20000, 'release', 2, 0, 1},
		{42000, 'has', 1, 0},
	}},
	-- a standby's keys are not known to be few
	{name = 'a standby whose ID is revoked', setup = setup {workers = 8, tail = 20000}, steps = {
		{20000, 'standby', 1, 4},
		{30000, 'release', 1, 1, 1},
	}},
	{name = 'a former owner starts while its record is damaged', setup = setup {servers = 2, liveness = true}, steps = {
		{23000, 'kill', 2},
		{37000, 'release', 1, 1, 0},
		{38000, 'new', 4},
		{39000, 'damage', 1},
		{40000, 'start', 2},
	}},
	{name = 'found by a clock that was wrong', setup = setup {servers = 1, max_lead = 5000}, steps = {
		{20000, 'new', 2},
		{20000, 'clock', 2, 60000},
		{22000, 'clock', 2, -60000},
		{30000, 'has', 2, 1},
	}},
	{name = 'another datacenter by a reload, and back', setup = setup {}, steps = {
		{30000, 'datacenter', 1, 1},
		{37000, 'has', 1, 1000},
		{37000, 'vacant', 0},
		{40000, 'datacenter', 1, 0},
		{47000, 'has', 1, 0},
	}},
	-- twice: the second pause is longer
	{name = 'its clock is set back', setup = setup {liveness = true}, steps = {
		{30000, 'clock', 1, -60000},
		{33500, 'has', 1, 1},
		{33500, 'vacant', 0},
		{40000, 'clock', 1, -60000},
		{49000, 'vacant', 2},
		{53500, 'has', 1, 2},
	}},
	-- a former owner left a ceiling that its clock cannot have
	{name = 'its clock is set back, and Redis does not confirm its ID', setup = setup {servers = 2, max_jumps = {3600000, 3600000, 1000}}, steps = {
		{25000, 'clock', 2, 300000},
		{26000, 'cut', 2, 26000},
		{41000, 'release', 1, 1, 0},
		{42000, 'new', 3},
		{55000, 'clock', 3, 60000},
		{60000, 'kill', 3},
		{60000, 'clock', 3, -60000},
		{60010, 'start', 3},
		{65000, 'has', 3, 3},
	}},
	{name = 'a lease that lapsed, and Redis is away', setup = setup {servers = 2, lease = 9000, tail = 20000}, steps = {
		{20000, 'kill', 1},
		{50000, 'new', 3},
		{60000, 'redis_down', 9000},
		{60010, 'start', 1},
	}},
	{name = 'a server with a claim for good is cut off', setup = setup {}, steps = {
		{24000, 'cut', 1, 100000},
		{60000, 'has', 1, 0},
	}},
	-- the first call after a failure that goes well ends the pauses
	{name = 'released at once, after a failure', setup = setup {workers = 8}, steps = {
		{20000, 'drop', 1},
		{30000, 'reclaim', 1},
		{32500, 'has', 1, 1},
		{32510, 'vacant', 0},
	}},
	{name = 'cut off in a settling, and another has its ID', setup = setup {servers = 2, liveness = true}, steps = {
		{22000, 'standby', 2, 4},
		{23000, 'cut', 4, 40046},
		{24000, 'lose', 40, 0},
		{25000, 'reboot', 4, 1544},
		{58000, 'new', 6},
	}},
	{name = 'a copy by block, on lease', setup = setup {servers = 2, lease = 9000}, steps = {
		{16000, 'copy_blocks', 2, 4},
		{17000, 'stall', 2, 318},
		{17000, 'start', 4},
	}},
	{name = 'a memory image claims', setup = setup {tail = 8000}, steps = {
		{17000, 'copy_memory', 1, 4},
	}},
	-- its registry was deleted while it was down, and has another name now
	{name = 'uses the claim of a registry that is gone', setup = setup {tail = 20000}, steps = {
		{20000, 'kill', 1},
		{20010, 'flush'},
		{20020, 'new', 2},
		{60000, 'redis_down', 9000},
		{60010, 'start', 1},
	}},
	-- there is no ID for it, and it does not use the one in its file when it is cut off
	{name = 'refused, and cut off', setup = setup {servers = 2, workers = 2, tail = 20000}, steps = {
		{20000, 'reboot', 1, 0},
		{20500, 'flush'},
		{36000, 'clock', 1, -60000},
		{45000, 'cut', 1, 200000},
		{45010, 'kill_registry', 1},
		{46000, 'new', 3},
		{46010, 'clock', 1, 60000},
	}},
	-- what a stranger leaves in a record is not the owner's to be stopped by
	{name = 'another server of its registry leaves keys far ahead', setup = setup {servers = 2, lease = 9000, max_jumps = {1000, 1000}, offsets = {300058}}, steps = {
		{46000, 'move', 2},
		{47000, 'restart', 2},
		{48000, 'other_redis'},
		{76515, 'flush'},
		{76516, 'move', 1},
		{77516, 'restart', 1},
		{106000, 'has', 2, 0},
	}},
	-- the copy has the ID from the old one, and its original does not know of that yet
	{name = 'a copy by block, and two masters', setup = setup {servers = 2, no_replicas = true}, steps = {
		{21000, 'failover', 30000},
		{22000, 'copy_blocks', 1, 4},
		{23000, 'start', 4},
		{62000, 'has', 4, 0},
	}},
	{name = 'a memory image whose keeper is held as it loses its ID', setup = setup {servers = 2, workers = 2, lease = 9000, tail = 8000}, steps = {
		{14000, 'copy_memory', 2, 4},
		{15000, 'restart', 4},
		{16000, 'hold', 2, 9, 1232},
	}},
	-- the ID that it was changing from is no reason to keep the next one
	{name = 'a memory image loses the ID that it has changed to', setup = setup {servers = 1, liveness = true}, steps = {
		{28000, 'reclaim', 1},
		{29000, 'copy_memory', 1, 2},
		{30000, 'clock', 2, -299946},
	}},
	{name = 'its record is gone, and there are two masters', setup = setup {servers = 3, lease = 9000, sees_all = true}, steps = {
		{21000, 'rewind', 1, 3},
		{21475, 'start', 1},
		{22475, 'lose', 2, 1},
		{24308, 'pause', 1, 6191},
		{38000, 'lose', 10, 1},
		{44000, 'lose', 1, 1},
		{45000, 'failover', 3000},
	}},
}
