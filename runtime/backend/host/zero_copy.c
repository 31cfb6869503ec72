/* SPDX-License-Identifier: BSD-3-Clause */
/* zero_copy.c - allocations that collectives use without a copy: the arena
 *
 * In one domain an allocation is a block of the shared file with consecutive pieces,
 * one for each rank. Each rank allocates the pages of its own piece (on its NUMA node)
 * and maps all pieces. Offsets grow and are never reused, so equal calls give equal
 * offsets without communication. After unequal calls (a rank was lost in between)
 * blocks do not overlap, and blocks at different offsets have no zero copy. With
 * several domains, allocations are private memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "runtime/backend/host/free_memory.h"
#include "runtime/backend/host/shm.h"

#define PAGE 4096
#define LEAST_STEP ((size_t)64 << 10)

struct block {
    char *base;  /* mapping of all pieces */
    size_t each; /* bytes of one piece, whole pages */
    int pieces, own;
    uint64_t offset; /* of base in the file */
    bool unshared;   /* private: not in the file */
    struct block *next;
};

struct mu_host_arena {
    struct block *blocks;
    uint64_t begin, end; /* in the file: of the first block, of the next one */
};

/* With several domains nothing is shared, because zero copy is impossible. */
static struct mu_shm *shared(const struct mu_host_backend *b)
{
    return b->one_domain ? b->shm : NULL;
}

int mu_host_arena_open(struct mu_host_backend *b, struct mu_err *err)
{
    b->arena = calloc(1, sizeof *b->arena);
    if (!b->arena)
        return mu_err_set(err, MUSTER_EMEMORY, "out of memory");
    if (shared(b))
        b->arena->begin = (shared(b)->len + PAGE - 1) / PAGE * PAGE;
    b->arena->end = b->arena->begin;
    /* Behind the allocations of every rank, so that offsets are equal again. */
    if (shared(b))
        b->arena->end += b->arena_used * (uint64_t)shared(b)->nlocal;
    return 0;
}

uint64_t mu_host_arena_used(const struct mu_host_backend *b)
{
    return b && b->arena && shared(b)
               ? (b->arena->end - b->arena->begin) / (uint64_t)shared(b)->nlocal
               : 0;
}

void mu_host_arena_close(struct mu_host_backend *b)
{
    struct block *block;

    while (b->arena && (block = b->arena->blocks)) {
        b->arena->blocks = block->next;
        munmap(block->base, block->each * (size_t)block->pieces);
        free(block);
    }
    free(b->arena);
    b->arena = NULL;
}

/* The pages are taken in steps, and what is left is read before each. All ranks of the
 * node may allocate at the same time: together a step of each takes a part of what is
 * left, so that none of them exceeds it.
 */
static int take_pages(const struct mu_shm *shm, uint64_t offset, size_t bytes,
                      struct mu_err *err)
{
    for (size_t at = 0, n; at < bytes; at += n) {
        uint64_t left = 0;
        int rc = mu_free_memory_check(bytes - at, &left, err);

        n = left / 16 / (uint64_t)shm->nlocal / PAGE * PAGE;
        n = n < LEAST_STEP ? LEAST_STEP : n;
        n = n < bytes - at ? n : bytes - at;
        if (rc == 0 && fallocate(shm->fd, 0, (off_t)(offset + at), (off_t)n) < 0)
            rc = mu_err_set(err, MUSTER_EMEMORY, "cannot reserve %zu bytes: %s", bytes,
                            strerror(errno));
        if (rc == 0)
            continue;
        if (at > 0)
            fallocate(shm->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                      (off_t)offset, (off_t)at);
        return rc;
    }
    return 0;
}

/* Without these checks, a file size limit would raise SIGXFSZ, and a shortage of memory
 * would make the kernel kill a process.
 */
static int reserve(const struct mu_shm *shm, uint64_t offset, size_t bytes,
                   struct mu_err *err)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        offset + bytes > limit.rlim_cur)
        return mu_err_set(err, MUSTER_EMEMORY,
                          "the file size limit (ulimit -f, %llu bytes) is too low for "
                          "shared memory up to %llu",
                          (unsigned long long)limit.rlim_cur,
                          (unsigned long long)(offset + bytes));
    return take_pages(shm, offset, bytes, err);
}

static int map_block(struct mu_host_backend *b, struct block *block, struct mu_err *err)
{
    size_t len = block->each * (size_t)block->pieces;
    int flags = shared(b) ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    void *p;

    if ((shared(b)
             ? reserve(shared(b), block->offset + block->each * (size_t)block->own,
                       block->each, err)
             : mu_free_memory_check(block->each, NULL, err)) < 0)
        return -1;
    p = mmap(NULL, len, PROT_READ | PROT_WRITE, flags, shared(b) ? shared(b)->fd : -1,
             (off_t)block->offset);
    if (p == MAP_FAILED)
        return mu_err_set(err, MUSTER_EMEMORY, "cannot map %zu bytes: %s", len,
                          strerror(errno));
    block->base = p;
    return 0;
}

void *mu_host_arena_alloc(struct mu_host_backend *b, size_t bytes, struct mu_err *err)
{
    int pieces = shared(b) ? shared(b)->nlocal : 1;
    struct block *block;

    if (bytes > SIZE_MAX / 4 / (size_t)pieces) {
        mu_err_set(err, MUSTER_EMEMORY, "cannot allocate %zu bytes", bytes);
        return NULL;
    }
    block = calloc(1, sizeof *block);
    if (!block) {
        mu_err_set(err, MUSTER_EMEMORY, "out of memory");
        return NULL;
    }
    block->each = bytes ? (bytes + PAGE - 1) / PAGE * PAGE : PAGE;
    block->pieces = pieces;
    block->own = shared(b) ? shared(b)->me : 0;
    block->offset = b->arena->end;
    /* Also after a failure, because the other ranks have advanced. */
    b->arena->end += block->each * (size_t)pieces;
    if (map_block(b, block, err) < 0) {
        free(block);
        return NULL;
    }
    block->next = b->arena->blocks;
    b->arena->blocks = block;
    return block->base + block->each * (size_t)block->own;
}

void mu_host_arena_free(struct mu_host_backend *b, void *p)
{
    for (struct block **at = &b->arena->blocks; *at; at = &(*at)->next) {
        struct block *block = *at;
        size_t own = block->each * (size_t)block->own;

        if (block->base + own != p)
            continue;
        *at = block->next;
        munmap(block->base, block->each * (size_t)block->pieces);
        if (shared(b) &&
            !block->unshared) /* free our piece's pages; the other ranks free theirs */
            fallocate(shared(b)->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                      (off_t)(block->offset + own), (off_t)block->each);
        free(block);
        return;
    }
}

bool mu_host_arena_offset(const struct mu_host_backend *b, const void *p, size_t bytes,
                          uint64_t *offset, uint64_t *block)
{
    uintptr_t at = (uintptr_t)p;

    for (const struct block *k = b->arena->blocks; k && shared(b); k = k->next) {
        uintptr_t own = (uintptr_t)k->base + k->each * (size_t)k->own;

        if (k->unshared || at < own || at - own > k->each ||
            bytes > k->each - (at - own))
            continue;
        *offset = k->offset + (at - (uintptr_t)k->base);
        *block = k->offset;
        return true;
    }
    return false;
}

void *mu_host_arena_at(const struct mu_host_backend *b, uint64_t offset, size_t bytes)
{
    for (const struct block *k = b->arena->blocks; k; k = k->next) {
        uint64_t len = k->each * (uint64_t)k->pieces;

        if (!k->unshared && offset >= k->offset && offset - k->offset <= len &&
            bytes <= len - (offset - k->offset))
            return k->base + (offset - k->offset);
    }
    return NULL;
}

int mu_host_arena_detach(struct mu_host_backend *b, void *p, size_t bytes)
{
    uintptr_t first = (uintptr_t)p / PAGE * PAGE;
    size_t len = ((uintptr_t)p + bytes - first + PAGE - 1) / PAGE * PAGE;
    void *copy =
        mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (copy == MAP_FAILED)
        return -1;
    memcpy(copy, (const void *)first, len);
    if (mremap(copy, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)first) ==
        MAP_FAILED) {
        munmap(copy, len);
        return -1;
    }
    return 0;
}

/* ---- A world that has lost ranks, or has got some ---------------------------------
 *
 * A block now has fewer pieces, in another file. Our piece keeps its address, so the
 * mapping begins earlier or later by whole pieces; it fits between the ends of the old
 * mapping, because at most as many pieces are missing before ours as in total. The new
 * offset is computed from the old one alone, because some ranks have freed blocks that
 * others still have.
 *
 * Where newcomers make the number of pieces larger than the mapping, the block stays as
 * it is and is private from then on.
 */

static int copy_piece(struct mu_host_backend *b, uint64_t offset, const char *from,
                      size_t bytes, struct mu_err *err)
{
    void *to;

    if (reserve(shared(b), offset, bytes, err) < 0)
        return -1;
    to = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, shared(b)->fd,
              (off_t)offset);
    if (to == MAP_FAILED)
        return mu_err_set(err, MUSTER_EMEMORY, "cannot map %zu bytes: %s", bytes,
                          strerror(errno));
    memcpy(to, from, bytes);
    munmap(to, bytes);
    return 0;
}

static bool fits(const struct mu_host_backend *b, const struct block *block)
{
    return shared(b)->me <= block->own &&
           shared(b)->nlocal - shared(b)->me <= block->pieces - block->own;
}

static int remap(struct mu_host_backend *b, const struct mu_host_backend *from,
                 struct block *block, struct mu_err *err)
{
    uint64_t before =
        (block->offset - from->arena->begin) / (uint64_t)shared(from)->nlocal;
    struct block now = { .each = block->each,
                         .pieces = shared(b)->nlocal,
                         .own = shared(b)->me,
                         .offset =
                             b->arena->begin + before * (uint64_t)shared(b)->nlocal };
    char *mine = block->base + block->each * (size_t)block->own;
    char *end = block->base + block->each * (size_t)block->pieces, *now_end;
    size_t len = now.each * (size_t)now.pieces;

    now.base = mine - now.each * (size_t)now.own;
    now_end = now.base + len;
    if (copy_piece(b, now.offset + now.each * (size_t)now.own, mine, now.each, err) < 0)
        return -1;
    if (mmap(now.base, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
             shared(b)->fd, (off_t)now.offset) == MAP_FAILED)
        return mu_err_set(err, MUSTER_EMEMORY, "cannot map %zu bytes: %s", len,
                          strerror(errno));
    if (now.base > block->base)
        munmap(block->base, (size_t)(now.base - block->base));
    if (end > now_end)
        munmap(now_end, (size_t)(end - now_end));
    now.next = block->next;
    *block = now;
    return 0;
}

int mu_host_arena_adopt(struct mu_host_backend *b, struct mu_host_backend *from,
                        struct mu_err *err)
{
    struct block *oldest = NULL, *block;

    /* Oldest first, the order of allocation: equal offsets on all ranks. */
    while ((block = from->arena->blocks)) {
        from->arena->blocks = block->next;
        block->next = oldest;
        oldest = block;
    }
    while ((block = oldest)) {
        if (!shared(b) || !shared(from) || block->unshared || !fits(b, block))
            block->unshared = true;
        else if (remap(b, from, block, err) < 0)
            break;
        oldest = block->next;
        block->next = b->arena->blocks;
        b->arena->blocks = block;
    }
    for (; oldest; oldest = block) { /* after a failure: return them to `from` */
        block = oldest->next;
        oldest->next = from->arena->blocks;
        from->arena->blocks = oldest;
    }
    return from->arena->blocks ? -1 : 0;
}
