/* SPDX-License-Identifier: BSD-3-Clause */
#include "runtime/base/marker.h"

#include <stdio.h>
#include <string.h>

const char *mu_marker_unserved(const struct mu_marker *marker)
{
    static const char taken[] = ";by=muster;gpu-bind=";
    const char *bind = marker->request ? strstr(marker->request, taken) : NULL;
    char here[64];

    if (!bind || !bind[sizeof taken - 1] || !marker->job || !marker->step ||
        marker->set)
        return NULL;
    snprintf(here, sizeof here, "%s.%s", marker->job, marker->step);
    if (marker->served && strcmp(marker->served, here) == 0)
        return NULL;
    return bind + sizeof taken - 1;
}
