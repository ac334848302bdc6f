//! A function with one of each syntax.

use super::*;
use crate::rewrite::rewrite;

const SOURCE: &str = "
    impl Engine {
        fn go(&self) -> bool {
            if self.a() {
                self.word.store(1, Ordering::Release);
                F::full_barrier();
            }
            #[cfg(debug_assertions)]
            F::full_barrier();
            for cpu in self.cpus {
                self.set.for_each(|other| self.c(cpu, other));
            }
            while self.d() {}
            let found = loop {
                break 1;
            };
            self.left(true) < 2 || self.b()
        }
        fn full_barrier() {}
    }";

#[test]
fn enumeration_covers_every_site_of_this_build() {
    let syntax = syn::parse_file(SOURCE).expect("Rust");
    let mut mutants = Vec::new();
    let without_result = functions_without_result(std::slice::from_ref(&syntax));
    let sites = enumerate("a.rs", SOURCE, &syntax, &without_result, &mut mutants);
    let mut found: Vec<_> = mutants
        .iter()
        .map(|mutant| format!("{} {}", mutant.kind, mutant.text))
        .collect();
    found.sort();
    assert_eq!(
        found,
        [
            "always self.a()",
            "always self.d()",
            "always self.left(true) < 2 || self.b()",
            "drop F::full_barrier()",
            "drop self.set.for_each(|other| self.c(cpu, other))",
            "drop self.word.store(1, Ordering::Release)",
            "edge self.left(true) < 2",
            "flip self.left(true) < 2 || self.b()",
            "never self.a()",
            "never self.b()",
            "never self.d()",
            "never self.left(true) < 2",
            "once for cpu in self.cpus",
            "once self.set.for_each(|other| self.c(cpu, other))",
            "once while self.d()",
            "relax self.word.store(1, Ordering::Release)",
            "swap self.word.store(1, Ordering::Release);",
        ]
        .map(|name| name.trim_end_matches(';').to_string())
    );
    let text = rewrite(SOURCE, sites);
    assert!(syn::parse_file(&text).is_ok(), "{text}");
}
