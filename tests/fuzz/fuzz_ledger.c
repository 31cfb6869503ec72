/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_ledger.c - ledger files: what the check lets through is joined and printed
 *
 * The input is the contents of two small files: the head, two communicators, calls and
 * buckets, each file a half. Words that a file of another kind has are set right, for
 * unit tests have those.
 */
#define _GNU_SOURCE 1 /* memfd_create */

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/tools/profile.h"
#include "tests/fuzz/fuzz.h"

#define RECORDS MU_LEDGER_RECORDS_MIN
#define CALLS 24 /* from the input; the others are empty */

/* Copies at most `room` bytes of the input. */
static void take(char *to, size_t room, const uint8_t **data, size_t *size)
{
    size_t n = *size < room ? *size : room;

    memcpy(to, *data, n);
    *data += n;
    *size -= n;
}

static int make_file(const uint8_t *data, size_t size, char path[32])
{
    size_t calls = mu_ledger_file_size(RECORDS);
    size_t all = calls + RECORDS * sizeof(struct mu_ledger_bucket);
    char *image = calloc(1, all);
    struct mu_ledger_head *head = (struct mu_ledger_head *)image;
    int fd = memfd_create("ledger", 0);

    take(image, sizeof *head, &data, &size);
    take((char *)mu_ledger_comms(image), 2 * sizeof(struct mu_ledger_comm), &data,
         &size);
    take((char *)mu_ledger_calls(image), CALLS * sizeof(struct mu_ledger_call), &data,
         &size);
    take(image + calls, all - calls, &data, &size);
    memcpy(head->magic, MU_LEDGER_MAGIC, sizeof head->magic);
    head->order = 0x01020304;
    head->records = RECORDS;
    if (write(fd, image, all) != (ssize_t)all)
        abort();
    free(image);
    snprintf(path, 32, "/proc/self/fd/%d", fd);
    return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[2][32], *paths[] = { path[0], path[1] };
    int fds[] = { make_file(data, size / 2, path[0]),
                  make_file(data + size / 2, size - size / 2, path[1]) };
    FILE *nowhere = fopen("/dev/null", "w");
    struct mu_profile p;

    if (mu_profile_load(&p, paths, 2, NULL, nowhere) == 0) {
        mu_profile_text(&p, nowhere);
        mu_profile_trace(&p, nowhere);
        json_decref(mu_profile_json(&p));
    }
    mu_profile_clear(&p);
    fclose(nowhere);
    close(fds[0]);
    close(fds[1]);
    return 0;
}
