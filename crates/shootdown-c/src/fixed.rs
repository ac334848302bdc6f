//! A design that is fixed when the library is built: the compiler then removes the code of all others.

use shootdown::Design;

/// The design that the build variable SHOOTDOWN_DESIGN names, with that name; `None` if it is empty or not set.
pub const FIXED: Option<(&str, Design)> = match option_env!("SHOOTDOWN_DESIGN") {
    Some(name) if !name.is_empty() => Some((name, named(name))),
    _ => None,
};

const fn named(name: &str) -> Design {
    let mut index = 0;
    while index < Design::PRESETS.len() {
        let (known, design, _) = Design::PRESETS[index];
        if equal(known.as_bytes(), name.as_bytes()) {
            return design;
        }
        index += 1;
    }
    panic!("SHOOTDOWN_DESIGN names no design, or one that needs another feature of the library (adaptive, published)")
}

/// `==` of slices is not `const`.
pub(crate) const fn equal(a: &[u8], b: &[u8]) -> bool {
    let mut index = 0;
    while index < a.len() && index < b.len() && a[index] == b[index] {
        index += 1;
    }
    index == a.len() && index == b.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn design_name_must_match_in_full() {
        assert_eq!(Some(named("ipi")), Design::preset("ipi"));
        assert_eq!(Some(named("ipi-early")), Design::preset("ipi-early"));
        for wrong in ["ip", "ipi-", "no such"] {
            assert!(std::panic::catch_unwind(|| named(wrong)).is_err(), "{wrong}");
        }
    }
}
