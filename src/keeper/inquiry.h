/*
 * inquiry.h
 *		The process "snowid origin", and how the keeper asks it.
 */
#ifndef SNOWID_KEEPER_INQUIRY_H
#define SNOWID_KEEPER_INQUIRY_H

#include "keeper/origin.h"

/* PostgreSQL looks it up by name. */
extern PGDLLEXPORT void snowid_origin_main(Datum main_arg);

#pragma GCC visibility push(hidden)

typedef enum InquiryResult
{
	INQUIRY_PENDING,
	INQUIRY_ANSWERED,
	INQUIRY_FAILED				/* the reason is in the caller's buffer */
} InquiryResult;

extern Size inquiry_shmem_size(void);
extern void inquiry_shmem_init(void);
extern void inquiry_register(void);
extern InquiryResult inquiry_ask(const OriginQuestion *question, Ceiling *answer,
								 char *err, Size errlen);

#pragma GCC visibility pop

#endif							/* SNOWID_KEEPER_INQUIRY_H */
