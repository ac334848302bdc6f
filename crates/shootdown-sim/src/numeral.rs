//! Numbers in their usual written form.

/// The shortest text that reads back as the same number: `0.5`, `1200`, and `1e300` instead of its 301 digits.
pub fn written(value: f64) -> String {
    let size = value.abs();
    if value.is_finite() && value != 0.0 && !(1e-5..1e15).contains(&size) {
        format!("{value:e}")
    } else {
        value.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_short_and_read_back() {
        for (value, text) in [
            (0.0, "0"),
            (0.5, "0.5"),
            (-1200.0, "-1200"),
            (1e9, "1000000000"),
            (1e300, "1e300"),
            (-2.5e-300, "-2.5e-300"),
            (1.5e15, "1.5e15"),
        ] {
            assert_eq!(written(value), text);
            assert_eq!(text.parse(), Ok(value));
        }
        assert_eq!(written(f64::INFINITY), "inf");
    }
}
