/*
 * state_file.h
 *		The state file, snowid/state in the data directory: its format, and what it
 *		is about.
 *
 * It must survive a restart, and is not for replicas.  It is small, rarely written, and
 * replaced as a whole, so a reader finds the old one or the new one.  Its content is a
 * StateFile, in the byte order of the machine.
 */
#ifndef SNOWID_STATE_FILE_H
#define SNOWID_STATE_FILE_H

#include "port/pg_crc32c.h"

#include "key/layout.h"

#define STATE_MAGIC 0x534e4f57	/* "SNOW" */
#define STATE_VERSION 1

/* Distinguishes a file or a directory from a copy of it. */
typedef struct Fingerprint
{
	uint64		file_system;
	uint64		inode;
	int64		birth_ns;		/* 0: the file system has none */
} Fingerprint;

/* This server's pair, granted by the settings or by Redis. */
typedef struct Claim
{
	uint64		ownership;		/* a random ID; 0: none */
	int64		floor_ms;		/* Unix; new keys of the pair are above it */
	int32		lease_ms;		/* 0: for good */
	PairId		pair;
	int32		exact;			/* 1: given up, and no key of it is above
								 * floor_ms */
	int64		generation;		/* rises with each ownership of the pair in
								 * Redis; 0: granted by the settings */
	uint64		registry;		/* the name of the one that gave it, or 0 */
} Claim;

#define PAST_CLAIMS 8

/*
 * The clock that is believed: positions of the wall clock in us, from the steady clock
 * to it.  Of another boot it says nothing.
 */
typedef struct Belief
{
	uint64		boot;			/* hash of the boot's ID; 0: none */
	int64		believed;
	int64		former;			/* it was set back from there ... */
	int64		former_until;	/* ... and may return until this second */
} Belief;

/* The content of the state file. */
typedef struct Identity
{
	Fingerprint directory;
	uint64		id[2];			/* random */
	uint64		starts;			/* how often it was started with a Redis */
	Claim		claim;
	Fingerprint content;		/* of the control file */
	uint64		home;			/* claim_home() of the claim; 0: it is not
								 * used until Redis has given it again */
	int64		span_ms;		/* as the registry gave them; see registry.lua */
	int64		high;
	Claim		past[PAST_CLAIMS];	/* given up, newest first */
	int64		ceiling_ms;		/* Unix; the highest known of the claim */
	int64		advanced_ms;	/* Unix; by snowid_advance() */
	int64		advanced_at_ms; /* Unix; by the clock, when that was done */
	Belief		belief;
	uint64		layout;			/* ceiling_layout(), when advanced_ms and the
								 * ceilings of claims by the settings were
								 * written */
} Identity;

typedef struct StateFile
{
	uint32		magic;
	uint32		version;
	Identity	identity;
	pg_crc32c	crc;
} StateFile;

StaticAssertDecl(offsetof(StateFile, crc) == 600, "the format has no padding");

#define STATE_FILE_LEN (offsetof(StateFile, crc) + sizeof(pg_crc32c))

#endif							/* SNOWID_STATE_FILE_H */
