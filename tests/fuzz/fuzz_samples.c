/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_samples.c - files of samples: each that is read has a median, and is read again
 * as it is printed
 */
#define _GNU_SOURCE 1 /* memfd_create */

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/tools/samples.h"
#include "tests/fuzz/fuzz.h"

static size_t read_all(const char *text, size_t size, struct mu_sample **list)
{
    int fd = memfd_create("samples", 0);
    struct mu_err err = { 0 };
    char path[32];
    size_t n = 0;

    if (write(fd, text, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    *list = NULL;
    if (mu_samples_read(path, list, &n, &err) < 0 && !err.text[0])
        abort();
    close(fd);
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mu_sample *list, *again;
    size_t n = read_all((const char *)data, size, &list), printed;
    char *text = NULL;
    FILE *to = open_memstream(&text, &printed);

    mu_samples_head(to);
    for (size_t i = 0; i < n; i++)
        mu_sample_print(&list[i], to);
    fclose(to);
    if (read_all(text, printed, &again) != n)
        abort();
    mu_samples_sort(list, n);
    for (size_t i = 0; i < n; i++)
        for (int f = 0; f < MU_FIGURES; f++)
            if (list[i].figure[f] >= 0 &&
                mu_samples_median(list, n, list[i].host, list[i].gpu, (enum mu_figure)f,
                                  list[i].when, list[i].when) < 0)
                abort();
    free(list);
    free(again);
    free(text);
    return 0;
}
