/* SPDX-License-Identifier: BSD-3-Clause */
/* mail.cu - small messages between pairs of ranks, without a barrier
 *
 * A packet is 8 bytes of data and the message's number, in one 16-byte store into the
 * receiver's memory. The receiver polls the packet, and stores the number of the
 * message that it has taken into the sender's memory. There are two slots for each pair
 * and direction, so a sender waits only for the message before the last one.
 */
#include "runtime/backend/nccl/kernels/device.cuh"

#define THREADS 512

struct mail_args {
    struct mu_reach reach;
    struct mu_mail mail;
    int sends, receives; /* parts of the mail that this launch does */
};

__device__ static char *slot_of(const struct mu_reach &r, int at, int from,
                                uint32_t number)
{
    return r.mail[at] + (2 * (size_t)from + (number & 1)) * MU_MAIL_SLOT;
}

__device__ static uint64_t bytes_at(const char *p, uint32_t left)
{
    uint64_t v = 0;

    if (left >= 8 && (uintptr_t)p % 8 == 0)
        return *(const uint64_t *)p;
    for (uint32_t i = 0; i < 8 && i < left; i++)
        v |= (uint64_t)(uint8_t)p[i] << 8 * i;
    return v;
}

__device__ static void put_bytes(char *p, uint32_t left, uint64_t v)
{
    if (left >= 8 && (uintptr_t)p % 8 == 0) {
        *(uint64_t *)p = v;
        return;
    }
    for (uint32_t i = 0; i < 8 && i < left; i++)
        p[i] = (char)(v >> 8 * i);
}

__device__ static void send(const struct mu_reach &r, int to, const char *data,
                            uint32_t bytes)
{
    struct mu_flags *flags = r.flags[r.rank];
    const uint32_t number = *(volatile uint32_t *)&flags->mailed[to] + 1;
    char *slot = slot_of(r, to, r.rank, number);
    bool aborted =
        threadIdx.x == 0 && !mu_wait_counter(&flags->taken[to], number - 2, &r, to);

    if (__syncthreads_or(aborted))
        return;
    for (uint32_t i = threadIdx.x; i * 8 < bytes; i += blockDim.x) {
        uint64_t v = bytes_at(data + i * 8, bytes - i * 8);

        mu_store_packet(slot + i * 16,
                        make_uint4((uint32_t)v, (uint32_t)(v >> 32), 0, number));
    }
    __syncthreads();
    if (threadIdx.x == 0)
        flags->mailed[to] = number;
}

__device__ static void receive(const struct mu_reach &r, int from, char *data,
                               uint32_t bytes)
{
    struct mu_flags *flags = r.flags[r.rank];
    const uint32_t number = *(volatile uint32_t *)&flags->received[from] + 1;
    const char *slot = slot_of(r, r.rank, from, number);
    struct mu_spin spin = { 0, 0 };
    bool aborted = false;

    for (uint32_t i = threadIdx.x; i * 8 < bytes && !aborted; i += blockDim.x) {
        uint4 v = mu_load_packet(slot + i * 16);

        while (v.w != number && !aborted) {
            aborted = mu_spin_aborted(&spin, &r, from);
            v = mu_load_packet(slot + i * 16);
        }
        if (!aborted)
            put_bytes(data + i * 8, bytes - i * 8, (uint64_t)v.y << 32 | v.x);
    }
    if (__syncthreads_or(aborted) || threadIdx.x != 0)
        return;
    flags->received[from] = number;
    mu_store_release(&r.flags[from]->taken[r.rank], number);
}

/* Two blocks for each rank: one sends, one receives. */
__global__ void __launch_bounds__(THREADS)
    mail(const __grid_constant__ struct mail_args a)
{
    int peer = blockIdx.x / 2;

    if (blockIdx.x % 2 == 0 && a.sends && a.mail.out_bytes[peer])
        send(a.reach, peer, (const char *)a.mail.out[peer], a.mail.out_bytes[peer]);
    if (blockIdx.x % 2 == 1 && a.receives && a.mail.in_bytes[peer])
        receive(a.reach, peer, (char *)a.mail.in[peer], a.mail.in_bytes[peer]);
}

cudaError_t mu_mail(const struct mu_reach *reach, const struct mu_mail *what,
                    bool sends, bool receives, cudaStream_t stream)
{
    struct mail_args args = { *reach, *what, sends, receives };
    void *argv[] = { &args };

    return cudaLaunchKernel((const void *)mail, dim3(2 * reach->n), dim3(THREADS), argv,
                            0, stream);
}

cudaError_t mu_mail_load(void)
{
    cudaFuncAttributes attr;

    return cudaFuncGetAttributes(&attr, (const void *)mail);
}
