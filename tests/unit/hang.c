/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/hang.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t server;
static char mounted[512];

/* The kernel's first request, which alone is answered. */
static bool answer_init(int fd)
{
    struct {
        struct fuse_out_header head;
        struct fuse_init_out init;
    } out = { 0 };
    char buf[FUSE_MIN_READ_BUFFER];
    const struct fuse_in_header *in = (const void *)buf;

    if (read(fd, buf, sizeof buf) < (ssize_t)sizeof *in || in->opcode != FUSE_INIT)
        return false;
    out.head.len = sizeof out;
    out.head.unique = in->unique;
    out.init.major = FUSE_KERNEL_VERSION;
    out.init.minor = 31;
    out.init.max_write = 4096;
    return write(fd, &out, sizeof out) == (ssize_t)sizeof out;
}

/* A request that the server took is one that the kernel waits for without limit. */
static void serve(int fd)
{
    char buf[FUSE_MIN_READ_BUFFER];

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (read(fd, buf, sizeof buf) > 0)
        ;
    _exit(0);
}

bool hang_alone(void)
{
    if ((unshare(CLONE_NEWNS) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0) &&
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0)
        return true;
    printf("no mount namespaces here: %s\n", strerror(errno));
    return false;
}

bool hang_begin(const char *path)
{
    int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    bool ready = false;
    char options[128];
    struct stat st;

    snprintf(options, sizeof options,
             "fd=%d,rootmode=%s,user_id=%d,group_id=%d,allow_other", fd,
             stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? "40755" : "100644",
             (int)getuid(), (int)getgid());
    snprintf(mounted, sizeof mounted, "%s", path);
    if (fd >= 0 && mount("hang", path, "fuse", MS_NOSUID | MS_NODEV, options) == 0) {
        ready = answer_init(fd);
        server = fork();
        if (server == 0)
            serve(fd);
    }
    if (!ready)
        printf("no FUSE file system here: %s\n", strerror(errno));
    if (fd >= 0)
        close(fd);
    return ready;
}

void hang_end(void)
{
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    umount2(mounted, MNT_DETACH);
}
