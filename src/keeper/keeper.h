/*
 * keeper.h
 *		The process "snowid keeper".
 */
#ifndef SNOWID_KEEPER_KEEPER_H
#define SNOWID_KEEPER_KEEPER_H

#include "process.h"

extern const Process keeper_process;

#endif							/* SNOWID_KEEPER_KEEPER_H */
