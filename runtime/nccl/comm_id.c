/* SPDX-License-Identifier: BSD-3-Clause */
/* comm_id.c - an id for each communicator of the program, the same on all of its ranks
 */
#include "runtime/nccl/comm_id.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define PRIME 0x100000001b3ull /* of FNV-1a */

struct entry {
    void *comm;
    struct mu_nccl_id id;
    uint32_t splits;
    struct entry *next;
};

static struct {
    pthread_mutex_t lock;
    struct entry *first;
} table = { .lock = PTHREAD_MUTEX_INITIALIZER };

static struct entry **find(void *comm)
{
    struct entry **at = &table.first;

    while (*at && (*at)->comm != comm)
        at = &(*at)->next;
    return at;
}

void mu_comm_id_set(void *comm, const struct mu_nccl_id *id)
{
    struct entry *e;

    pthread_mutex_lock(&table.lock);
    e = *find(comm);
    if (!e) {
        e = malloc(sizeof *e);
        if (e) {
            e->next = table.first;
            table.first = e;
        }
    }
    if (e) {
        e->comm = comm;
        e->id = *id;
        e->splits = 0;
    }
    pthread_mutex_unlock(&table.lock);
}

/* The last bytes of an id are NCCL's padding. */
static void mix(struct mu_nccl_id *id, uint32_t value)
{
    char *at = id->internal + sizeof id->internal - sizeof(uint64_t);
    uint64_t mark;

    memcpy(&mark, at, sizeof mark);
    mark = (mark ^ (value + 1ull)) * PRIME;
    memcpy(at, &mark, sizeof mark);
}

bool mu_comm_id_split(void *comm, int color, struct mu_nccl_id *id)
{
    struct entry *e;

    pthread_mutex_lock(&table.lock);
    e = *find(comm);
    if (e) {
        *id = e->id;
        mix(id, e->splits++);
        mix(id, (uint32_t)color);
    }
    pthread_mutex_unlock(&table.lock);
    return e != NULL;
}

void mu_comm_id_drop(void *comm)
{
    struct entry **at, *e;

    pthread_mutex_lock(&table.lock);
    at = find(comm);
    e = *at;
    if (e)
        *at = e->next;
    pthread_mutex_unlock(&table.lock);
    free(e);
}
