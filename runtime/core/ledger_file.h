/* SPDX-License-Identifier: BSD-3-Clause */
/* ledger_file.h - the file of a process's collectives: what the profiler plugin writes
 * and muster report reads
 *
 * The file is the image of these structs in the byte order of its machine: the head,
 * MU_LEDGER_COMMS communicators, then a ring of head.records calls. Call number n (from
 * 0) has slot n % records. Behind it may be a ring of buckets. The size is fixed when
 * the file is made. Times are nanoseconds.
 */
#ifndef MU_LEDGER_FILE_H
#define MU_LEDGER_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/err.h"

#define MU_LEDGER_MAGIC "muster-ledger-1" /* 16 bytes with the terminator */
#define MU_LEDGER_SUFFIX ".ledger"
#define MU_LEDGER_COMMS 256
#define MU_LEDGER_LIBMUSTER 256 /* as interface: libmuster, on the host */
#define MU_LEDGER_RANKS_MAX (1 << 20)
#define MU_LEDGER_RECORDS_MIN 64
#define MU_LEDGER_RECORDS_MAX (1 << 24)

struct mu_ledger_head {
    char magic[16];
    uint32_t order;   /* 0x01020304 */
    uint32_t records; /* slots of the ring, a power of two */
    uint64_t calls;   /* recorded so far; the last `records` of them are in the ring */
    uint32_t comms;   /* made so far; those beyond the table share the last entry */
    uint32_t interface; /* version of NCCL's profiler interface, 0 unknown; or below */
    /* One moment on both clocks: calls have CLOCK_MONOTONIC, which ends at a reboot. */
    uint64_t opened_real, opened_monotonic;
    int32_t rank; /* RANK or SLURM_PROCID, -1 unknown */
    int32_t pid;
    char host[64];
    char job[32]; /* "1234.0", "" outside of Slurm */
    /* Where the process runs; 0 and "" unknown, as in files of earlier releases. */
    char gpu[32];     /* PCI bus id of its first GPU, from MUSTER_PLAN */
    char nic[16];     /* the nearest one, from there */
    int32_t cpus;     /* that it may use */
    int16_t cpu_node; /* 1 + the NUMA node of all of these, -1: they are in several */
    int16_t gpu_node; /* 1 + the NUMA node of the GPU */
    /* The ring of buckets, 0: the file has none, as those of NCCL and of earlier
     * releases. bucket_bytes: of one, which a later release may lengthen.
     */
    uint64_t buckets_at; /* bytes from the start of the file */
    uint64_t buckets;    /* recorded so far */
    uint32_t bucket_records, bucket_bytes;
    uint8_t reserved[16];
};

struct mu_ledger_comm {
    uint64_t hash;             /* equal on all ranks of the communicator, 0 unknown */
    int32_t rank, size, nodes; /* size and nodes: 0 unknown, before interface 4 */
    uint32_t finalized;        /* 1: the communicator was destroyed */
    char name[64];             /* "" none */
    uint8_t reserved[40];
};

/* begin and end are those of the launch, by the host. The GPU's times are those of the
 * first channel that began and the last that ended: by the GPU's clock from interface 4
 * on, by the thread of NCCL that polls the channels in interface 3, 0 before.
 */
struct mu_ledger_call {
    uint64_t sequence; /* NCCL's number of this function on this communicator */
    uint64_t count;    /* elements, as NCCL counts them for the function */
    uint64_t begin, end;
    uint64_t gpu_begin, gpu_end;
    uint64_t number;       /* of the call, from 1; 0: the slot is empty */
    uint32_t comm;         /* index of its communicator */
    uint32_t began, ended; /* channels */
    uint8_t channels;      /* that the kernel uses */
    uint8_t warps;
    uint8_t element;                    /* bytes, 0 unknown */
    uint8_t untimed;                    /* 1: its times of the GPU were not asked for */
    char func[20], algo[20], proto[16]; /* NCCL's names */
};

/* A bucket of gradients in one step of libmuster, by the host's clock; 0: unknown. */
struct mu_ledger_bucket {
    uint64_t number;   /* of the record, from 1; 0: the slot is empty */
    uint64_t step;     /* syncs before */
    uint64_t begin;    /* the step before ended */
    uint64_t ready;    /* its last gradient was ready */
    uint64_t launched; /* it was packed from here on, and its collectives started */
    uint64_t started, ended; /* the backend worked on them; until the last ended */
    uint64_t joined;         /* sync went on without waiting for it */
    uint64_t exposed;        /* how long sync waited for it; of a step: sync itself */
    uint64_t bytes;          /* of its gradients */
    uint32_t comm;           /* index of its communicator */
    uint32_t ddp;            /* which of that communicator's objects */
    uint32_t bucket;         /* MU_LEDGER_STEP: all of them */
    uint8_t reserved[4];
};

#define MU_LEDGER_STEP UINT32_MAX

_Static_assert(sizeof(struct mu_ledger_bucket) == 96, "a bucket of a ledger file");
_Static_assert(sizeof(struct mu_ledger_head) == 256, "the head of a ledger file");
_Static_assert(sizeof(struct mu_ledger_comm) == 128, "a communicator of a ledger file");
_Static_assert(sizeof(struct mu_ledger_call) == 128, "a call of a ledger file");

/* Bytes of a file with this many slots, and without buckets. */
size_t mu_ledger_file_size(uint32_t records);

/* The parts of an image that is large enough. */
struct mu_ledger_comm *mu_ledger_comms(void *image);
struct mu_ledger_call *mu_ledger_calls(void *image);

/* Of the first *end records of buckets, which a live process adds to, the oldest one
 * that is in the ring; *end: there is none.
 */
uint64_t mu_ledger_oldest_bucket(const struct mu_ledger_head *head, uint64_t *end);
/* Record n of the buckets, from 0; false: it was overwritten, is being written, or is
 * damaged.
 */
bool mu_ledger_bucket(const void *image, uint64_t n, struct mu_ledger_bucket *out);

/* Where the slot of a call begins in the file. */
size_t mu_ledger_call_at(uint64_t slot);

/* Bytes up to the end of the last ring. */
size_t mu_ledger_image_size(const struct mu_ledger_head *head);
/* Does a file of this size have the right head? If it is shorter than a head, the rest
 * of the struct is not read. `path` is for the sentence.
 */
int mu_ledger_check_head(const struct mu_ledger_head *head, size_t size,
                         const char *path, struct mu_err *err);
/* Are the communicators and calls behind that head sound? Control bytes in names become
 * '?': a reader prints them.
 */
int mu_ledger_check_records(void *image, const char *path, struct mu_err *err);

/* Bytes of the message, as nccl-tests counts them: where each rank sends or receives a
 * part, all parts together. 0 where the element's size is unknown.
 */
double mu_ledger_bytes(const struct mu_ledger_call *call, int size);

/* Bus bandwidth over bytes per second, by the formulas of nccl-tests' PERFORMANCE.md;
 * 0 where a function has none.
 */
double mu_ledger_bus_factor(const char *func, int size);

#endif
