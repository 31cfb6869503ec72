/* SPDX-License-Identifier: BSD-3-Clause */
/* hwloc_set.c - converts hwloc's bitmap to struct mu_cpuset */
#include <string.h>

#include "spank/hw/hwloc/hwloc_reader.h"

void mu_hwloc_set(hwloc_const_bitmap_t bitmap, struct mu_cpuset *out)
{
    memset(out, 0, sizeof *out);
    if (!bitmap)
        return;
    for (int i = hwloc_bitmap_first(bitmap); i >= 0 && i < MU_CPUSET_MAX;
         i = hwloc_bitmap_next(bitmap, i))
        mu_cpuset_add(out, i);
}
