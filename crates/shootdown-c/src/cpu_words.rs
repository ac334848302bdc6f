//! The number of CPUs that the library is built for.

/// Number of 64-bit words in a set of CPUs: the library supports up to 64 times as many CPUs. Set at build time by the
/// variable SHOOTDOWN_CPU_WORDS; 1 by default.
pub const SHOOTDOWN_CPU_WORDS: usize = match option_env!("SHOOTDOWN_CPU_WORDS") {
    Some(text) => number(text.as_bytes()),
    None => 1,
};

/// Most words: 8192 CPUs.
const MOST: usize = 128;

const fn number(text: &[u8]) -> usize {
    let (mut value, mut digit) = (0, 0);
    while digit < text.len() {
        assert!(
            text[digit].is_ascii_digit(),
            "SHOOTDOWN_CPU_WORDS is a number from 1 to 128"
        );
        value = value * 10 + (text[digit] - b'0') as usize;
        digit += 1;
    }
    assert!(
        1 <= value && value <= MOST,
        "SHOOTDOWN_CPU_WORDS is a number from 1 to 128"
    );
    value
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn word_count_is_parsed_or_refused() {
        assert_eq!((number(b"1"), number(b"8"), number(b"128")), (1, 8, 128));
        for wrong in ["", "0", "129", "1k", "-1"] {
            assert!(
                std::panic::catch_unwind(|| number(wrong.as_bytes())).is_err(),
                "{wrong}"
            );
        }
    }
}
