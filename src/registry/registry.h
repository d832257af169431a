/*
 * registry.h
 *		The process "snowid registry".
 */
#ifndef SNOWID_REGISTRY_REGISTRY_H
#define SNOWID_REGISTRY_REGISTRY_H

#include "process.h"

extern const Process registry_process;

#endif							/* SNOWID_REGISTRY_REGISTRY_H */
