/* SPDX-License-Identifier: BSD-3-Clause */
/* test_gpu_class.c - which PCI functions are GPUs that compute */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "spank/hw/machine/machine.h"

static const struct class_case {
    const char *name;
    unsigned class_id, vendor, device;
    bool gpu;
} cases[] = {
    { "H100", 0x030200, 0x10de, 0x2330, true },
    { "GTX 750, with a video output", 0x030000, 0x10de, 0x1381, true },
    { "NVSwitch", 0x068000, 0x10de, 0x22a3, false },
    { "the audio function of a GeForce", 0x040300, 0x10de, 0x0fbc, false },
    { "ConnectX by the same vendor's other id", 0x020700, 0x15b3, 0x1021, false },
    { "MI250X", 0x038000, 0x1002, 0x740c, true },
    { "MI300A", 0x120000, 0x1002, 0x74a0, true },
    { "MI25, a card of the display class", 0x030000, 0x1002, 0x6860, true },
    { "ES1000, a server's console", 0x030000, 0x1002, 0x515e, false },
    { "the graphics unit of a Ryzen", 0x030000, 0x1002, 0x1638, false },
    { "Ponte Vecchio", 0x038000, 0x8086, 0x0bd5, true },
    { "Data Center GPU Flex", 0x038000, 0x8086, 0x56c0, true },
    { "Arc A770", 0x030000, 0x8086, 0x56a0, true },
    { "Battlemage", 0x030000, 0x8086, 0xe20b, true },
    { "the graphics unit of a Core", 0x030000, 0x8086, 0x9a49, false },
    { "ASPEED, a BMC", 0x030000, 0x1a03, 0x2000, false },
    { "Matrox G200, a BMC", 0x030000, 0x102b, 0x0522, false },
    { "a virtual machine's console", 0x030000, 0x1234, 0x1111, false },
    { "virtio", 0x030000, 0x1af4, 0x1050, false },
    { "Hyper-V's console", 0x030000, 0x1414, 0x5353, false },
    { "an accelerator of another vendor", 0x120000, 0x1da3, 0x1020, false },
};

static void display_cards_are_no_gpus(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (mu_pci_is_gpu(cases[i].class_id, cases[i].vendor, cases[i].device) !=
            cases[i].gpu)
            fail_msg("%s", cases[i].name);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(display_cards_are_no_gpus) };

    return cmocka_run_group_tests_name("gpu class", tests, NULL, NULL);
}
