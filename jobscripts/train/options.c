/* SPDX-License-Identifier: BSD-3-Clause */
#include "jobscripts/train/options.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "jobscripts/train/data.h"
#include "runtime/base/parse.h"

enum {
    O_MODEL = 256,
    O_HIDDEN,
    O_DTYPE,
    O_DATA,
    O_SAMPLES,
    O_TEST_SAMPLES,
    O_TAIL,
    O_EPOCHS,
    O_STEPS,
    O_BATCH,
    O_ACCUMULATE,
    O_LR,
    O_MOMENTUM,
    O_DECAY,
    O_WARMUP,
    O_SCHEDULE,
    O_SEED,
    O_RANKS,
    O_ELASTIC,
    O_SINGLE,
    O_BACKEND,
    O_TRANSPORT,
    O_TIMEOUT,
    O_FIRST_BUCKET,
    O_BUCKET_CAP,
    O_COMPRESS,
    O_ZERO,
    O_CHECKPOINT,
    O_EVERY,
    O_KEEP,
    O_SHARDED,
    O_FOREGROUND,
    O_RESUME,
    O_RESULT,
    O_CURVE,
};

static const struct option names[] = {
    { "model", required_argument, NULL, O_MODEL },
    { "hidden", required_argument, NULL, O_HIDDEN },
    { "dtype", required_argument, NULL, O_DTYPE },
    { "data", required_argument, NULL, O_DATA },
    { "samples", required_argument, NULL, O_SAMPLES },
    { "test-samples", required_argument, NULL, O_TEST_SAMPLES },
    { "tail", required_argument, NULL, O_TAIL },
    { "epochs", required_argument, NULL, O_EPOCHS },
    { "steps", required_argument, NULL, O_STEPS },
    { "batch", required_argument, NULL, O_BATCH },
    { "accumulate", required_argument, NULL, O_ACCUMULATE },
    { "lr", required_argument, NULL, O_LR },
    { "momentum", required_argument, NULL, O_MOMENTUM },
    { "weight-decay", required_argument, NULL, O_DECAY },
    { "warmup", required_argument, NULL, O_WARMUP },
    { "schedule", required_argument, NULL, O_SCHEDULE },
    { "seed", required_argument, NULL, O_SEED },
    { "ranks", required_argument, NULL, O_RANKS },
    { "elastic", optional_argument, NULL, O_ELASTIC },
    { "single", no_argument, NULL, O_SINGLE },
    { "backend", required_argument, NULL, O_BACKEND },
    { "transport", required_argument, NULL, O_TRANSPORT },
    { "timeout", required_argument, NULL, O_TIMEOUT },
    { "first-bucket", required_argument, NULL, O_FIRST_BUCKET },
    { "bucket-cap", required_argument, NULL, O_BUCKET_CAP },
    { "compress", required_argument, NULL, O_COMPRESS },
    { "zero", no_argument, NULL, O_ZERO },
    { "checkpoint", required_argument, NULL, O_CHECKPOINT },
    { "checkpoint-every", required_argument, NULL, O_EVERY },
    { "keep", required_argument, NULL, O_KEEP },
    { "sharded", no_argument, NULL, O_SHARDED },
    { "foreground", no_argument, NULL, O_FOREGROUND },
    { "resume", required_argument, NULL, O_RESUME },
    { "result", required_argument, NULL, O_RESULT },
    { "curve", required_argument, NULL, O_CURVE },
    { "help", no_argument, NULL, 'h' },
    { "version", no_argument, NULL, 'V' },
    { NULL, 0, NULL, 0 },
};

static const char help[] =
    "usage: srun --mpi=pmix [SRUN OPTIONS] muster-train [OPTIONS]\n"
    "Train a small net on Fashion-MNIST with all tasks of the step.\n"
    "Defaults are in brackets.\n"
    "\n"
    "Model and data\n"
    "  --model mlp|cnn        the net [mlp]\n"
    "  --hidden N             width of its hidden layers [256]\n"
    "  --dtype fp32|fp64      precision of weights and gradients [fp32]\n"
    "  --data FOLDER          folder of the idx files\n"
    "                         [" DATA_FOLDER "]\n"
    "  --samples N            train on the first N samples only [all]\n"
    "  --test-samples N       test on the first N samples only [all]\n"
    "  --tail pad|drop        last samples of an epoch that do not divide evenly:\n"
    "                         repeat a few samples, or leave a few out [pad]\n"
    "Training\n"
    "  --epochs N             number of epochs [5]\n"
    "  --steps N              stop after N steps [at the end of the epochs]\n"
    "  --batch N              samples per rank and micro-batch [32]\n"
    "  --accumulate N         micro-batches per step [1]\n"
    "  --lr X                 learning rate of an effective batch of 128; it is\n"
    "                         scaled linearly with the effective batch [0.05]\n"
    "  --momentum X           momentum [0.9]\n"
    "  --weight-decay X       weight decay, not applied to biases [0]\n"
    "  --warmup X             epochs in which the rate rises linearly [0.5]\n"
    "  --schedule cosine|constant\n"
    "                         the rate after the warm-up [cosine]\n"
    "  --seed N               seed of the weights and of the sample order [1]\n"
    "Ranks\n"
    "  --ranks N              refuse to run with another number of ranks [any]\n"
    "  --elastic[=N]          when ranks die, go on while at least N are left; N\n"
    "                         defaults to 1 [a death ends the job]\n"
    "  --single               train with one rank, without srun\n"
    "  --backend host|nccl    the backend [nccl if there is a GPU]\n"
    "  --transport shm|tcp    host backend: transport between ranks of a node [shm]\n"
    "  --timeout SECONDS      deadline of each collective [600]\n"
    "  --first-bucket SIZE    bytes of the gradient bucket that starts first [1M]\n"
    "  --bucket-cap SIZE      bytes of the other buckets [chosen by libmuster]\n"
    "  --compress none|bf16|fp16|int8|powersgd[:RANK]\n"
    "                         compression of the gradients that are sent [none]\n"
    "  --zero                 ZeRO-1: each rank keeps and updates a part of the\n"
    "                         optimizer state\n"
    "Checkpoints\n"
    "  --checkpoint FOLDER    folder of the checkpoints [none are written]\n"
    "  --checkpoint-every N   steps between two checkpoints [one after each epoch]\n"
    "  --keep N               how many of the newest stay [3]\n"
    "  --sharded              every rank writes a part [rank 0 writes all]\n"
    "  --foreground           wait until each is on disk [written in the background]\n"
    "  --resume auto|never|must\n"
    "                         start from the newest usable checkpoint: if there is\n"
    "                         one, never, or fail if there is none [auto]\n"
    "Output\n"
    "  --result FILE          numbers of the run as JSON, for muster report\n"
    "  --curve FILE           step and loss, one line per step\n"
    "  --help                 print this text\n"
    "  --version              print the release\n"
    "\n"
    "OMP_NUM_THREADS sets the BLAS threads of a rank [1].\n"
    "With --checkpoint, SIGUSR1 and SIGTERM write a checkpoint and end the run.\n"
    "\n"
    "Exit status: 0 trained; 10 wrong usage; 11 no PMIx, or a rank did not arrive;\n"
    "12 ranks, or checkpoint and program, do not fit together; 13 a rank died;\n"
    "14 a rank missed the deadline; 15 GPU; 16 file or network; 17 out of memory;\n"
    "18 the loss is not a number, or weights differ; 19 a defect of libmuster;\n"
    "20 started without srun; 21 data file; 22 stopped by a signal: run it again\n";

void train_options_help(void)
{
    fputs(help, stdout);
}

static int word(const char *what, const char *text, const char *const *words, int *out,
                struct mu_err *err)
{
    char list[128] = "";
    int i = mu_parse_word(text, words);

    if (i >= 0) {
        *out = i;
        return 0;
    }
    for (i = 0; words[i]; i++) {
        strncat(list, i ? ", " : "", sizeof list - strlen(list) - 1);
        strncat(list, words[i], sizeof list - strlen(list) - 1);
    }
    return mu_err_set(err, MUSTER_EUSAGE, "%s is '%s', not one of: %s", what, text,
                      list);
}

static int count(const char *what, const char *text, uint64_t *out, struct mu_err *err)
{
    long value;

    if (mu_parse_int(what, text, 0, 1000000000000, &value, err) < 0)
        return -1;
    *out = (uint64_t)value;
    return 0;
}

static int set_compress(struct train_options *opt, const char *name, struct mu_err *err)
{
    static const char *const words[] = { "none", "bf16", "fp16", "int8", NULL };
    static const int what[] = { -1, MUSTER_COMPRESS_BF16, MUSTER_COMPRESS_F16,
                                MUSTER_COMPRESS_INT8 };
    static const char power[] = "powersgd:";
    int i = mu_parse_word(optarg, words);

    opt->compress_text = optarg;
    if (i >= 0) {
        opt->compress = what[i];
        return 0;
    }
    if (strcmp(optarg, "powersgd") == 0) { /* the default rank of libmuster */
        opt->compress = MUSTER_COMPRESS_POWERSGD;
        return 0;
    }
    if (strncmp(optarg, power, sizeof power - 1) != 0)
        return mu_err_set(
            err, MUSTER_EUSAGE,
            "%s is '%s', not one of: none, bf16, fp16, int8, powersgd[:RANK]", name,
            optarg);
    opt->compress = MUSTER_COMPRESS_POWERSGD;
    return mu_parse_int(name, optarg + sizeof power - 1, 1, 1024, &opt->compress_rank,
                        err);
}

static int set_words(struct train_options *opt, int option, const char *name,
                     struct mu_err *err)
{
    static const char *const dtypes[] = { "fp32", "fp64", NULL };
    static const char *const tails[] = { "pad", "drop", NULL };
    static const char *const schedules[] = { "constant", "cosine", NULL };
    static const char *const resumes[] = { "auto", "never", "must", NULL };
    int i = 0;

    switch (option) {
    case O_COMPRESS:
        return set_compress(opt, name, err);
    case O_DTYPE:
        if (word(name, optarg, dtypes, &i, err) < 0)
            return -1;
        opt->dtype = i ? MUSTER_F64 : MUSTER_F32;
        return 0;
    case O_TAIL:
        if (word(name, optarg, tails, &i, err) < 0)
            return -1;
        opt->tail = i ? MUSTER_TAIL_DROP : MUSTER_TAIL_PAD;
        return 0;
    case O_SCHEDULE:
        return word(name, optarg, schedules, &opt->cosine, err);
    case O_RESUME:
        if (word(name, optarg, resumes, &i, err) < 0)
            return -1;
        opt->resume = (enum train_resume)i;
        return 0;
    }
    return mu_err_set(err, MUSTER_EINTERNAL, "%s is not handled", name);
}

static int set_numbers(struct train_options *opt, int option, const char *name,
                       struct mu_err *err)
{
    switch (option) {
    case O_HIDDEN:
        return mu_parse_int(name, optarg, 1, 65536, &opt->hidden, err);
    case O_SAMPLES:
        return count(name, optarg, &opt->samples, err);
    case O_TEST_SAMPLES:
        return count(name, optarg, &opt->test_samples, err);
    case O_EPOCHS:
        return mu_parse_int(name, optarg, 1, 100000, &opt->epochs, err);
    case O_STEPS:
        return count(name, optarg, &opt->max_steps, err);
    case O_BATCH:
        return mu_parse_int(name, optarg, 1, 65536, &opt->batch, err);
    case O_ACCUMULATE:
        return mu_parse_int(name, optarg, 1, 4096, &opt->accumulate, err);
    case O_LR:
        return mu_parse_double(name, optarg, 0, 1000, &opt->lr, err);
    case O_MOMENTUM:
        return mu_parse_double(name, optarg, 0, 0.9999, &opt->momentum, err);
    case O_DECAY:
        return mu_parse_double(name, optarg, 0, 1, &opt->decay, err);
    case O_WARMUP:
        return mu_parse_double(name, optarg, 0, 100000, &opt->warmup, err);
    case O_SEED:
        return count(name, optarg, &opt->seed, err);
    case O_RANKS:
        return mu_parse_int(name, optarg, 1, 1000000, &opt->ranks, err);
    case O_ELASTIC:
        opt->elastic = 1;
        return optarg ? mu_parse_int(name, optarg, 1, 1000000, &opt->elastic, err) : 0;
    case O_TIMEOUT:
        return mu_parse_double(name, optarg, 0.1, 1e6, &opt->timeout, err);
    case O_FIRST_BUCKET:
        return mu_parse_size(name, optarg, 1ull << 40, &opt->first_bucket, err);
    case O_BUCKET_CAP:
        return mu_parse_size(name, optarg, 1ull << 40, &opt->bucket_cap, err);
    case O_EVERY:
        return count(name, optarg, &opt->checkpoint_every, err);
    case O_KEEP:
        return mu_parse_int(name, optarg, 1, 1000000, &opt->keep, err);
    }
    return set_words(opt, option, name, err);
}

static int set(struct train_options *opt, int option, const char *name,
               struct mu_err *err)
{
    switch (option) {
    case 'h':
        opt->help = 1;
        return 0;
    case 'V':
        opt->version = 1;
        return 0;
    case O_MODEL:
        opt->model = optarg;
        return 0;
    case O_DATA:
        opt->data = optarg;
        return 0;
    case O_SINGLE:
        opt->single = 1;
        return 0;
    case O_BACKEND:
        opt->backend = optarg;
        return 0;
    case O_TRANSPORT:
        opt->transport = optarg;
        return 0;
    case O_CHECKPOINT:
        opt->checkpoint = optarg;
        return 0;
    case O_ZERO:
        opt->zero = 1;
        return 0;
    case O_SHARDED:
        opt->sharded = 1;
        return 0;
    case O_FOREGROUND:
        opt->foreground = 1;
        return 0;
    case O_RESULT:
        opt->result = optarg;
        return 0;
    case O_CURVE:
        opt->curve = optarg;
        return 0;
    }
    if (set_numbers(opt, option, name, err) < 0) {
        err->code = MUSTER_EUSAGE;
        return -1;
    }
    return 0;
}

int train_options_parse(struct train_options *opt, int argc, char **argv,
                        struct mu_err *err)
{
    int option, index = 0, at;

    *opt = (struct train_options){
        .model = "mlp",
        .data = DATA_FOLDER,
        .dtype = MUSTER_F32,
        .seed = 1,
        .hidden = 256,
        .epochs = 5,
        .batch = 32,
        .accumulate = 1,
        .keep = 3,
        .lr = 0.05,
        .momentum = 0.9,
        .warmup = 0.5,
        .cosine = 1,
        .compress = -1,
        .compress_text = "none",
    };
    opterr = 0;
    optind = 1;
    while (at = optind, (option = getopt_long(argc, argv, ":h", names, &index)) != -1) {
        char name[64];

        if (option == ':')
            return mu_err_set(err, MUSTER_EUSAGE, "%s needs a value; see --help",
                              argv[at]);
        if (option == '?')
            return mu_err_set(err, MUSTER_EUSAGE, "unknown option %s; see --help",
                              argv[at]);
        snprintf(name, sizeof name, "--%s", option == 'h' ? "help" : names[index].name);
        if (set(opt, option, name, err) < 0)
            return -1;
    }
    if (optind < argc)
        return mu_err_set(err, MUSTER_EUSAGE, "unexpected argument '%s'; see --help",
                          argv[optind]);
    if (opt->zero && opt->checkpoint && !opt->sharded)
        return mu_err_set(
            err, MUSTER_EUSAGE,
            "with --zero each rank has only a part of the momenta: add --sharded "
            "to --checkpoint");
    if (opt->zero && opt->elastic)
        return mu_err_set(err, MUSTER_EUSAGE,
                          "--zero and --elastic exclude each other: when a rank dies, "
                          "its part of the momenta is lost");
    if (opt->resume == RESUME_MUST && !opt->checkpoint)
        return mu_err_set(err, MUSTER_EUSAGE,
                          "--resume=must needs --checkpoint FOLDER");
    return 0;
}
