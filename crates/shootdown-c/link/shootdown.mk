# The library for a kernel in C, as one object: a fragment for the kernel's Makefile.
#
#     SHOOTDOWN_ARCH := aarch64
#     include .../shootdown-c/link/shootdown.mk
#     CFLAGS += $(SHOOTDOWN_CFLAGS)
#     kernel.elf: $(objects) $(SHOOTDOWN_OBJECT)
#
# Settings, all before the include or on the command line. Those that differ need different SHOOTDOWN_OUTs.

# x86_64, aarch64 or riscv64.
SHOOTDOWN_ARCH ?= $(if $(ARCH),$(ARCH),x86_64)
# Prefix of the cross compiler's tools.
CROSS_COMPILE ?=
SHOOTDOWN_LD ?= $(CROSS_COMPILE)ld
SHOOTDOWN_OBJCOPY ?= $(CROSS_COMPILE)objcopy
CARGO ?= cargo
# Where it is built.
SHOOTDOWN_OUT ?= shootdown-$(SHOOTDOWN_ARCH)
# The one design that the kernel uses, by its name: the code of others is left out. Empty: chosen when the kernel starts.
SHOOTDOWN_DESIGN ?=
# Machines of up to 64 times as many CPUs.
SHOOTDOWN_CPU_WORDS ?= 1
# Features of the crate, with commas between them. With `instructions` the library executes the instructions, and most hooks
# are not needed.
SHOOTDOWN_FEATURES ?= $(if $(filter adaptive,$(SHOOTDOWN_DESIGN)),adaptive)
# The hooks that the kernel defines as functions shootdown_hook_NAME, separated by spaces; cpu and send_ipi at least (cpu unless an
# instruction takes its place: below). They are called directly, and those that are not named are left out. Needs the feature
# `instructions`. Empty: pointers in the settings.
SHOOTDOWN_HOOKS ?=
# The one instruction that reads this CPU's number into {cpu}, in place of the hook `cpu`; with SHOOTDOWN_HOOKS. For example
# mrs {cpu}, tpidr_el1    lw {cpu}, 16(tp)    mov {cpu:e}, dword ptr gs:[rip + cpu_number]
# It changes no flags and no memory.
SHOOTDOWN_CPU_INSTRUCTION ?=
# How the compiler optimises: 3 for speed, s for size.
SHOOTDOWN_OPT ?= 3

# Non-empty: the library checks for misuse, and a report of a CPU that does not answer says whether it had interrupts off.
SHOOTDOWN_DEBUG ?=

# Non-empty: no global offset table and no jump tables, which Linux refuses on x86-64. The core library is built anew for
# that: `rustup component add rust-src`; and options of the compiler are used that are not stable.
SHOOTDOWN_NO_GOT ?=

# Non-empty: the library's assembly is written to this file too.
SHOOTDOWN_ASSEMBLY ?=

# The Rust target of each architecture. That of RISC-V has the ABI lp64; a kernel that is compiled for lp64d, the default of
# many compilers, sets riscv64gc-unknown-none-elf. A kernel that saves floating-point registers in its handlers may choose
# aarch64-unknown-none.
shootdown_target_x86_64 := x86_64-unknown-none
shootdown_target_aarch64 := aarch64-unknown-none-softfloat
shootdown_target_riscv64 := riscv64imac-unknown-none-elf
SHOOTDOWN_TARGET ?= $(shootdown_target_$(SHOOTDOWN_ARCH))
ifeq ($(SHOOTDOWN_TARGET),)
$(error SHOOTDOWN_ARCH is "$(SHOOTDOWN_ARCH)": x86_64, aarch64 or riscv64 was expected)
endif

# Not position-independent. A kernel that relocates itself gives its own.
shootdown_flags_x86_64 := -Crelocation-model=static
SHOOTDOWN_RUSTFLAGS ?= $(shootdown_flags_$(SHOOTDOWN_ARCH))
shootdown_cpu := $(if $(SHOOTDOWN_CPU_INSTRUCTION),--cfg shootdown_cpu_instruction)
shootdown_no_got := $(if $(SHOOTDOWN_NO_GOT),-Zplt=yes -Cjump-tables=no)
shootdown_core := $(if $(SHOOTDOWN_NO_GOT),-Zbuild-std=core -Zbuild-std-features=compiler-builtins-mem)

# What the kernel uses.
shootdown_folder := $(abspath $(dir $(lastword $(MAKEFILE_LIST)))/..)
# The crate that is built: this one. For tests, one with the same calls.
SHOOTDOWN_CRATE ?= $(shootdown_folder)
SHOOTDOWN_LIBRARY ?= shootdown_c
SHOOTDOWN_CFLAGS := -I$(shootdown_folder)/include -DSHOOTDOWN_CPU_WORDS=$(SHOOTDOWN_CPU_WORDS)
SHOOTDOWN_OBJECT := $(abspath $(SHOOTDOWN_OUT))/shootdown.o

shootdown_goal := $(.DEFAULT_GOAL)
shootdown_archive := $(abspath $(SHOOTDOWN_OUT))/$(SHOOTDOWN_TARGET)/release/lib$(SHOOTDOWN_LIBRARY).a
shootdown_profile := lto="fat" codegen-units=1 panic="abort" debug=false $(if $(SHOOTDOWN_DEBUG),debug-assertions=true)

# Cargo knows what has changed.
.PHONY: shootdown-archive shootdown-install
shootdown-archive:
	SHOOTDOWN_DESIGN='$(SHOOTDOWN_DESIGN)' SHOOTDOWN_CPU_WORDS='$(SHOOTDOWN_CPU_WORDS)' \
	SHOOTDOWN_HOOKS='$(SHOOTDOWN_HOOKS)' SHOOTDOWN_CPU_INSTRUCTION='$(SHOOTDOWN_CPU_INSTRUCTION)' \
	CARGO_PROFILE_RELEASE_OPT_LEVEL=$(SHOOTDOWN_OPT) RUSTFLAGS='$(strip $(SHOOTDOWN_RUSTFLAGS) $(shootdown_no_got) $(shootdown_cpu))' \
	$(if $(SHOOTDOWN_NO_GOT),RUSTC_BOOTSTRAP=1) \
	$(CARGO) rustc --quiet --manifest-path $(SHOOTDOWN_CRATE)/Cargo.toml --release --no-default-features \
	    --features '$(SHOOTDOWN_FEATURES)' --target $(SHOOTDOWN_TARGET) --target-dir $(abspath $(SHOOTDOWN_OUT)) \
	    --crate-type staticlib $(shootdown_core) $(foreach setting,$(shootdown_profile),--config 'profile.release.$(setting)') \
	    $(if $(SHOOTDOWN_ASSEMBLY),-- --emit asm=$(SHOOTDOWN_ASSEMBLY))

$(shootdown_archive): shootdown-archive ;

# One object, in which only the calls are global: nothing else can clash with a name of the kernel.
$(SHOOTDOWN_OBJECT): $(shootdown_archive) $(shootdown_folder)/link/shootdown.ld
	$(SHOOTDOWN_LD) -r --gc-sections -T $(shootdown_folder)/link/shootdown.ld -o $@.tmp $<
	$(SHOOTDOWN_OBJCOPY) --wildcard --keep-global-symbol='shootdown_*' $@.tmp
	mv $@.tmp $@

# For builds by pkg-config: make -f shootdown.mk shootdown-install SHOOTDOWN_ARCH=aarch64 PREFIX=...
# Then: pkg-config --cflags --libs shootdown-aarch64
PREFIX ?= /usr/local
shootdown_lib := $(PREFIX)/lib/shootdown/$(SHOOTDOWN_ARCH)
shootdown-install: $(SHOOTDOWN_OBJECT)
	mkdir -p $(DESTDIR)$(PREFIX)/include $(DESTDIR)$(shootdown_lib) $(DESTDIR)$(PREFIX)/lib/pkgconfig
	cp $(shootdown_folder)/include/shootdown.h $(DESTDIR)$(PREFIX)/include/
	cp $(SHOOTDOWN_OBJECT) $(DESTDIR)$(shootdown_lib)/
	sed -e 's|@prefix@|$(PREFIX)|' -e 's|@arch@|$(SHOOTDOWN_ARCH)|' -e 's|@target@|$(SHOOTDOWN_TARGET)|' \
	    -e 's|@words@|$(SHOOTDOWN_CPU_WORDS)|' $(shootdown_folder)/link/shootdown.pc.in \
	    > $(DESTDIR)$(PREFIX)/lib/pkgconfig/shootdown-$(SHOOTDOWN_ARCH).pc

# The first rule of the kernel's Makefile stays the one that is made by default.
.DEFAULT_GOAL := $(shootdown_goal)
