/* init of a Linux that is started only for measurements: runs the programs named in /plan and powers off.
 *
 * Each line of /plan is a program with its arguments. Reports go to a serial port, one JSON line each: the
 * addresses of the kernel functions named in /symbols; and for each program, after its own output, the shootdown
 * interrupts during its run, and its exit status. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

/* The second serial port; the boards of Arm and RISC-V have one port for both. */
#if defined(__x86_64__)
#define REPORTS "/dev/ttyS1"
#else
#define REPORTS "/dev/console"
#endif
#define WORDS 24

static void off(void)
{
    fflush(stdout);
    /* The port may be slower than the power. */
    tcdrain(1);
    sync();
    reboot(RB_POWER_OFF);
    for (;;)
        pause();
}

static void need(int failed, const char *what)
{
    if (!failed)
        return;
    printf("{\"failed\":\"%s: %s\"}\n", what, strerror(errno));
    off();
}

/* Interrupts of all CPUs in the line of /proc/interrupts that ends in `words`. */
static unsigned long interrupts(const char *words)
{
    static char line[4096];
    FILE *file = fopen("/proc/interrupts", "r");
    need(!file, "/proc/interrupts");
    unsigned long sum = 0;
    while (fgets(line, sizeof line, file)) {
        if (!strstr(line, words))
            continue;
        char *at = strchr(line, ':'), *end;
        for (at++;; at = end) {
            unsigned long count = strtoul(at, &end, 10);
            if (end == at)
                break;
            sum += count;
        }
    }
    fclose(file);
    return sum;
}

/* Prints the addresses of the kernel functions named in /symbols. */
static void symbols(void)
{
    static char requested[4096];
    FILE *names = fopen("/symbols", "r");
    if (!names)
        return;
    requested[0] = '\n';
    size_t length = fread(requested + 1, 1, sizeof requested - 2, names);
    requested[length + 1] = 0;
    fclose(names);
    FILE *all = fopen("/proc/kallsyms", "r");
    need(!all, "/proc/kallsyms");
    char line[512], address[32], name[256], framed[300];
    while (fgets(line, sizeof line, all)) {
        if (sscanf(line, "%31s %*s %255s", address, name) != 2)
            continue;
        snprintf(framed, sizeof framed, "\n%s\n", name);
        if (strstr(requested, framed))
            printf("{\"symbol\":\"%s\",\"address\":\"%s\"}\n", name, address);
    }
    fclose(all);
}

static void run(char *line)
{
    char *words[WORDS + 1] = {0};
    unsigned count = 0;
    for (char *word = strtok(line, " \n"); word && count < WORDS; word = strtok(NULL, " \n"))
        words[count++] = word;
    if (!count)
        return;
    unsigned long shootdowns = interrupts("TLB shootdowns"), calls = interrupts("Function call interrupts");
    fflush(stdout);
    pid_t child = fork();
    need(child < 0, "fork");
    if (child == 0) {
        execv(words[0], words);
        _exit(127);
    }
    int status;
    need(waitpid(child, &status, 0) < 0, "waitpid");
    /* On a line of its own: the program may have ended within one. */
    printf("\n{\"ran\":\"%s\",\"status\":%d,\"shootdown_interrupts\":%lu,\"call_interrupts\":%lu}\n", words[0],
           WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), interrupts("TLB shootdowns") - shootdowns,
           interrupts("Function call interrupts") - calls);
    fflush(stdout);
}

int main(void)
{
    int reports = open(REPORTS, O_WRONLY);
    if (reports >= 0) {
        dup2(reports, 1);
        dup2(reports, 2);
    }
    need(mount("proc", "/proc", "proc", 0, NULL), "mount of /proc");
    struct utsname self;
    need(uname(&self), "uname");
    printf("{\"kernel\":\"Linux %s\"}\n", self.release);
    symbols();
    FILE *plan = fopen("/plan", "r");
    need(!plan, "/plan");
    char line[512];
    while (fgets(line, sizeof line, plan))
        run(line);
    printf("{\"done\":true}\n");
    off();
}
