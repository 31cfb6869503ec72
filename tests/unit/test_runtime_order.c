/* SPDX-License-Identifier: BSD-3-Clause */
/* test_runtime_order.c - the numbers that AMD's and Intel's drivers give their GPUs */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "spank/hw/machine/runtime_order.h"
#include "tests/unit/folder.h"

/* A file below root with its folders; of a path that ends with '/' the folder alone. */
static void put(const char *root, const char *path, const char *text)
{
    char full[512];
    FILE *f;

    assert_true(snprintf(full, sizeof full, "%s/%s", root, path) < (int)sizeof full);
    for (char *at = strchr(full + strlen(root) + 1, '/'); at;
         at = strchr(at + 1, '/')) {
        *at = '\0';
        mkdir(full, 0755);
        *at = '/';
    }
    if (full[strlen(full) - 1] == '/')
        return;
    f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

#define CARD "sys/bus/pci/devices/0000:3a:00.0/"

static const struct intel_case {
    const char *name, *entry[6];
    int minor, tiles;
} intel_cases[] = {
    { "xe: a folder for each tile",
      { CARD "tile0/", CARD "tile1/", CARD "drm/renderD129/", CARD "drm/card1/" },
      129,
      2 },
    { "i915: a folder of engines for each tile",
      { CARD "drm/card2/gt/gt0/", CARD "drm/card2/gt/gt1/", CARD "drm/renderD130/" },
      130,
      2 },
    { "i915: one tile", { CARD "drm/card0/gt/gt0/", CARD "drm/renderD128/" }, 128, 1 },
    { "names without a number are no tiles",
      { CARD "tile0/", CARD "tiles/", CARD "tile-1/", CARD "drm/renderD129/" },
      129,
      1 },
    { "of two render nodes none is the card's",
      { CARD "tile0/", CARD "drm/renderD128/", CARD "drm/renderD129/" },
      -1,
      1 },
    { "of two cards none has the tiles",
      { CARD "drm/card0/gt/gt0/", CARD "drm/card1/gt/gt0/", CARD "drm/renderD128/" },
      128,
      0 },
    { "the driver is not loaded", { CARD "vendor" }, -1, 0 },
};

static void tiles_and_render_nodes_of_intels_cards(void **state)
{
    for (size_t i = 0; i < sizeof intel_cases / sizeof intel_cases[0]; i++) {
        const struct intel_case *c = &intel_cases[i];
        char root[] = "/tmp/muster-order-XXXXXX";
        struct mu_gpu gpu = { .busid = "0000:3a:00.0",
                              .vendor = MU_VENDOR_INTEL,
                              .minor = -1 };
        struct mu_node node = { .gpus = &gpu, .ngpus = 1 };

        assert_non_null(mkdtemp(root));
        for (int e = 0; c->entry[e]; e++)
            put(root, c->entry[e], "0x8086\n");
        mu_runtime_order(root, &node);
        assert_int_equal(folder_remove(root), 0);
        if (gpu.minor != c->minor || gpu.tiles != c->tiles)
            fail_msg("%s: minor %d, %d tiles", c->name, gpu.minor, gpu.tiles);
    }
}

/* Node 0 is the processor. Of node 2, which a device cgroup hides, nothing is printed;
 * nodes 3 and 4 are two partitions of one function.
 */
static void amds_gpus_have_the_drivers_order(void **state)
{
    static const char *const properties[] = {
        "location_id 0\ndomain 0\ndrm_render_minor 0\n",
        "location_id 36864\ndomain 0\ndrm_render_minor 130\n", /* bus 90 */
        "",
        "location_id 4096\ndomain 0\ndrm_render_minor 128\n", /* bus 10 */
        "location_id 268439553\ndomain 0\ndrm_render_minor 129\n",
        "location_id 4096\ndomain 1\n",
    };
    static const struct {
        const char *busid;
        int vendor, nth, minor;
    } want[] = {
        { "0000:10:00.0", MU_VENDOR_AMD, 2, 128 },
        { "0000:10:00.0", MU_VENDOR_AMD, 3, 129 },
        { "0000:20:00.0", MU_VENDOR_AMD, 0, -2 }, /* not listed */
        { "0000:90:00.0", MU_VENDOR_NVIDIA, 0, -2 },
        { "0000:90:00.0", MU_VENDOR_AMD, 1, 130 },
        { "0001:10:00.0", MU_VENDOR_AMD, 4, -1 }, /* without a render node */
    };
    enum { N = sizeof want / sizeof want[0] };
    struct mu_gpu gpu[N] = { 0 };
    struct mu_node node = { .gpus = gpu, .ngpus = N };
    char root[] = "/tmp/muster-order-XXXXXX", path[128];
    int parts;

    assert_non_null(mkdtemp(root));
    for (size_t k = 0; k < sizeof properties / sizeof properties[0]; k++) {
        snprintf(path, sizeof path, "sys/class/kfd/kfd/topology/nodes/%zu/properties",
                 k);
        put(root, path, properties[k]);
    }
    for (int i = 0; i < N; i++) {
        snprintf(gpu[i].busid, sizeof gpu[i].busid, "%s", want[i].busid);
        gpu[i].vendor = want[i].vendor;
        gpu[i].minor = -2;
    }
    mu_runtime_order(root, &node);
    parts = mu_kfd_parts(root, "0000:10:00.0");
    assert_int_equal(mu_kfd_parts(root, "0000:20:00.0"), 0);
    assert_int_equal(folder_remove(root), 0);
    for (int i = 0; i < N; i++)
        if (gpu[i].runtime_nth != want[i].nth || gpu[i].minor != want[i].minor)
            fail_msg("GPU %d (%s): the %d-th, minor %d", i, want[i].busid,
                     gpu[i].runtime_nth, gpu[i].minor);
    assert_int_equal(parts, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiles_and_render_nodes_of_intels_cards),
        cmocka_unit_test(amds_gpus_have_the_drivers_order),
    };

    return cmocka_run_group_tests_name("runtime_order", tests, NULL, NULL);
}
