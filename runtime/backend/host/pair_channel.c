/* SPDX-License-Identifier: BSD-3-Clause */
/* pair_channel.c - the messages from one rank to another of its domain, in shared
 * memory
 *
 * A sleeper announces itself, then looks once more; the other rank moves its position,
 * then looks for a sleeper. Everything here is sequentially consistent, so that one of
 * the two sees the other.
 */
#include "runtime/backend/host/pair_channel.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/backend/host/fds.h"

#define CHANNEL_BYTES 262144 /* stays in the cache of a core */
#define PART_BYTES 32768     /* copied at once */

enum reader { AWAITED, PRESENT, LEFT };

struct mu_channel_memory {
    struct mu_pipe_ends ends;
    /* Rarely written: these lines stay in both caches. */
    _Alignas(128) _Atomic uint32_t writer_sleeps, reader_sleeps;
    _Atomic uint32_t reader; /* enum reader */
    _Alignas(4096) char data[CHANNEL_BYTES];
};

/* ---- Open and close ---- */

static int map(struct mu_channel *channel, int memory_fd)
{
    void *at = mmap(NULL, sizeof(struct mu_channel_memory), PROT_READ | PROT_WRITE,
                    MAP_SHARED, memory_fd, 0);

    if (at == MAP_FAILED)
        return -1;
    channel->memory = at;
    channel->pipe = (struct mu_pipe){ &channel->memory->ends, channel->memory->data,
                                      CHANNEL_BYTES };
    return 0;
}

/* All pages are there from the start: a shortage later would raise SIGBUS. */
static int make_memory(void)
{
    int fd = memfd_create("muster-pair", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0)
        return -1;
    if (fallocate(fd, 0, 0, sizeof(struct mu_channel_memory)) == 0 &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0)
        return fd;
    close(fd);
    return -1;
}

int mu_channel_offer(struct mu_channel *channel, int fd)
{
    char byte = 0;
    int memory_fd = make_memory(), rc;

    *channel = (struct mu_channel){ .fd = fd };
    if (memory_fd >= 0 && map(channel, memory_fd) < 0) {
        close(memory_fd);
        memory_fd = -1;
    }
    rc = mu_fds_send(fd, &byte, 1, &memory_fd, memory_fd >= 0);
    if (memory_fd >= 0)
        close(memory_fd);
    if (rc < 0)
        mu_channel_close(channel, false);
    return rc;
}

int mu_channel_accept(struct mu_channel *channel, int fd)
{
    int memory_fd = -1, nfds = 0, rc = 1;
    struct stat st;
    ssize_t n;
    char byte;

    *channel = (struct mu_channel){ .fd = fd };
    errno = 0;
    n = mu_fds_recv(fd, &byte, 1, &memory_fd, 1, &nfds);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    if (n == 0)
        return -1;
    if (nfds == 0)
        return 1;
    if (fstat(memory_fd, &st) < 0 ||
        st.st_size != (off_t)sizeof(struct mu_channel_memory) ||
        map(channel, memory_fd) < 0)
        rc = -1;
    else
        atomic_store(&channel->memory->reader, PRESENT);
    close(memory_fd);
    return rc;
}

void mu_channel_close(struct mu_channel *channel, bool leaves)
{
    if (!channel->memory)
        return;
    if (leaves)
        atomic_store(&channel->memory->reader, LEFT);
    munmap(channel->memory, sizeof *channel->memory);
    channel->memory = NULL;
}

/* ---- Wake and sleep ---- */

static void wake(struct mu_channel *channel, _Atomic uint32_t *sleeps)
{
    char byte = 0;

    if (!atomic_load(sleeps) || !atomic_exchange(sleeps, 0))
        return;
    if (send(channel->fd, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        /* A full connection is readable there, which is all that is needed. */
    }
}

void mu_channel_release(struct mu_channel *channel)
{
    wake(channel, &channel->memory->writer_sleeps);
}

bool mu_channel_arm_writer(struct mu_channel *channel)
{
    atomic_store(&channel->memory->writer_sleeps, 1);
    return mu_pipe_room(&channel->pipe) == 0;
}

bool mu_channel_arm_reader(struct mu_channel *channel)
{
    atomic_store(&channel->memory->reader_sleeps, 1);
    return mu_pipe_content(&channel->pipe) == 0;
}

void mu_channel_hear(struct mu_channel *channel)
{
    char bytes[64];
    ssize_t n = recv(channel->fd, bytes, sizeof bytes, MSG_DONTWAIT);

    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        channel->ended = true;
}

/* ---- Move bytes ---- */

ssize_t mu_channel_write(struct mu_channel *channel, struct iovec *iov, int n)
{
    uint32_t reader = atomic_load(&channel->memory->reader);
    struct iovec *last = &iov[n - 1];
    size_t bytes;

    if (reader == AWAITED) /* it may leave without a look at this memory */
        mu_channel_hear(channel);
    if (channel->ended || reader == LEFT) {
        errno = EPIPE;
        return -1;
    }
    last->iov_len = last->iov_len < PART_BYTES ? last->iov_len : PART_BYTES;
    bytes = mu_pipe_write(&channel->pipe, iov, n);
    if (bytes == 0) {
        errno = EAGAIN;
        return -1;
    }
    wake(channel, &channel->memory->reader_sleeps);
    return (ssize_t)bytes;
}

ssize_t mu_channel_read(struct mu_channel *channel, void *data, size_t len)
{
    size_t bytes =
        mu_pipe_read(&channel->pipe, data, len < PART_BYTES ? len : PART_BYTES);

    if (bytes > 0)
        return (ssize_t)bytes;
    if (channel->ended)
        return 0;
    errno = EAGAIN;
    return -1;
}
