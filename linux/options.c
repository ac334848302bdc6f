// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * A known bug of the engine is put in force at boot, for tests.
 */
#include <linux/init.h>
#include <linux/panic.h>
#include <linux/printk.h>
#include <linux/string.h>
#include <linux/types.h>

/* Only a library with known bugs has it (crates/shootdown-c-patched). */
extern bool shootdown_select_bug(const char *name, size_t length) __weak;

/* shootdown.bug=NAME, the negative control: one known bug of the engine is in force. */
static int __init select_bug(char *name)
{
	if (!shootdown_select_bug)
		panic("shootdown.bug=%s: the library has no known bugs; build it with cargo xtask linux test --bugs", name);
	if (!shootdown_select_bug(name, strlen(name)))
		panic("shootdown.bug=%s: no bug has that name; crates/shootdown-known-bugs/bugs.toml has them", name);
	pr_info("shootdown: the known bug %s is in force\n", name);
	return 0;
}
early_param("shootdown.bug", select_bug);
