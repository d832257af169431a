-- survivors.lua
--		Mutations that neither the answers nor a schedule show, and why they stay:
--		"test/model/run --mutations" fails where another one is not caught, or where one
--		of these is.

return {
	['hand: always: if r.owner ~= owner or r.place ~= place then'] =
		'cost: a mark, which changes neither, would write five fields more',
}
