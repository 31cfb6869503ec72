/* SPDX-License-Identifier: BSD-3-Clause */
/* folder.c - remove a folder with all that is in it */
#include "tests/unit/folder.h"

#include <ftw.h>
#include <stdio.h>

static int remove_one(const char *path, const struct stat *st, int type,
                      struct FTW *ftw)
{
    return remove(path);
}

int folder_remove(const char *path)
{
    return nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}
