/* SPDX-License-Identifier: BSD-3-Clause */
#include "runtime/base/marker.h"

#include <stdio.h>
#include <string.h>

const char *mu_marker_unserved(const struct mu_marker *marker)
{
    static const char last[] = ";gpu-bind=";
    const char *by = marker->request ? strstr(marker->request, ";by=muster;") : NULL;
    const char *bind = by ? strstr(by, last) : NULL;
    char here[64];

    if (!bind || !bind[sizeof last - 1] || !marker->job || !marker->step || marker->set)
        return NULL;
    snprintf(here, sizeof here, "%s.%s", marker->job, marker->step);
    if (marker->served && strcmp(marker->served, here) == 0)
        return NULL;
    return bind + sizeof last - 1;
}
