/* SPDX-License-Identifier: BSD-3-Clause */
/* fake_nccl.h - calls a profiler plugin as NCCL does, in each version of the interface
 *
 * Descriptors are filled byte by byte, at the places where the headers of NCCL 2.23 to
 * 2.32 have the fields: the plugin's own declarations are not used.
 */
#ifndef FAKE_NCCL_H
#define FAKE_NCCL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAKE_NCCL_VERSIONS 7

struct fake_nccl {
    void *library;
    int version;
    void *const *plugin; /* name, then five functions */
};

/* One communicator of this process. */
struct fake_comm {
    const struct fake_nccl *nccl;
    uint64_t hash, sequence;
    const char *name;
    int rank, size, nodes;
    void *context;
    int mask;      /* of the last call */
    bool captured; /* its calls are, in a CUDA graph; from version 5 on */
};

struct fake_coll {
    const char *func, *algo, *proto, *dtype;
    size_t count;
    int channels;
};

/* 0, or -1: the library or its symbol is missing. */
int fake_nccl_open(struct fake_nccl *nccl, const char *path, int version);
void fake_nccl_close(struct fake_nccl *nccl);

/* rank, size, nodes, hash and name are filled. Returns what the plugin's init does. */
int fake_comm_init(struct fake_comm *comm, const struct fake_nccl *nccl);
int fake_comm_finalize(struct fake_comm *comm);

/* Handles of events; NULL where the plugin gives none, or did not ask for them. */
void *fake_coll_start(struct fake_comm *comm, const struct fake_coll *coll);
void *fake_channel_start(struct fake_comm *comm, void *parent, int id, uint64_t when);
void fake_channel_stop(struct fake_comm *comm, void *channel, uint64_t when);
void fake_stop(struct fake_comm *comm, void *event);
/* An event that the plugin has not asked for. */
void *fake_other_start(struct fake_comm *comm, uint64_t type);

/* A collective from start to end: launched, then its channels. */
void fake_coll_run(struct fake_comm *comm, const struct fake_coll *coll, uint64_t begin,
                   uint64_t end);

#endif
