/* SPDX-License-Identifier: BSD-3-Clause */
/* test_opts.c - the text of --muster: every key, every value, what is refused and how
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "spank/core/options/mem_bind.h"
#include "spank/core/options/muster_option.h"

#define F(field) offsetof(struct mu_opts, field)

static const struct value_case {
    const char *name, *text;
    size_t field;
    int value;
} values[] = {
    { "bare --muster is on", "", F(mode), MU_MODE_ON },
    { "srun's text for no argument is on", "(null)", F(mode), MU_MODE_ON },
    { "on", "on", F(mode), MU_MODE_ON },
    { "off", "off", F(mode), MU_MODE_OFF },
    { "dry-run", "dry-run", F(mode), MU_MODE_DRY_RUN },
    { "any key asks for the plugin", "cpus=all", F(mode), MU_MODE_ON },
    { "the later mode wins", "off,on", F(mode), MU_MODE_ON },
    { "a key after off leaves it off", "off,cpus=all", F(mode), MU_MODE_OFF },
    { "dry-run=no is on", "dry-run=no", F(mode), MU_MODE_ON },
    { "off=no is on", "off=no", F(mode), MU_MODE_ON },
    { "on=no is off", "on=no", F(mode), MU_MODE_OFF },
    { "verbose", "verbose", F(verbose), MU_FLAG_YES },
    { "verbose=no", "verbose=no", F(verbose), MU_FLAG_NO },
    { "strict", "strict", F(strict), MU_FLAG_YES },
    { "strict=yes", "strict=yes", F(strict), MU_FLAG_YES },
    { "bind=auto", "bind=auto", F(bind), MU_BIND_AUTO },
    { "bind=none", "bind=none", F(bind), MU_BIND_NONE },
    { "cpus=local", "cpus=local", F(cpus), MU_CPUS_LOCAL },
    { "cpus=all", "cpus=all", F(cpus), MU_CPUS_ALL },
    { "mem=prefer", "mem=prefer", F(mem), MU_MEM_PREFER },
    { "mem=strict", "mem=strict", F(mem), MU_MEM_STRICT },
    { "mem=none", "mem=none", F(mem), MU_MEM_NONE },
    { "visible=auto", "visible=auto", F(visible), MU_VISIBLE_AUTO },
    { "visible=own", "visible=own", F(visible), MU_VISIBLE_OWN },
    { "visible=all", "visible=all", F(visible), MU_VISIBLE_ALL },
    { "share=warn", "share=warn", F(share), MU_SHARE_WARN },
    { "share=yes", "share=yes", F(share), MU_SHARE_YES },
    { "share=no", "share=no", F(share), MU_SHARE_NO },
    { "nccl=none", "nccl=none", F(nccl), MU_AUTO_NONE },
    { "nccl=auto", "nccl=auto", F(nccl), MU_AUTO_AUTO },
    { "rdzv=none", "rdzv=none", F(rdzv), MU_RDZV_NONE },
    { "rdzv=ranks", "rdzv=ranks", F(rdzv), MU_RDZV_RANKS },
    { "omp=none", "omp=none", F(omp), MU_AUTO_NONE },
    { "topo=auto", "topo=auto", F(topo), MU_TOPO_AUTO },
    { "topo=none", "topo=none", F(topo), MU_TOPO_NONE },
    { "topo=FILE", "topo=/etc/topo.xml", F(topo), MU_TOPO_FILE },
    { "profile", "profile", F(profile), MU_PROFILE_YES },
    { "profile=yes", "profile=yes", F(profile), MU_PROFILE_YES },
    { "profile=no", "profile=no", F(profile), MU_PROFILE_NO },
    { "profile=FOLDER", "profile=./ledgers", F(profile), MU_PROFILE_FOLDER },
    { "accelerate", "accelerate", F(accelerate), MU_FLAG_YES },
    { "accelerate=no", "accelerate=no", F(accelerate), MU_FLAG_NO },
    { "tuner=none", "tuner=none", F(tuner), MU_TUNER_NONE },
    { "tuner=FILE", "tuner=/etc/h200.tune", F(tuner), MU_TUNER_FILE },
    { "the later value wins", "cpus=all,cpus=local", F(cpus), MU_CPUS_LOCAL },
};

static void every_key_and_value_is_stored(void **state)
{
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        struct mu_opts opts = { 0 };
        struct mu_err err = { 0 };

        if (mu_opts_parse(values[i].text, &opts, &err) < 0)
            fail_msg("%s: %s", values[i].name, err.text);
        if (*(int *)((char *)&opts + values[i].field) != values[i].value)
            fail_msg("%s: got %d, want %d", values[i].name,
                     *(int *)((char *)&opts + values[i].field), values[i].value);
    }
}

static const struct bad_case {
    const char *name, *text, *says;
} bad[] = {
    { "an unknown key: the keys are listed", "numa=1",
      "unknown key 'numa'; the keys are on" },
    { "a key in upper case", "ON", "unknown key 'ON'" },
    { "an empty item", "on,,verbose", "unknown key ''" },
    { "a comma at the end", "on,", "unknown key ''" },
    { "an unknown word: the words are listed", "mem=all",
      "mem takes prefer, strict or none, "
      "not 'all'" },
    { "two words are listed with or", "bind=cores",
      "bind takes auto or none, not 'cores'" },
    { "a missing value", "cpus", "cpus takes local or all" },
    { "an empty value", "cpus=", "cpus takes local or all" },
    { "a bare word with a wrong value", "verbose=2",
      "verbose takes no value, or yes or no" },
    { "share without a value", "share", "share takes warn, yes or no" },
    { "a misspelt topo word is no file", "topo=atuo",
      "topo takes auto, none or a file name" },
    { "profile and a word that is no folder", "profile=on",
      "profile takes no, yes or a folder name (with a '/'), not 'on'" },
    { "tuner without a value", "tuner",
      "tuner takes none or a file name (with a '/'), not ''" },
    { "gpu-bind without a value", "gpu-bind",
      "gpu-bind takes a value of Slurm's --gpu-bind" },
    { "gpu-bind that Slurm would refuse", "gpu-bind=nearest",
      "'nearest' is not a GPU binding" },
    { "a comma within gpu-bind", "gpu-bind=map_gpu:3,2",
      "'2' follows a comma; inside gpu-bind write + instead: "
      "gpu-bind=map_gpu:3+2" },
    { "blanks are not skipped", "on, verbose", "unknown key ' verbose'" },
};

static void what_is_refused_is_named_and_nothing_changes(void **state)
{
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct mu_opts opts = { .cpus = MU_CPUS_ALL }, before = opts;
        struct mu_err err = { 0 };

        if (mu_opts_parse(bad[i].text, &opts, &err) != -1)
            fail_msg("%s: accepted", bad[i].name);
        if (!strstr(err.text, bad[i].says) || strncmp(err.text, "--muster: ", 10) != 0)
            fail_msg("%s: says '%s'", bad[i].name, err.text);
        assert_memory_equal(&opts, &before, sizeof opts);
    }
}

static void a_good_key_before_a_bad_one_is_not_kept(void **state)
{
    struct mu_opts opts = { 0 }, before = opts;

    assert_int_equal(mu_opts_parse("cpus=all,nonsense", &opts, NULL), -1);
    assert_memory_equal(&opts, &before, sizeof opts);
}

static void gpu_bind_has_plus_for_the_commas(void **state)
{
    struct mu_opts opts = { 0 };

    assert_int_equal(mu_opts_parse("gpu-bind=map_gpu:3+2+1+0,verbose", &opts, NULL), 0);
    assert_string_equal(opts.gpu_bind, "map_gpu:3,2,1,0");
    assert_int_equal(opts.verbose, MU_FLAG_YES);
    assert_int_equal(mu_opts_parse("gpu-bind=verbose+closest", &opts, NULL), 0);
    assert_string_equal(opts.gpu_bind, "verbose,closest");
}

static void names_that_do_not_fit_are_refused(void **state)
{
    static char text[8192];
    struct mu_opts opts = { 0 };
    struct mu_err err = { 0 };

    memset(text, 'a', sizeof text - 1);
    memcpy(text, "topo=/", 6);
    assert_int_equal(mu_opts_parse(text, &opts, &err), -1);
    assert_int_equal(err.code, ENAMETOOLONG);
    assert_int_equal(opts.topo, MU_TOPO_UNSET);
    memset(text, 'a', 1032);
    memcpy(text, "profile=/", 9);
    text[8 + 1024] = '\0';
    assert_int_equal(mu_opts_parse(text, &opts, &err), -1);
    assert_string_equal(err.text, "--muster: profile: the folder name has 1024 "
                                  "characters, at most 1023 are allowed");
    text[8 + 1023] = '\0';
    assert_int_equal(mu_opts_parse(text, &opts, &err), 0);
    assert_int_equal(strlen(opts.profile_folder), 1023);
    memset(text, 'a', sizeof text - 1);
    memcpy(text, "gpu-bind=map_gpu:", 17);
    assert_int_equal(mu_opts_parse(text, &opts, &err), -1);
    assert_int_equal(err.code, ENAMETOOLONG);
}

static void merging_fills_only_what_is_unset(void **state)
{
    struct mu_opts opts = { 0 }, site = { 0 }, all;

    assert_int_equal(mu_opts_parse("cpus=all,topo=/a.xml", &opts, NULL), 0);
    assert_int_equal(
        mu_opts_parse("off,cpus=local,mem=none,topo=/b.xml,gpu-bind=closest,"
                      "profile=/p",
                      &site, NULL),
        0);
    mu_opts_merge(&opts, &site);
    assert_int_equal(opts.mode, MU_MODE_ON);
    assert_int_equal(opts.cpus, MU_CPUS_ALL);
    assert_int_equal(opts.mem, MU_MEM_NONE);
    assert_string_equal(opts.topo_file, "/a.xml");
    assert_string_equal(opts.gpu_bind, "closest");
    assert_int_equal(opts.profile, MU_PROFILE_FOLDER);
    assert_string_equal(opts.profile_folder, "/p");
    assert_true(mu_opts_unset(&opts, "profile"));
    assert_string_equal(opts.profile_folder, "");
    mu_opts_defaults(&all);
    mu_opts_merge(&opts, &all);
    assert_int_equal(opts.visible, MU_VISIBLE_AUTO);
    assert_int_equal(opts.share, MU_SHARE_WARN);
}

static void the_defaults_leave_nothing_unset(void **state)
{
    struct mu_opts opts = { 0 };

    mu_opts_defaults(&opts);
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        assert_int_not_equal(*(int *)((char *)&opts + values[i].field), 0);
}

static void keys_are_recognised(void **state)
{
    assert_true(mu_opts_is_key("gpu-bind"));
    assert_true(mu_opts_is_key("omp"));
    assert_true(mu_opts_is_key("dry-run"));
    assert_false(mu_opts_is_key("enable"));
    assert_false(mu_opts_is_key(""));
}

static const struct mem_case {
    const char *text;
    enum mu_mem mem;
} mem_binds[] = {
    { NULL, MU_MEM_UNSET },
    { "", MU_MEM_UNSET },
    { "quiet", MU_MEM_UNSET },
    { "verbose", MU_MEM_UNSET },
    { "v,sort", MU_MEM_UNSET },
    { "none", MU_MEM_NONE },
    { "quiet,none", MU_MEM_NONE },
    { "rank", MU_MEM_NONE },
    { "quiet,map_mem:0,1", MU_MEM_NONE },
    { "mask_mem:0x1", MU_MEM_NONE },
    { "local", MU_MEM_STRICT },
    { "quiet,LOCAL", MU_MEM_STRICT },
    { "quiet,prefer,local", MU_MEM_PREFER },
    { "p,local", MU_MEM_PREFER },
    { "prefer,map_mem:1", MU_MEM_NONE },
};

static void case_065_a_memory_binding_of_the_user_is_found(void **state)
{
    for (size_t i = 0; i < sizeof mem_binds / sizeof mem_binds[0]; i++)
        if (mu_mem_bind_parse(mem_binds[i].text) != mem_binds[i].mem)
            fail_msg("'%s'", mem_binds[i].text ? mem_binds[i].text : "(null)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_and_value_is_stored),
        cmocka_unit_test(what_is_refused_is_named_and_nothing_changes),
        cmocka_unit_test(a_good_key_before_a_bad_one_is_not_kept),
        cmocka_unit_test(gpu_bind_has_plus_for_the_commas),
        cmocka_unit_test(names_that_do_not_fit_are_refused),
        cmocka_unit_test(merging_fills_only_what_is_unset),
        cmocka_unit_test(the_defaults_leave_nothing_unset),
        cmocka_unit_test(keys_are_recognised),
        cmocka_unit_test(case_065_a_memory_binding_of_the_user_is_found),
    };

    return cmocka_run_group_tests_name("opts", tests, NULL, NULL);
}
