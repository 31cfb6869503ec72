/* SPDX-License-Identifier: BSD-3-Clause */
/* test_plugin_hwloc.c - what muster.so makes hwloc load in a process that links it, as
 * slurmstepd does
 */
#include <hwloc.h>

#include "tests/unit/plugin_host.h"

/* Does this process map a plugin of hwloc's? */
static bool maps_hwloc_plugin(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    bool found = false;

    assert_non_null(maps);
    while (fgets(line, sizeof line, maps))
        found |= strstr(line, "/hwloc_") != NULL;
    fclose(maps);
    return found;
}

/* Has hwloc plugins, and loads them for any topology? */
static bool hwloc_has_plugins(void)
{
    hwloc_topology_t topology;
    bool has;

    assert_int_equal(hwloc_topology_init(&topology), 0);
    has = maps_hwloc_plugin();
    hwloc_topology_destroy(topology);
    return has;
}

/* Between the two hooks slurmstepd reads the machine with hwloc too. */
static void hwloc_keeps_its_plugins_from_init_until_user_init(void **state)
{
    void *so = load();

    if (!hwloc_has_plugins())
        skip();
    assert_false(maps_hwloc_plugin());
    assert_int_equal(((hook *)dlsym(so, "slurm_spank_init"))(NULL, 0, NULL), 0);
    assert_true(maps_hwloc_plugin());
    assert_int_equal(((hook *)dlsym(so, "slurm_spank_user_init"))(NULL, 0, NULL), 0);
    assert_false(maps_hwloc_plugin());
    unload(so);
}

/* hwloc's PCI plugin loads libpciaccess, whose pci_get_strings() keeps names of vendors
 * in a static variable and never frees them: 1016 bytes that are lost where the library
 * is unloaded with the plugin. Here it stays, so that any other loss fails the test.
 */
static int libpciaccess_stays(void **state)
{
    dlopen("libpciaccess.so.0", RTLD_LAZY | RTLD_NODELETE);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hwloc_keeps_its_plugins_from_init_until_user_init),
    };

    return cmocka_run_group_tests_name("plugin_hwloc", tests, libpciaccess_stays, NULL);
}
