/*
 * statefile.h
 *		The file snowid/state in the data directory.
 */
#ifndef SNOWID_KEEPER_STATEFILE_H
#define SNOWID_KEEPER_STATEFILE_H

#include "registry/claim.h"

typedef enum StateFileResult
{
	STATE_FILE_OK,
	STATE_FILE_ABSENT,
	STATE_FILE_FAILED,			/* the reason is in the caller's buffer */
	STATE_FILE_DAMAGED			/* the same */
} StateFileResult;

extern bool statefile_lock(char *err, Size errlen);
extern void statefile_unlock(void);
extern Fingerprint statefile_fingerprint(const char *path);
extern StateFileResult statefile_read(Identity *identity, char *err, Size errlen);
extern bool statefile_write(const Identity *identity, char *err, Size errlen);

#endif							/* SNOWID_KEEPER_STATEFILE_H */
