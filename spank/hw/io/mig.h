/* SPDX-License-Identifier: BSD-3-Clause */
/* mig.h - the MIG slices of NVIDIA's GPUs as the driver lists them in /proc: their
 * numbers and device files, without UUIDs (nvml.h has these). root as in sysfs.h.
 */
#ifndef MU_MIG_H
#define MU_MIG_H

#define MU_MIG_SLICES 64 /* of one GPU, more than the driver makes */

/* A compute instance. The N of /dev/nvidia-caps/nvidia-capN of itself and of its GPU
 * instance; 0 unknown.
 */
struct mu_mig_slice {
    int gi, ci;
    int gi_cap, ci_cap;
};

/* The slices of /dev/nvidia<minor>, by ascending gi and ci, at most MU_MIG_SLICES;
 * returns their number, 0 where the GPU is not cut.
 */
int mu_mig_slices(const char *root, int minor, struct mu_mig_slice *list);

/* Is a GPU of this machine cut? 1 yes, 0 no, -1 the driver lists nothing here. */
int mu_mig_cut(const char *root);

/* Number of slices of the GPU that this process may open; -1: the GPU is not cut. */
int mu_mig_openable(const char *root, int minor);

#endif
