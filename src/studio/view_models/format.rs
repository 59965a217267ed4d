//! Numbers as text.

use crate::tensor::{plural, scientific};

/// A count with a letter for the power of a thousand: `3.4 M`; larger ones in scientific notation.
#[must_use]
pub fn count(value: f64) -> String {
    if value >= 999.5e12 {
        return scientific(value, 1);
    }
    const UNITS: [&str; 5] = ["", " k", " M", " G", " T"];
    let mut scaled = value;
    let mut unit = 0;
    while scaled >= 999.5 && unit + 1 < UNITS.len() {
        scaled /= 1000.0;
        unit += 1;
    }
    if unit == 0 && scaled.fract() == 0.0 { format!("{scaled}") } else { format!("{scaled:.1}{}", UNITS[unit]) }
}

/// A count with its noun: `1 step`, `12 345 steps`.
#[must_use]
pub fn counted(n: u64, noun: &str) -> String {
    format!("{} {}", exact(n), plural(n, noun))
}

/// A small count with its noun, without spaces between thousands: `3 layers`.
#[must_use]
pub fn plain_count(n: usize, noun: &str) -> String {
    format!("{n} {}", plural(n as u64, noun))
}

/// A time in microseconds, in a suitable unit.
#[must_use]
pub fn micros(us: f64) -> String {
    if us >= 1e6 {
        format!("{:.2} s", us / 1e6)
    } else if us >= 10_000.0 {
        format!("{:.1} ms", us / 1e3)
    } else if us >= 1000.0 {
        format!("{:.2} ms", us / 1e3)
    } else if (0.0..0.05).contains(&us) {
        "< 0.1 µs".into()
    } else {
        format!("{us:.1} µs")
    }
}

/// A text of the compiler with its times in the format of the window: `measured 4.5 µs against 28.1 ms`.
#[must_use]
pub fn with_micro_signs(text: &str) -> String {
    let parts = text.split_inclusive(' ').collect::<Vec<_>>();
    let is_unit = |part: &str| part.trim_end_matches(' ').trim_end_matches([',', '.', ';']) == "us";
    let mut out = String::with_capacity(text.len());
    let value = |part: &str| part.strip_suffix(' ').and_then(|number| number.parse::<f64>().ok());
    let mut at = 0;
    while let Some(part) = parts.get(at) {
        let unit = parts.get(at + 1).filter(|next| is_unit(next));
        if let (Some(us), Some(unit)) = (value(part), unit) {
            out.push_str(&micros(us));
            out.push_str(unit.trim_start_matches("us"));
            at += 1;
        } else if is_unit(part) && at > 0 {
            out.push_str(&part.replacen("us", "µs", 1));
        } else {
            out.push_str(part);
        }
        at += 1;
    }
    out
}

/// A duration in seconds as text: `1 h 02 min`.
#[must_use]
pub fn duration(seconds: f64) -> String {
    let s = seconds.round().max(0.0) as u64;
    if s >= 3600 {
        format!("{} h {:02} min", s / 3600, s % 3600 / 60)
    } else if s >= 60 {
        format!("{} min {:02} s", s / 60, s % 60)
    } else {
        format!("{s} s")
    }
}

/// A small or large number with four digits.
#[must_use]
pub fn number(value: f64) -> String {
    let a = value.abs();
    if value == 0.0 {
        "0".into()
    } else if !(1e-3..1e5).contains(&a) {
        format!("{value:.2e}")
    } else if a >= 100.0 {
        format!("{value:.1}")
    } else if a >= 1.0 {
        format!("{value:.3}")
    } else {
        format!("{value:.4}")
    }
}

/// A share as a percentage.
#[must_use]
pub fn percent(share: f64) -> String {
    let p = share * 100.0;
    if p > 0.0 && p < 0.95 { "<1%".into() } else { format!("{p:.0}%") }
}

/// A whole number with thin spaces between thousands.
#[must_use]
pub fn exact(value: u64) -> String {
    crate::tensor::grouped(value, '\u{2009}')
}

/// A text, or its first `most` characters and an ellipsis.
#[must_use]
pub fn elided(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", text[..end].trim_end()),
        None => text.to_owned(),
    }
}

/// A token as it is shown: characters that cannot be seen are escaped, and a blank is a dot.
#[must_use]
pub fn visible(symbol: &str) -> String {
    let mut out = String::with_capacity(symbol.len());
    for c in symbol.chars() {
        match c {
            ' ' => out.push('·'),
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted_for_people() {
        assert_eq!([0.0, 12.0, 1290.0, 3_400_000.0].map(count), ["0", "12", "1.3 k", "3.4 M"]);
        assert_eq!([0.3, 999.94, 18_200.0, 2_500_000.0].map(micros), ["0.3 µs", "999.9 µs", "18.2 ms", "2.50 s"]);
        assert_eq!([0.0, 0.04, 0.05].map(micros), ["< 0.1 µs", "< 0.1 µs", "0.1 µs"]);
        assert_eq!([2e14, 7.718e27].map(count), ["200.0 T", "7.7e27"]);
        assert_eq!(number(7.718_234_8e27), "7.72e27");
        let text = "recorded in 2883 us, 146.0 KiB: the 3 us were asked for";
        assert_eq!(with_micro_signs(text), "recorded in 2.88 ms, 146.0 KiB: the 3.0 µs were asked for");
        let text = "estimated 4.5 us against 0.0 us, status as it was";
        assert_eq!(with_micro_signs(text), "estimated 4.5 µs against < 0.1 µs, status as it was");
        assert_eq!(with_micro_signs("recorded in 28131 us, 3.9 MiB: why"), "recorded in 28.1 ms, 3.9 MiB: why");
        assert_eq!(with_micro_signs("in 2194 us"), "in 2.19 ms");
        assert_eq!([5.0, 65.0, 3725.0].map(duration), ["5 s", "1 min 05 s", "1 h 02 min"]);
        assert_eq!([0.0, 0.000_14, 0.25, 2.5, 250.0].map(number), ["0", "1.40e-4", "0.2500", "2.500", "250.0"]);
        assert_eq!([0.0, 0.001, 0.414, 1.0].map(percent), ["0%", "<1%", "41%", "100%"]);
        assert_eq!(exact(1_234_567), "1\u{2009}234\u{2009}567");
        assert_eq!(["short", "exactly 5", "a long name"].map(|t| elided(t, 7)), ["short", "exactly…", "a long…"]);
    }
}
