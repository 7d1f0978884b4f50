/* Threads that share the chunks of one task at a time. Knows nothing of tensors. */
#ifndef DLSP_POOL_H
#define DLSP_POOL_H

#include <stdint.h>

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

typedef void (*pool_task)(void *argument, int64_t chunk);

/* Run task(argument, 0 .. chunks-1), the caller's thread included; returns when all are done. A
   second caller that comes meanwhile does its task alone. */
void pool_run(pool_task task, void *argument, int64_t chunks);

/* How many threads share a task from now on, the caller's included. Returns how many do: fewer
   where the system gives no more. */
EXPORT int pool_set_threads(int threads);

#endif
