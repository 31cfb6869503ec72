/* SPDX-License-Identifier: BSD-3-Clause */
/* layout.c - size and offset in bytes of each struct that programs and libmuster share:
 * lines `struct NAME SIZE`, then `NAME.FIELD OFFSET SIZE`
 */
#include <stdio.h>

#include "runtime/muster.h"

#define STRUCT(s) printf("struct %s %zu\n", #s, sizeof(struct s))
#define FIELD(s, f)                                                                    \
    printf("%s.%s %zu %zu\n", #s, #f, offsetof(struct s, f), sizeof(((struct s *)0)->f))

static void show_options(void)
{
    STRUCT(muster_options);
    FIELD(muster_options, backend);
    FIELD(muster_options, transport);
    FIELD(muster_options, init_timeout);
    FIELD(muster_options, timeout);
    FIELD(muster_options, single);
    FIELD(muster_options, log);
    FIELD(muster_options, on_failure);
    FIELD(muster_options, elastic);
    FIELD(muster_options, exchange);
    FIELD(muster_options, grow);
    FIELD(muster_options, join);
    FIELD(muster_options, own_device);
    FIELD(muster_options, map_memory);
    FIELD(muster_options, reserved);
}

static void show_exchange(void)
{
    STRUCT(muster_exchange);
    FIELD(muster_exchange, rank);
    FIELD(muster_exchange, size);
    FIELD(muster_exchange, allgather);
    FIELD(muster_exchange, arg);
    FIELD(muster_exchange, first);
    FIELD(muster_exchange, reserved);
}

static void show_param(void)
{
    STRUCT(muster_param);
    FIELD(muster_param, name);
    FIELD(muster_param, count);
    FIELD(muster_param, dtype);
    FIELD(muster_param, data);
    FIELD(muster_param, grad);
    FIELD(muster_param, frozen);
    FIELD(muster_param, rows);
    FIELD(muster_param, reserved);
}

static void show_ddp_options(void)
{
    STRUCT(muster_ddp_options);
    FIELD(muster_ddp_options, first_bucket);
    FIELD(muster_ddp_options, bucket_cap);
    FIELD(muster_ddp_options, backward);
    FIELD(muster_ddp_options, fixed_order);
    FIELD(muster_ddp_options, screen);
    FIELD(muster_ddp_options, require_all);
    FIELD(muster_ddp_options, shard);
    FIELD(muster_ddp_options, hook);
    FIELD(muster_ddp_options, reserved);
}

static void show_ledger(void)
{
    STRUCT(muster_ledger);
    FIELD(muster_ledger, steps);
    FIELD(muster_ledger, seconds);
    FIELD(muster_ledger, communication);
    FIELD(muster_ledger, exposed);
    FIELD(muster_ledger, reserved);
}

static void show_scaler(void)
{
    STRUCT(muster_scaler);
    FIELD(muster_scaler, scale);
    FIELD(muster_scaler, interval);
    FIELD(muster_scaler, good);
    FIELD(muster_scaler, skipped);
    FIELD(muster_scaler, reserved);
}

static void show_finish(void)
{
    STRUCT(muster_finish);
    FIELD(muster_finish, max_norm);
    FIELD(muster_finish, scaler);
    FIELD(muster_finish, norm);
    FIELD(muster_finish, skip);
    FIELD(muster_finish, reserved);
}

static void show_shard(void)
{
    STRUCT(muster_shard);
    FIELD(muster_shard, dtype);
    FIELD(muster_shard, count);
    FIELD(muster_shard, grad);
    FIELD(muster_shard, data);
    FIELD(muster_shard, reserved);
}

static void show_bucket(void)
{
    STRUCT(muster_bucket);
    FIELD(muster_bucket, index);
    FIELD(muster_bucket, dtype);
    FIELD(muster_bucket, count);
    FIELD(muster_bucket, data);
    FIELD(muster_bucket, stream);
    FIELD(muster_bucket, reserved);
}

static void show_hook(void)
{
    STRUCT(muster_hook);
    FIELD(muster_hook, compress);
    FIELD(muster_hook, rank);
    FIELD(muster_hook, rows);
    FIELD(muster_hook, reduce);
    FIELD(muster_hook, arg);
    FIELD(muster_hook, reserved);
}

static void show_sampler_options(void)
{
    STRUCT(muster_sampler_options);
    FIELD(muster_sampler_options, samples);
    FIELD(muster_sampler_options, batch);
    FIELD(muster_sampler_options, seed);
    FIELD(muster_sampler_options, tail);
    FIELD(muster_sampler_options, in_order);
    FIELD(muster_sampler_options, reserved);
}

static void show_sampler_state(void)
{
    STRUCT(muster_sampler_state);
    FIELD(muster_sampler_state, samples);
    FIELD(muster_sampler_state, seed);
    FIELD(muster_sampler_state, epoch);
    FIELD(muster_sampler_state, position);
}

static void show_checkpoint_options(void)
{
    STRUCT(muster_checkpoint_options);
    FIELD(muster_checkpoint_options, name);
    FIELD(muster_checkpoint_options, kind);
    FIELD(muster_checkpoint_options, keep);
    FIELD(muster_checkpoint_options, sharded);
    FIELD(muster_checkpoint_options, mode);
    FIELD(muster_checkpoint_options, reserved);
}

static void show_item(void)
{
    STRUCT(muster_item);
    FIELD(muster_item, name);
    FIELD(muster_item, data);
    FIELD(muster_item, bytes);
    FIELD(muster_item, offset);
    FIELD(muster_item, total);
    FIELD(muster_item, reserved);
}

int main(void)
{
    show_options();
    show_exchange();
    show_param();
    show_ddp_options();
    show_ledger();
    show_scaler();
    show_finish();
    show_shard();
    show_bucket();
    show_hook();
    show_sampler_options();
    show_sampler_state();
    show_checkpoint_options();
    show_item();
    return 0;
}
