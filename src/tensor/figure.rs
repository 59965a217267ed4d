//! Numbers as text, the same in all outputs.

/// From this magnitude on, a number is written in scientific notation.
const LARGE: f64 = 1e6;

/// A number with this many decimals; a large one in scientific notation: `0.1250`, `7.72e27`.
#[must_use]
pub fn figure(value: f64, decimals: usize) -> String {
    if value.is_finite() && value.abs() >= LARGE { scientific(value, 2) } else { format!("{value:.decimals$}") }
}

/// A number in scientific notation with at most this many decimals and without trailing zeros: `7.72e27`, `1e30`.
#[must_use]
pub fn scientific(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$e}");
    let (number, power) = text.split_once('e').unwrap_or((&text, "0"));
    let number = if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    format!("{number}e{power}")
}

/// A noun that follows a number: `step` after 1, `steps` after every other number.
#[must_use]
pub fn plural(count: u64, noun: &str) -> String {
    match noun {
        noun if count == 1 => noun.to_owned(),
        noun if ["ch", "s", "x"].iter().any(|end| noun.ends_with(end)) => format!("{noun}es"),
        noun => format!("{noun}s"),
    }
}

/// A number with its noun: `1 sample`, `12,345 samples`.
#[must_use]
pub fn counted(value: u64, noun: &str) -> String {
    format!("{} {}", grouped(value, ','), plural(value, noun))
}

/// A whole number with its digits in groups of three: `12,345` with a comma between them.
#[must_use]
pub fn grouped(value: u64, separator: char) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() * 2);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(separator);
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_item_is_singular() {
        assert_eq!(
            [(0, "step"), (1, "step"), (2, "step"), (1, "class"), (3, "class"), (3, "batch")]
                .map(|(n, s)| plural(n, s)),
            ["steps", "step", "steps", "class", "classes", "batches"]
        );
    }

    #[test]
    fn a_large_number_is_written_in_scientific_form() {
        assert_eq!([0.125, 1234.5, 999_999.0].map(|v| figure(v, 4)), ["0.1250", "1234.5000", "999999.0000"]);
        assert_eq!([7.718_234_8e27, -1e6, 1e30].map(|v| figure(v, 4)), ["7.72e27", "-1e6", "1e30"]);
        assert_eq!([f64::INFINITY, f64::NAN].map(|v| figure(v, 4)), ["inf", "NaN"]);
        assert_eq!([1.5e-7, 1e-12, 1.05e-4].map(|v| scientific(v, 2)), ["1.5e-7", "1e-12", "1.05e-4"]);
    }
}
