/* SPDX-License-Identifier: BSD-3-Clause */
/* item.h - names of the checkpoint items that the library writes */
#ifndef MU_ITEM_H
#define MU_ITEM_H

#define MU_ITEM_RESERVED "muster." /* their prefix */
/* Items of muster_ddp_state. */
#define MU_DDP_KEPT MU_ITEM_RESERVED "ddp."
/* The only item of a commit record: a struct mu_ckid for each shard. */
#define MU_CHECKPOINT_SHARDS MU_ITEM_RESERVED "shards"

#endif
