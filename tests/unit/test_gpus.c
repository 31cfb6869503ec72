/* SPDX-License-Identifier: BSD-3-Clause */
/* test_gpus.c - which GPUs Slurm's numbers and UUIDs mean */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "spank/plugin/plugin.h"

enum { NGPUS = 5 };

/* Four GPUs along the bus, their device files numbered as on a DGX A100, the last one
 * two MIG devices.
 */
static struct mu_gpu gpus[NGPUS] = {
    { .busid = "0000:07:00.0", .label = "0000:07:00.0", .minor = 2, .uuid = "GPU-7" },
    { .busid = "0000:0f:00.0", .label = "0000:0f:00.0", .minor = 3, .uuid = "GPU-f" },
    { .busid = "0000:47:00.0", .label = "0000:47:00.0", .minor = 0, .uuid = "GPU-4" },
    { .busid = "0000:4e:00.0",
      .label = "MIG-a",
      .minor = 1,
      .uuid = "MIG-a",
      .cap = 31 },
    { .busid = "0000:4e:00.0",
      .label = "MIG-b",
      .minor = 1,
      .uuid = "MIG-b",
      .cap = 40 },
};

static void print_gpus(const int *gpu, int n, char *out, size_t len)
{
    size_t at = 0;

    out[0] = '\0';
    for (int i = 0; i < n; i++)
        at += (size_t)snprintf(out + at, len - at, "%s%d", i ? "," : "", gpu[i]);
}

static const struct order_case {
    const char *name, *conf,
        *want; /* GPUs by place on the bus; "" the bus's own order */
} orders[] = {
    { "a range of device files", "Name=gpu File=/dev/nvidia[0-3]\n", "2,3,0,1" },
    { "a line each, in another order",
      "Name=gpu File=/dev/nvidia3\nName=gpu File=/dev/nvidia[0,1]\n", "1,2,3" },
    { "lines of other nodes",
      "NodeName=n[2-3] Name=gpu File=/dev/nvidia0\n"
      "NodeName=n1 Name=gpu File=/dev/nvidia2\n",
      "0" },
    { "other resources", "Name=nic File=/dev/nvidia0\nName=gpu File=/dev/nvidia1\n",
      "3" },
    { "AutoDetect", "AutoDetect=nvml\nName=gpu File=/dev/nvidia[0-3]\n", "" },
    { "AutoDetect=off", "AutoDetect=off\nName=gpu File=/dev/nvidia[0-3]\n", "2,3,0,1" },
    { "files of another kind", "Name=gpu File=/dev/dri/renderD[128-131]\n", "" },
    { "a file that no GPU has", "Name=gpu File=/dev/nvidia[0-4]\n", "" },
    { "MIG's capabilities",
      "Name=gpu MultipleFiles=/dev/nvidia1,/dev/nvidia-caps/nvidia-cap30\n", "" },
    { "MIG slices, in another order than the library's",
      "Name=gpu "
      "MultipleFiles=/dev/nvidia1,/dev/nvidia-caps/nvidia-cap39,/dev/nvidia-caps/"
      "nvidia-cap40\n"
      "Name=gpu MultipleFiles=/dev/nvidia1,/dev/nvidia-caps/nvidia-cap[30-31]\n",
      "4,3" },
    { "MIG slices beside whole GPUs",
      "Name=gpu MultipleFiles=/dev/nvidia1,/dev/nvidia-caps/nvidia-cap[39-40]\n"
      "Name=gpu MultipleFiles=/dev/nvidia0\n"
      "Name=gpu File=/dev/nvidia3\n"
      "Name=gpu File=/dev/nvidia-caps/nvidia-cap31\n",
      "4,2,1,3" },
    { "counts only", "Name=gpu Count=4\n", "" },
    { "nothing", "", "" },
};

static void slurm_counts_along_gres_conf(void **state)
{
    struct mu_node node = { .ngpus = NGPUS, .gpus = gpus };

    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        static struct mu_gres_conf conf;
        struct mu_gres_order order;
        char got[256];

        memset(&conf, 0, sizeof conf);
        assert_int_equal(
            mu_gres_conf_parse("gres.conf", orders[i].conf, "n1", &conf, NULL), 0);
        mu_gres_order_make(&conf, &node, &order);
        print_gpus(order.gpu_node, order.n, got, sizeof got);
        if (strcmp(got, orders[i].want) != 0)
            fail_msg("%s: '%s', not '%s'", orders[i].name, got, orders[i].want);
    }
}

static const struct step_case {
    const char *name, *numbers, *visible;
    bool by_file; /* order 2,3,0,1 */
    const char *want, *says;
} steps[] = {
    { "numbers are places on the bus", "0,2", "0,1", false, "0,2", NULL },
    { "numbers are lines of gres.conf", "0,3", "0,1", true, "1,2", NULL },
    { "MIG devices alone", "4,3", "MIG-b,MIG-a", false, "3,4", NULL },
    { "a whole GPU, then a MIG device", "1,4", "1,MIG-b", false, "1,4", NULL },
    { "a MIG device, then a whole GPU", "3,1", "MIG-a,0", false, "1,3", NULL },
    { "no visible devices (gpu-bind=none)", "1,2", "", false, "1,2", NULL },
    { "no GPU", "", "", false, "", NULL },
    { "more than the node has", "5", "5", false, NULL,
      "Slurm gave the step GPU 5, but this node has 5 GPUs" },
    { "more than gres.conf has", "4", "4", true, NULL,
      "Slurm gave the step GPU 4, but this node has 5 GPUs" },
    { "a MIG device that nobody knows", "3", "MIG-c", false, NULL,
      "Slurm gave the step MIG-c, which this node does not list; its locality is "
      "unknown" },
    { "no number", "NoDevFiles", "NoDevFiles", false, NULL,
      "SLURM_STEP_GPUS takes a number" },
};

static void a_step_has_the_gpus_that_slurm_numbers(void **state)
{
    struct mu_node node = { .ngpus = NGPUS, .gpus = gpus };
    const struct mu_gres_order bus = { 0 }, files = { 4, { 2, 3, 0, 1 } };

    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        const struct step_case *c = &steps[i];
        static struct mu_alloc alloc;
        struct mu_err err = { 0 };
        char got[256];
        int rc = mu_gpus_of_step(c->numbers, c->visible, c->by_file ? &files : &bus,
                                 &alloc, &node, &err);

        if (rc < 0 ? !c->says || !strstr(err.text, c->says) : !c->want)
            fail_msg("%s: %d '%s'", c->name, rc, err.text);
        print_gpus(alloc.gpu_node, alloc.ngpus, got, sizeof got);
        if (rc == 0 && strcmp(got, c->want) != 0)
            fail_msg("%s: '%s', not '%s'", c->name, got, c->want);
    }
}

static void whole_gpus_beside_mig_devices_are_named_by_uuid(void **state)
{
    static struct mu_state st = { .node = { .ngpus = NGPUS, .gpus = gpus },
                                  .alloc = { .mig = true },
                                  .step = { .visible = "1,2" } };
    const int both[] = { 1, 4 };
    char text[64];

    assert_int_equal(mu_gpus_visible(&st, both, 2, text, sizeof text, NULL), 0);
    assert_string_equal(text, "GPU-f,MIG-b");
}

/* AMD's GPUs have no device file of their own to try. */
static const struct index_case {
    const char *name, *step, *visible;
    bool confined;
    const char *want;
} indices[] = {
    { "free devices: the node's numbers", "2,3", "2,3", false, "3" },
    { "free devices, Slurm told to bind nothing", "2,3", "", false, "3" },
    { "confined: the step's", "2,3", "2,3", true, "1" },
    { "counted from 0 by Slurm: the step's", "2,3", "0,1", false, "1" },
};

static void without_device_files_the_count_is_slurms(void **state)
{
    static struct mu_gpu amd[4];
    const int last = 3;

    for (int i = 0; i < 4; i++)
        amd[i] = (struct mu_gpu){ .vendor = MU_VENDOR_AMD, .minor = -1 };
    for (size_t i = 0; i < sizeof indices / sizeof indices[0]; i++) {
        static struct mu_state st;
        char text[64];

        memset(&st, 0, sizeof st);
        st.node = (struct mu_node){ .ngpus = 4, .gpus = amd };
        st.alloc.ngpus = 2;
        st.alloc.gpu_node[0] = 2;
        st.alloc.gpu_node[1] = 3;
        st.devices_confined = indices[i].confined;
        snprintf(st.step.gpus, sizeof st.step.gpus, "%s", indices[i].step);
        snprintf(st.step.visible, sizeof st.step.visible, "%s", indices[i].visible);
        assert_int_equal(mu_gpus_visible(&st, &last, 1, text, sizeof text, NULL), 0);
        if (strcmp(text, indices[i].want) != 0)
            fail_msg("%s: '%s', not '%s'", indices[i].name, text, indices[i].want);
    }
}

/* The runtime's own order, which is not the PCI bus's. A step has the second and the
 * fourth GPU of four; tiles: of each Intel card.
 */
static const struct runtime_case {
    const char *name;
    int vendor, nth[4], tiles;
    bool confined, cuda_order, composite;
    const char *want; /* of the fourth, then the second GPU */
} runtimes[] = {
    { "KFD's order", MU_VENDOR_AMD, { 4, 3, 2, 1 }, 0, false, false, false, "0,2" },
    { "KFD's order, confined",
      MU_VENDOR_AMD,
      { 4, 2, 3, 1 },
      0,
      true,
      false,
      false,
      "0,1" },
    { "KFD has other devices before",
      MU_VENDOR_AMD,
      { 3, 6, 2, 5 },
      0,
      false,
      false,
      false,
      "4,5" },
    { "KFD's order, CUDA's is another",
      MU_VENDOR_AMD,
      { 4, 3, 2, 1 },
      0,
      false,
      true,
      false,
      "0,2" },
    { "KFD leaves one out",
      MU_VENDOR_AMD,
      { 0, 3, 2, 1 },
      0,
      false,
      false,
      false,
      "0,2" },
    { "no list of KFD", MU_VENDOR_AMD, { 0 }, 0, false, false, false, "3,1" },
    { "CUDA along the bus", MU_VENDOR_NVIDIA, { 0 }, 0, false, false, false, "3,1" },
    { "CUDA in an order of the user",
      MU_VENDOR_NVIDIA,
      { 0 },
      0,
      false,
      true,
      false,
      "GPU-3,GPU-1" },
    { "Intel's cards", MU_VENDOR_INTEL, { 0 }, 1, false, true, false, "3,1" },
    { "Intel's tiles", MU_VENDOR_INTEL, { 0 }, 2, false, false, false, "6,7,2,3" },
    { "Intel's tiles, confined",
      MU_VENDOR_INTEL,
      { 0 },
      2,
      true,
      false,
      false,
      "2,3,0,1" },
    { "Intel's tiles as cards", MU_VENDOR_INTEL, { 0 }, 2, false, false, true, "3,1" },
};

static void case_069_each_runtime_gets_numbers_of_its_own_order(void **state)
{
    static const int fourth_second[] = { 3, 1 };

    for (size_t i = 0; i < sizeof runtimes / sizeof runtimes[0]; i++) {
        const struct runtime_case *c = &runtimes[i];
        struct mu_gpu gpu[4] = { 0 };
        static struct mu_state st;
        char text[64];

        memset(&st, 0, sizeof st);
        st.node = (struct mu_node){ .ngpus = 4, .gpus = gpu };
        st.alloc = (struct mu_alloc){ .ngpus = 2, .gpu_node = { 1, 3 } };
        st.devices_confined = c->confined;
        st.step.cuda_order = c->cuda_order;
        st.step.ze_composite = c->composite;
        for (int k = 0; k < 4; k++) {
            gpu[k] = (struct mu_gpu){ .vendor = c->vendor,
                                      .minor = -1,
                                      .runtime_nth = c->nth[k],
                                      .tiles = c->tiles };
            snprintf(gpu[k].uuid, sizeof gpu[k].uuid, "GPU-%d", k);
        }
        assert_int_equal(
            mu_gpus_visible(&st, fourth_second, 2, text, sizeof text, NULL), 0);
        if (strcmp(text, c->want) != 0)
            fail_msg("%s: '%s', not '%s'", c->name, text, c->want);
        assert_int_equal(mu_gpus_tiled(&st), c->tiles > 1 && !c->composite);
    }
}

static void numbers_of_free_devices_follow_the_runtime(void **state)
{
    static struct mu_gpu amd[4] = {
        { .vendor = MU_VENDOR_AMD, .runtime_nth = 4 },
        { .vendor = MU_VENDOR_AMD, .runtime_nth = 2 },
        { .vendor = MU_VENDOR_AMD, .runtime_nth = 0 }, /* without a driver */
        { .vendor = MU_VENDOR_AMD, .runtime_nth = 1 },
    };
    struct mu_node node = { .ngpus = 4, .gpus = amd };
    struct mu_gres_order order;
    char text[64];

    mu_gpus_runtime_order(&node, &order);
    print_gpus(order.gpu_node, order.n, text, sizeof text);
    assert_string_equal(text, "3,1,0");
    for (int i = 0; i < 4; i++)
        amd[i].runtime_nth = i + 1;
    mu_gpus_runtime_order(&node, &order);
    assert_int_equal(order.n, 0);
}

/* Of five GPUs the first is AMD's, the third is with a virtual machine. */
static void what_the_driver_leaves_out_is_not_counted(void **state)
{
    static struct mu_gpu mixed[5] = {
        { .busid = "0000:03:00.0", .vendor = MU_VENDOR_AMD, .minor = -1 },
        { .busid = "0000:07:00.0", .vendor = MU_VENDOR_NVIDIA, .minor = 0 },
        { .busid = "0000:0f:00.0", .vendor = MU_VENDOR_NVIDIA, .minor = -1 },
        { .busid = "0000:47:00.0", .vendor = MU_VENDOR_NVIDIA, .minor = 1 },
        { .busid = "0000:4e:00.0", .vendor = MU_VENDOR_NVIDIA, .minor = 2 },
    };
    static struct mu_state st = { .node = { .ngpus = 5, .gpus = mixed } };
    const struct mu_gres_order bus = { 0 };
    const int last = 4;
    char text[64];

    assert_int_equal(mu_gpus_of_step("1,2,3", "1,2,3", &bus, &st.alloc, &st.node, NULL),
                     0);
    print_gpus(st.alloc.gpu_node, st.alloc.ngpus, text, sizeof text);
    assert_string_equal(text, "1,3,4");
    assert_int_equal(mu_gpus_visible(&st, &last, 1, text, sizeof text, NULL), 0);
    assert_string_equal(text, "2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slurm_counts_along_gres_conf),
        cmocka_unit_test(a_step_has_the_gpus_that_slurm_numbers),
        cmocka_unit_test(whole_gpus_beside_mig_devices_are_named_by_uuid),
        cmocka_unit_test(without_device_files_the_count_is_slurms),
        cmocka_unit_test(case_069_each_runtime_gets_numbers_of_its_own_order),
        cmocka_unit_test(numbers_of_free_devices_follow_the_runtime),
        cmocka_unit_test(what_the_driver_leaves_out_is_not_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
