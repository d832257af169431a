/*
 * serial.h
 *		A key as a serial number for people.
 */
#ifndef SNOWID_KEY_SERIAL_H
#define SNOWID_KEY_SERIAL_H

#include "fmgr.h"

#include "key/layout.h"

#pragma GCC visibility push(hidden)

#define CODE_LEN 8
#define TIME_LEN 17

/* Code, time, three fields of 10 digits at most, check digits, NUL. */
#define SERIAL_LEN (CODE_LEN + TIME_LEN + 3 * 10 + 2 + 1)

/* How a serial is written. */
typedef struct SerialForm
{
	const char *code;
	int64		offset_ms;		/* of the local time */
	bool		check_digits;
	const Layout *layout;
} SerialForm;

extern SerialForm serial_form_of_call(FunctionCallInfo fcinfo, int code_arg, int offset_arg);
extern void serial_write(const SerialForm *form, int64 id, char *buf);

#pragma GCC visibility pop

#endif							/* SNOWID_KEY_SERIAL_H */
