/* SPDX-License-Identifier: BSD-3-Clause */
/* mpi_beside.c - MPI and libmuster in one program, for mpi.bats: the first argument,
 * mpi or muster, is initialised first. Prints a sum of each.
 */
#include <mpi.h>
#include <muster.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    int mpi_first = argc > 1 && strcmp(argv[1], "mpi") == 0, rank, sum = 0;
    const struct muster_options options = { .backend = "host" };
    struct muster *m;
    float x = 1;

    if (mpi_first)
        MPI_Init(&argc, &argv);
    if (muster_init(&m, &options) != MUSTER_OK)
        return muster_report(NULL);
    if (!mpi_first)
        MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Allreduce(&(int){ 1 }, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (muster_allreduce(m, &x, 1, MUSTER_F32, MUSTER_SUM, NULL) != MUSTER_OK)
        return muster_report(m);
    printf("mpi %d sums %d, muster %d sums %g\n", rank, sum, muster_rank(m), x);
    MPI_Finalize();
    return muster_finalize(m);
}
