/*
 * units.c
 *		The layout's numbers for the hot path.
 */
#include "postgres.h"

#include "units.h"

UnitFormat	unit_format;

/* Runs in the postmaster, after settings_define(). */
void
units_init(void)
{
	unit_format.sequence_mask = units_from_ms(1) - 1;
	unit_format.time_mask = ~unit_format.sequence_mask;
	unit_format.clock_mask = snowid_sequence_start == SEQUENCE_ZERO ?
		unit_format.time_mask : -1;
	unit_format.pair_width = server_layout.datacenter_bits + server_layout.worker_bits;
}
