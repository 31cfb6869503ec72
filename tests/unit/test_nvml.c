/* SPDX-License-Identifier: BSD-3-Clause */
/* test_nvml.c - the child that asks NVIDIA's library, with a library made up here: a
 * whole GPU, and one that is cut into three MIG devices; case 024
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "spank/hw/live/nvml.h"
#include "tests/unit/fake_nvml.h"
#include "tests/unit/hang.h"

static const char *behaviour = ""; /* "hang", "crash", "no driver" */

const struct fake_gpu fake_gpus[] = {
    { "00000000:1A:00.0", "", 7 },
    { "00000000:59:00.0", "m-mm---", 0 },
    { "00000000:5A:00.0", "", FAKE_ALONE },
    { "00000000:5B:00.0", "", FAKE_JOINING },
};
unsigned fake_ngpus = 2;

int fake_nvml_init(void)
{
    if (strcmp(behaviour, "hang") == 0)
        sleep(60);
    if (strcmp(behaviour, "crash") == 0)
        abort();
    printf("words of a library\n");
    return strcmp(behaviour, "no driver") == 0 ? 9 : 0;
}

static void the_child_lists_gpus_and_mig_devices(void **state)
{
    static const struct mu_nvml_device want[] = {
        { "0000:1a:00.0", "GPU-1", false, 0, "" },
        { "0000:59:00.0", "GPU-2", false, 0, "" },
        { "0000:59:00.0", "MIG-20", true, 0, "" },
        { "0000:59:00.0", "MIG-21", true, 0, "" },
        { "0000:59:00.0", "MIG-22", true, 0, "" },
    };
    struct mu_nvml_device list[8];

    behaviour = "";
    assert_int_equal(mu_nvml_list("", 10, list, 8), 5);
    for (int i = 0; i < 5; i++) {
        assert_string_equal(list[i].busid, want[i].busid);
        assert_string_equal(list[i].uuid, want[i].uuid);
        assert_int_equal(list[i].mig, want[i].mig);
    }
    assert_int_equal(mu_nvml_list("", 10, list, 2), 2); /* no room for more */
}

static void a_gpu_of_a_rack_has_its_nvlink_domain(void **state)
{
    static const char *const want[] = { "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf.7", "", "",
                                        "" };
    struct mu_nvml_device list[8];

    behaviour = "";
    fake_ngpus = 4;
    assert_int_equal(mu_nvml_list("", 10, list, 8), 7);
    fake_ngpus = 2;
    for (int i = 0, gpu = 0; i < 7; i++) {
        assert_string_equal(list[i].fabric, list[i].mig ? "" : want[gpu]);
        gpu += !list[i].mig;
    }
}

/* By the driver's list in /proc, gres.conf's lines lead to the slice. */
static void case_024_a_mig_device_has_the_capability_file_of_its_instance(void **state)
{
    static const int want[] = { 0, 0, 107, 0, 103 }; /* instance 19 is not listed */
    struct mu_nvml_device list[8];
    char root[] = "/tmp/muster-test-XXXXXX", command[1024];

    assert_non_null(mkdtemp(root));
    snprintf(
        command, sizeof command,
        "cd %s && mkdir -p proc/driver/nvidia/capabilities/gpu1/mig && "
        "cd proc/driver/nvidia/capabilities/gpu1/mig && mkdir -p gi20/ci0 gi18/ci0 && "
        "printf 'DeviceFileMinor: 107\nDeviceFileMode: 292\n' > gi20/ci0/access && "
        "printf 'DeviceFileMinor: 103\n' > gi18/ci0/access",
        root);
    assert_int_equal(system(command), 0);
    setenv("HWLOC_FSROOT", root, 1);
    behaviour = "";
    assert_int_equal(mu_nvml_list("", 10, list, 8), 5);
    unsetenv("HWLOC_FSROOT");
    snprintf(command, sizeof command, "rm -rf %s", root);
    assert_int_equal(system(command), 0);
    for (int i = 0; i < 5; i++)
        assert_int_equal(list[i].cap, want[i]);
}

static void a_library_that_fails_hangs_or_is_not_there_harms_nobody(void **state)
{
    static const char *const ways[] = { "no driver", "crash", "hang" };
    struct mu_nvml_device list[8];
    time_t begin = time(NULL);

    for (int i = 0; i < 3; i++) {
        behaviour = ways[i];
        if (mu_nvml_list("", i == 2 ? 0.3 : 10, list, 8) != -1)
            fail_msg("%s: an answer", ways[i]);
    }
    assert_int_equal(mu_nvml_list("/nonexistent.so", 10, list, 8), -1);
    assert_true(time(NULL) - begin < 10);
}

/* The child that opens it cannot be killed. */
static void a_library_that_the_kernel_waits_for_is_left_at_the_deadline(void **state)
{
    char library[] = "/tmp/muster-test-XXXXXX";
    struct mu_nvml_device list[8];
    time_t begin = time(NULL);
    int fd = mkstemp(library), n;

    close(fd);
    if (!hang_alone() || !hang_begin(library)) {
        unlink(library);
        skip();
    }
    n = mu_nvml_list(library, 0.3, list, 8);
    hang_end();
    unlink(library);
    assert_int_equal(n, -1);
    assert_true(time(NULL) - begin < 5);
}

static void case_024_mig_devices_get_their_uuids_in_order(void **state)
{
    static const struct mu_nvml_device list[] = {
        { "0000:1a:00.0", "GPU-1", false, 0, "" },
        { "0000:59:00.0", "GPU-2", false, 0, "" },
        { "0000:59:00.0", "MIG-20", true, 0, "" },
        { "0000:59:00.0", "MIG-21", true, 0, "" },
        { "0000:59:00.0", "MIG-22", true, 0, "" },
    };
    struct mu_gpu gpus[4] = { { .busid = "0000:1a:00.0", .uuid = "GPU-1" },
                              { .busid = "0000:59:00.0" },
                              { .busid = "0000:59:00.0" },
                              { .busid = "0000:59:00.0" } };
    struct mu_node node = { .ngpus = 4, .gpus = gpus };

    assert_int_equal(mu_nvml_name_migs(list, 5, &node, NULL), 3);
    assert_string_equal(gpus[0].uuid, "GPU-1");
    assert_string_equal(gpus[1].label, "MIG-20");
    assert_string_equal(gpus[3].uuid, "MIG-22");
    assert_int_equal(mu_node_find_gpu(&node, "MIG-21"), 2);
    assert_int_equal(mu_nvml_name_migs(list, 5, &node, NULL), 0); /* they have theirs */
    assert_int_equal(mu_nvml_name_migs(list, 2, &node, NULL), 0);
}

/* As the PCI bus shows a cut GPU: one device. */
static void
case_024_one_function_becomes_as_many_devices_as_it_was_cut_into(void **state)
{
    static const struct mu_nvml_device list[] = {
        { "0000:59:00.0", "GPU-2", false, 0, "" },
        { "0000:59:00.0", "MIG-20", true, 0, "" },
        { "0000:59:00.0", "MIG-21", true, 0, "" },
        { "0000:59:00.0", "MIG-22", true, 0, "" },
        { "0000:1a:00.0", "GPU-1", false, 0, "" },
    };
    static const char *const uuid[] = { "GPU-1", "MIG-20", "MIG-21", "MIG-22",
                                        "GPU-3" };
    struct mu_node node = { .ngpus = 3, .nnics = 1 };

    node.gpus = calloc(3, sizeof *node.gpus);
    node.nics = calloc(1, sizeof *node.nics);
    node.gpu_nic = calloc(3, sizeof *node.gpu_nic);
    node.gpu_gpu = calloc(9, sizeof *node.gpu_gpu);
    node.nvlinks = calloc(9, sizeof *node.nvlinks);
    for (int i = 0; i < 3; i++) {
        static const char *const busid[] = { "0000:1a:00.0", "0000:59:00.0",
                                             "0000:8b:00.0" };

        strcpy(node.gpus[i].busid, busid[i]);
        node.gpus[i].sub = -1;
        node.gpus[i].numa = i;
        node.gpu_nic[i] = i == 1 ? MU_NEAR_PXB : MU_NEAR_SYS;
        for (int k = 0; k < 3; k++) {
            node.gpu_gpu[i * 3 + k] = i == k ? MU_NEAR_NONE : MU_NEAR_NODE;
            node.nvlinks[i * 3 + k] = i == k ? 0 : 10 * i + k;
        }
    }
    strcpy(node.gpus[0].uuid, "GPU-1");
    strcpy(node.gpus[2].uuid, "GPU-3");
    assert_int_equal(mu_nvml_name_migs(list, 5, &node, NULL), 3);
    assert_int_equal(node.ngpus, 5);
    for (int i = 0; i < 5; i++) {
        bool part = i > 0 && i < 4;

        assert_string_equal(node.gpus[i].uuid, uuid[i]);
        assert_int_equal(node.gpus[i].sub, part ? i - 1 : -1);
        assert_int_equal(node.gpus[i].numa, i == 0 ? 0 : part ? 1 : 2);
        assert_int_equal(node.gpu_nic[i], part ? MU_NEAR_PXB : MU_NEAR_SYS);
        assert_int_equal(node.gpu_gpu[i * 5 + i], MU_NEAR_NONE);
    }
    assert_int_equal(node.gpu_gpu[1 * 5 + 3], MU_NEAR_PIX); /* slices of one GPU */
    assert_int_equal(node.gpu_gpu[3 * 5 + 4], MU_NEAR_NODE);
    assert_int_equal(node.nvlinks[1 * 5 + 2], 0);
    assert_int_equal(node.nvlinks[3 * 5 + 4], 12);
    assert_int_equal(node.nvlinks[4 * 5 + 0], 20);
    assert_int_equal(mu_nvml_name_migs(list, 5, &node, NULL), 0);
    assert_int_equal(node.ngpus, 5);
    mu_node_clear(&node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_child_lists_gpus_and_mig_devices),
        cmocka_unit_test(a_gpu_of_a_rack_has_its_nvlink_domain),
        cmocka_unit_test(case_024_a_mig_device_has_the_capability_file_of_its_instance),
        cmocka_unit_test(a_library_that_fails_hangs_or_is_not_there_harms_nobody),
        cmocka_unit_test(a_library_that_the_kernel_waits_for_is_left_at_the_deadline),
        cmocka_unit_test(case_024_mig_devices_get_their_uuids_in_order),
        cmocka_unit_test(
            case_024_one_function_becomes_as_many_devices_as_it_was_cut_into),
    };

    return cmocka_run_group_tests_name("nvml", tests, NULL, NULL);
}
