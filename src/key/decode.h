/*
 * decode.h
 *		The layout that a call of an SQL function uses.
 */
#ifndef SNOWID_KEY_DECODE_H
#define SNOWID_KEY_DECODE_H

#include "fmgr.h"

#include "key/layout.h"

/*
 * Returns the server's layout, or throws if it is refused; set when the library
 * is preloaded.  "first": it is the call site's first call.
 */
extern const Layout *(*decode_server_layout) (bool first);

extern const Layout *layout_of_call(FunctionCallInfo fcinfo, int layout_arg);

#endif							/* SNOWID_KEY_DECODE_H */
