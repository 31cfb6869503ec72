/* SPDX-License-Identifier: BSD-3-Clause */
/* platform_live.h - what identifies a platform: DMI strings, PCI ids, files */
#ifndef MU_PLATFORM_LIVE_H
#define MU_PLATFORM_LIVE_H

#include "runtime/base/err.h"
#include "spank/core/doctor/doctor.h"
#include "spank/core/nccl/profile.h"

/* Fill *out from root/sys ("" is the live system; a recorded tree otherwise, where
 * `exists` looks below root too). Free with mu_platform_unload.
 */
int mu_platform_load(const char *root, struct mu_platform *out, struct mu_err *err);
void mu_platform_unload(struct mu_platform *platform);

/* Why the last file that other users than root can change was refused; "" none was. */
const char *mu_platform_refused(const struct mu_platform *platform);

/* True if the processors' host bridges pass requests from device to device: AMD's do,
 * unless an IOMMU translates (neither absent nor in pass-through mode). False if not
 * known.
 */
bool mu_platform_direct_dma(const char *root);

/* How NICs reach GPU memory with NVIDIA's driver: DMA-BUF, which its open kernel
 * modules have, or nvidia_peermem (or nv_peer_mem, its forerunner).
 */
enum mu_gpudirect mu_platform_gpudirect(const char *root);

/* Read every *.ini of dir, in order of name, into *profiles. A missing directory is
 * empty. Errors name file and line. A file that other users than root can change is an
 * error.
 */
int mu_profiles_load(const char *dir, struct mu_profiles *profiles, struct mu_err *err);

#endif
