//! Formats numbers for people: thousands with k, percentages, grouped counts.

pub use shootdown_sim::numeral::written;

/// Stands for an unknown number.
pub const UNKNOWN: &str = "–";

/// A number of threads with its unit: `1 thread`, `16 threads`.
pub fn threads(threads: usize) -> String {
    match threads {
        1 => "1 thread".to_string(),
        _ => format!("{threads} threads"),
    }
}

/// How often: `once`, `16 times`, `1,200 times`.
pub fn times(count: u64) -> String {
    match count {
        1 => "once".to_string(),
        _ => format!("{} times", self::count(count)),
    }
}

/// A rate with three or four significant digits: `953`, `9.53k`, `95.3k`, `1368k`.
pub fn rate(per_second: f64) -> String {
    let k = per_second / 1000.0;
    match k {
        _ if !k.is_finite() => UNKNOWN.to_string(),
        _ if k < 0.9995 => format!("{per_second:.0}"),
        _ if k < 9.995 => format!("{k:.2}k"),
        _ if k < 99.95 => format!("{k:.1}k"),
        _ => format!("{k:.0}k"),
    }
}

/// A signed percentage: `+1.9%`.
pub fn signed_percent(fraction: f64) -> String {
    if !fraction.is_finite() {
        return UNKNOWN.to_string();
    }
    format!("{:+.1}%", clean(fraction * 100.0, 0.05))
}

/// A percentage: `40.1%`.
pub fn percent(fraction: f64) -> String {
    if !fraction.is_finite() {
        return UNKNOWN.to_string();
    }
    format!("{:.1}%", clean(fraction * 100.0, 0.05))
}

/// A count per operation: two decimals, `0` only for exactly zero.
pub fn per_operation(count: f64) -> String {
    if !count.is_finite() {
        UNKNOWN.to_string()
    } else if count == 0.0 {
        "0".to_string()
    } else if count < 0.005 {
        "<0.01".to_string()
    } else {
        format!("{count:.2}")
    }
}

/// A time: `870 ns`, `12.4 µs`, `1.37 ms`.
pub fn time(ns: f64) -> String {
    match ns {
        _ if !ns.is_finite() => UNKNOWN.to_string(),
        _ if ns < 999.5 => format!("{ns:.0} ns"),
        _ if ns < 9_995.0 => format!("{:.2} µs", ns / 1e3),
        _ if ns < 99_950.0 => format!("{:.1} µs", ns / 1e3),
        _ if ns < 999_500.0 => format!("{:.0} µs", ns / 1e3),
        _ => format!("{:.2} ms", ns / 1e6),
    }
}

/// A time as [`time`], without the zeros after the point: for axes.
pub fn short_time(ns: f64) -> String {
    let text = time(ns);
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text,
    }
}

/// A ratio: `1.86x`.
pub fn ratio(value: f64) -> String {
    if value.is_finite() {
        format!("{value:.2}x")
    } else {
        UNKNOWN.to_string()
    }
}

/// A count with its unit: `1 thread`, `12,345 threads`.
pub fn counted<N: TryInto<u64>>(number: N, noun: &str) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    let ending = if number == 1 { "" } else { "s" };
    format!("{} {noun}{ending}", count(number))
}

/// Names in a row: `a`, `a and b`, `a, b and c`.
pub fn listed(names: &[&str]) -> String {
    match names {
        [rest @ .., last] if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        names => names.join(""),
    }
}

/// A count with groups of three digits: `12,345,678`.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A whole number on an axis, short where it is round: `512`, `8192`, `30k`, `1M`.
pub fn plain(value: f64) -> String {
    let value = value.round();
    match value {
        _ if value >= 1e6 && value % 1e5 == 0.0 => format!("{}M", value / 1e6),
        _ if value >= 1e4 && value % 1e3 == 0.0 => format!("{}k", value / 1e3),
        _ => format!("{value:.0}"),
    }
}

/// A large count in short: `412 M`, `31.0 k`.
pub fn short_count(value: f64) -> String {
    match value {
        _ if !value.is_finite() => UNKNOWN.to_string(),
        _ if value >= 1e9 => format!("{:.2} G", value / 1e9),
        _ if value >= 1e6 => format!("{:.1} M", value / 1e6),
        _ if value >= 1e3 => format!("{:.1} k", value / 1e3),
        _ => format!("{value:.0}"),
    }
}

/// The median, or 0 if there are no values.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// Rounds what would print as a signed zero to zero.
fn clean(value: f64, below: f64) -> f64 {
    if value.abs() < below { 0.0 } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_keep_their_significant_digits() {
        assert_eq!(rate(953.4), "953");
        assert_eq!(rate(999.6), "1.00k");
        assert_eq!(rate(9_530.0), "9.53k");
        assert_eq!(rate(95_300.0), "95.3k");
        assert_eq!(rate(1_368_000.0), "1368k");
        assert_eq!(rate(f64::NAN), UNKNOWN);
    }

    #[test]
    fn times_use_a_suitable_unit() {
        let times = [0.0, 870.0, 999.7, 12_400.0, 370_000.0, 1_370_000.0].map(time);
        assert_eq!(times, ["0 ns", "870 ns", "1.00 µs", "12.4 µs", "370 µs", "1.37 ms"]);
        let short = [100.0, 1000.0, 1500.0, 20_000.0, 12_400.0, f64::NAN].map(short_time);
        assert_eq!(short, ["100 ns", "1 µs", "1.5 µs", "20 µs", "12.4 µs", UNKNOWN]);
    }

    #[test]
    fn no_percentage_prints_a_negative_zero() {
        assert_eq!(signed_percent(-0.0001), "+0.0%");
        assert_eq!(signed_percent(-0.052), "-5.2%");
    }

    #[test]
    fn counts_are_grouped_and_small_rates_are_not_0() {
        assert_eq!(count(12_345_678), "12,345,678");
        assert_eq!(count(999), "999");
        assert_eq!(per_operation(0.0), "0");
        assert_eq!(per_operation(0.001), "<0.01");
    }

    #[test]
    fn medians_of_even_and_odd_counts() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median([]), 0.0);
    }
}
