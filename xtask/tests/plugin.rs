//! What the plugin makes of single instructions, in C as it is compiled for QEMU.

use std::path::Path;
use std::process::Command;

/// Ends with the number of the first instruction, from 1 on, that is taken for something else.
const CASES: &str = r#"
#include "operations.h"

#define AT 0xffffffff81000000u
#define COUNT 0x20f88u

static const struct { uint8_t bytes[12]; size_t size; uint64_t count; enum change change; int32_t by; } cases[] = {
    {{0x65, 0xff, 0x05}, 7, COUNT, ADDS, 1},                             /* incl */
    {{0x65, 0xff, 0x0d}, 7, COUNT, ADDS, -1},                            /* decl */
    {{0x65, 0x83, 0x2d, [7] = 1}, 8, COUNT, ADDS, -1},                   /* subl $1 */
    {{0x65, 0x83, 0x05, [7] = 0x80}, 8, COUNT, ADDS, -128},              /* addl $-128 */
    {{0x65, 0x81, 0x05, [8] = 2}, 11, COUNT, ADDS, 0x200},               /* addl $0x200 */
    {{0x65, 0x81, 0x05, [9] = 0xff, 0xff}, 11, COUNT, ADDS, -0x10000},   /* addl $-0x10000 */
    {{0x65, 0x01, 0x35}, 7, COUNT, TAKES_BACK, 0},                       /* add %esi */
    {{0x65, 0xf7, 0x05, [9] = 0xff}, 11, COUNT, NONE, 0},                /* testl */
    {{0x65, 0x83, 0x3d, [7] = 1}, 8, COUNT, NONE, 0},                    /* cmpl */
    {{0x65, 0x8b, 0x05}, 7, COUNT, NONE, 0},                             /* mov */
    {{0xff, 0x05}, 6, COUNT, NONE, 0},                                   /* incl, not of the CPU */
    {{0x65, 0xff, 0x05}, 7, COUNT + 4, NONE, 0},                         /* incl of another variable */
};

int main(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t bytes[12];
        memcpy(bytes, cases[i].bytes, sizeof bytes);
        uint32_t distance = (uint32_t)(COUNT - (AT + cases[i].size));
        for (int b = 0; b < 4; b++)
            bytes[(bytes[0] == 0x65 ? 3 : 2) + b] = (uint8_t)(distance >> 8 * b);
        int32_t by = 0;
        if (change_x86_64(bytes, cases[i].size, AT, cases[i].count, &by) != cases[i].change || by != cases[i].by)
            return (int)i + 1;
    }
    return isas[0].kind((const uint8_t[]){0xf4}, 1) == HALTS ? 0 : 99;
}
"#;

#[test]
fn changes_of_the_count_of_preemption_are_recognised() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, program) = (folder.join("cases.c"), folder.join("cases"));
    std::fs::write(&source, CASES).unwrap();
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("plugin");
    let mut compiler = Command::new("cc");
    compiler.arg("-I").arg(header).arg("-o").arg(&program).arg(&source);
    assert!(compiler.status().unwrap().success());
    let status = Command::new(&program).status().unwrap();
    assert_eq!(status.code(), Some(0), "the instruction of this number, or 99: HLT");
}
