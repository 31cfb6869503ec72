/* SPDX-License-Identifier: BSD-3-Clause */
/* busbw.c - an all-reduce by NCCL alone, without libmuster, as in a user's program
 *
 * Run it with a plain srun. It uses device LOCAL_RANK, or device 0 if it sees only one.
 * A file in /tmp transfers the NCCL id. Each rank prints a line with its PCI address.
 * Rank 0 prints the start-up time and the bus bandwidth of 1 GiB, or of as many MiB as
 * its argument gives, in fp32 (2 (n-1)/n bytes per time, like nccl-tests).
 */
#include <cuda_runtime.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CUDA(call)                                                                     \
    do {                                                                               \
        cudaError_t e_ = (call);                                                       \
        if (e_ != cudaSuccess) {                                                       \
            printf("rank %d dies: %s: %s\n", rank, #call, cudaGetErrorString(e_));     \
            exit(1);                                                                   \
        }                                                                              \
    } while (0)
#define NCCL(call)                                                                     \
    do {                                                                               \
        ncclResult_t e_ = (call);                                                      \
        if (e_ != ncclSuccess) {                                                       \
            printf("rank %d dies: %s: %s (%s)\n", rank, #call, ncclGetErrorString(e_), \
                   ncclGetLastError(NULL));                                            \
            exit(1);                                                                   \
        }                                                                              \
    } while (0)

static int number(const char *name, int none)
{
    const char *text = getenv(name);

    return text ? atoi(text) : none;
}

static ncclUniqueId share_id(int rank)
{
    char path[256], whole[280];
    ncclUniqueId id;
    FILE *f;

    snprintf(path, sizeof path, "/tmp/busbw.%d.%d", number("SLURM_JOB_ID", 0),
             number("SLURM_STEP_ID", 0));
    if (rank == 0) {
        NCCL(ncclGetUniqueId(&id));
        snprintf(whole, sizeof whole, "%s.part", path);
        f = fopen(whole, "wb");
        fwrite(&id, sizeof id, 1, f);
        fclose(f);
        rename(whole, path);
        return id;
    }
    for (int tries = 0; !(f = fopen(path, "rb")); tries++) {
        if (tries == 6000) {
            printf("rank %d dies: no id from rank 0 in %s after 30 s\n", rank, path);
            exit(1);
        }
        usleep(5000);
    }
    if (fread(&id, sizeof id, 1, f) != 1) {
        printf("rank %d dies: %s is too short\n", rank, path);
        exit(1);
    }
    fclose(f);
    return id;
}

/* Milliseconds since the last call. */
static double lap(void)
{
    static struct timespec last;
    struct timespec now;
    double ms;

    clock_gettime(CLOCK_MONOTONIC, &now);
    ms = (double)(now.tv_sec - last.tv_sec) * 1e3 +
         (double)(now.tv_nsec - last.tv_nsec) * 1e-6;
    last = now;
    return ms;
}

int main(int argc, char **argv)
{
    int rank = number("SLURM_PROCID", 0), size = number("SLURM_NTASKS", 1);
    int local = number("SLURM_LOCALID", 0), devices = 0;
    const size_t mib = argc > 1 ? strtoul(argv[1], NULL, 10) : 1024;
    const size_t count = mib << 18;
    const int iterations = 20;
    cudaEvent_t start, stop;
    ncclComm_t comm;
    char busid[32];
    float *buffer, first, ms;
    double context, communicator;

    setvbuf(stdout, NULL, _IOLBF, 0);
    lap();
    CUDA(cudaGetDeviceCount(&devices));
    CUDA(cudaSetDevice(devices > 1 ? local : 0));
    CUDA(cudaDeviceGetPCIBusId(busid, sizeof busid, devices > 1 ? local : 0));
    printf("rank %d sees %d, device %d is %s, CUDA_VISIBLE_DEVICES=%s\n", rank, devices,
           devices > 1 ? local : 0, busid,
           getenv("CUDA_VISIBLE_DEVICES") ? getenv("CUDA_VISIBLE_DEVICES") : "unset");
    CUDA(cudaMalloc((void **)&buffer, count * sizeof *buffer));
    context = lap();
    NCCL(ncclCommInitRank(&comm, size, share_id(rank), rank));
    communicator = lap();
    CUDA(cudaEventCreate(&start));
    CUDA(cudaEventCreate(&stop));
    first = (float)(rank + 1);
    CUDA(cudaMemcpy(buffer, &first, sizeof first, cudaMemcpyHostToDevice));
    NCCL(ncclAllReduce(buffer, buffer, 1024, ncclFloat, ncclSum, comm, 0));
    CUDA(cudaMemcpy(&first, buffer, sizeof first, cudaMemcpyDeviceToHost));
    if (rank == 0)
        printf("start: device %.0f ms, ncclCommInitRank %.0f ms, first all-reduce "
               "%.0f ms\n",
               context, communicator, lap());
    if (first != (float)(size * (size + 1) / 2)) {
        printf("rank %d: the sum is %g\n", rank, first);
        return 1;
    }
    CUDA(cudaMemset(buffer, 0, count * sizeof *buffer));
    for (int i = 0; i < iterations + 5; i++) {
        if (i == 5)
            CUDA(cudaEventRecord(start, 0));
        NCCL(ncclAllReduce(buffer, buffer, count, ncclFloat, ncclSum, comm, 0));
    }
    CUDA(cudaEventRecord(stop, 0));
    CUDA(cudaEventSynchronize(stop));
    CUDA(cudaEventElapsedTime(&ms, start, stop));
    if (rank == 0)
        printf("busbw %.4g GB/s\n", (double)count * sizeof(float) * 2 * (size - 1) /
                                        size / (ms / iterations / 1e3) / 1e9);
    ncclCommDestroy(comm);
    return 0;
}
