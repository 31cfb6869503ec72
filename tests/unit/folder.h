/* SPDX-License-Identifier: BSD-3-Clause */
/* folder.h - a test's own folder and its end */
#ifndef TEST_FOLDER_H
#define TEST_FOLDER_H

/* With all that is in it. 0, or -1 with errno. */
int folder_remove(const char *path);

#endif
