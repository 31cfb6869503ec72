/* SPDX-License-Identifier: BSD-3-Clause */
/* fake_tuned.h - a made-up GPU and NCCL behind gpu.h and plain.h: it asks the tuner
 * plugin as NCCL does, and a collective takes the time of what the plugin chose
 *
 *   NCCL's own choice   20 us
 *   RING LL             10 us up to 256 KiB, then 60 us
 *   RING SIMPLE, 16     15 us from 1 MiB on
 *   RING LL128          1 us in the first 100 calls, then 19.9 us
 *   anything else       40 us; NVLS and CollNet do not exist
 */
#ifndef TESTS_FAKE_TUNED_H
#define TESTS_FAKE_TUNED_H

#include <stddef.h>

/* On this rank, collectives of this size by RING LL never end; 0: none does. */
void fake_tuned_hang(int rank, size_t bytes);
/* RING LL takes this long up to 256 KiB in a graph; 0: as without. */
void fake_tuned_graph(double us);
/* The host takes this long for the launch of a call that is in no graph. */
void fake_tuned_launch(double us);
/* The NCCL is one that has no interface for tuners. */
void fake_tuned_old(void);

#endif
