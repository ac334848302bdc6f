/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* hotplug PROGRAM ARGUMENTS...: takes CPUs offline and brings them back, one after the other, while a program runs.
 * Status: the program's; 3 if it ended before any CPU had come back. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Whether the CPU is there and has changed. */
static int turn(unsigned cpu, const char *state)
{
    char path[64];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/online", cpu);
    int file = open(path, O_WRONLY);
    if (file < 0)
        return 0;
    int changed = write(file, state, 1) == 1;
    close(file);
    return changed;
}

int main(int argc, char **argv)
{
    mkdir("/sys", 0755);
    mount("sysfs", "/sys", "sysfs", 0, NULL);
    char path[64];
    if (argc < 2)
        return 2;
    snprintf(path, sizeof path, "/%s", argv[1]);
    pid_t child = fork();
    if (child == 0) {
        execv(path, argv + 1);
        _exit(127);
    }
    unsigned back = 0, cpu = 1;
    int status;
    while (waitpid(child, &status, WNOHANG) == 0) {
        /* CPU 0 stays. */
        if (!turn(cpu, "0")) {
            cpu = 1;
            continue;
        }
        back += (unsigned)turn(cpu++, "1");
    }
    if (!back)
        return 3;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
