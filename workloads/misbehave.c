/* misbehave: does one thing that a program must not do, or that a kernel may lack. What should become of it is in
 * `cargo xtask programs`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Mapped nowhere; and the kernel's. */
#define NOWHERE ((volatile int *)0xdeadbeef000)
#define KERNEL ((volatile int *)0xffffffff80200000)

static char data[16];

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    /* A bad pointer in a system call is an error of the call. */
    if (write(1, (const void *)NOWHERE, 16) != -1)
        return 1;
    if (!strcmp(what, "read"))
        return *NOWHERE;
    if (!strcmp(what, "read-kernel"))
        return *KERNEL;
    if (!strcmp(what, "write-code"))
        *(volatile char *)main = 1;
    if (!strcmp(what, "run-data"))
        ((void (*)(void))data)();
    if (!strcmp(what, "halt"))
        __asm__ volatile("hlt");
    if (!strcmp(what, "broadcast")) /* INVLPGB: the kernel's alone */
        __asm__ volatile(".byte 0x0f, 0x01, 0xfe" ::"a"(0), "c"(0), "d"(0));
    if (!strcmp(what, "lacking"))
        return (int)syscall(SYS_socket, 0, 0, 0);
    printf("%s\n", what);
    return 7;
}
