/* SPDX-License-Identifier: BSD-3-Clause */
/* virtual_memory.h - memory as PyTorch's expandable segments have it: ranges that are
 * created one by one, mapped behind each other into reserved addresses
 */
#ifndef TEST_VIRTUAL_MEMORY_H
#define TEST_VIRTUAL_MEMORY_H

#include <stddef.h>

/* On the current device; may have the addresses of memory that was deleted. Errors end
 * the program.
 */
void *virtual_new(size_t bytes);
/* As cudaFree, waits for the device. Other pointers and NULL: no such memory, 0. */
int virtual_delete(void *p);
/* How many ranges it has; 0: no such memory. */
long virtual_ranges(const void *p);
/* The buffer id of the memory at p. */
unsigned long long virtual_id(const void *p);

#endif
