//! Numbers as arguments; the error of a wrong one says what is allowed.

/// A whole number of at least 1: steps, replays, an interval in steps.
///
/// # Errors
/// If it is anything else.
pub fn positive(text: &str) -> Result<u64, String> {
    whole(text, 1, u64::MAX)
}

/// A seed.
///
/// # Errors
/// If it is not an unsigned 64-bit integer.
pub fn seed(text: &str) -> Result<u64, String> {
    whole(text, 0, u64::MAX)
}

/// The number of threads that share a step.
///
/// # Errors
/// If it is not a whole number from 1 to 64.
pub fn threads(text: &str) -> Result<u16, String> {
    whole(text, 1, 64).map(|n| n as u16)
}

/// The number of samples to hold out: a fraction below 1, or a count.
///
/// # Errors
/// If it is neither.
pub fn held_out(text: &str) -> Result<f64, String> {
    let found = text.parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0 && (*n < 1.0 || n.fract() == 0.0));
    let expected = "expected a fraction below 1, such as 0.2, or a count of samples; 0 holds nothing out";
    found.ok_or_else(|| expected.to_owned())
}

/// The temperature: logits are divided by it before a token is drawn.
///
/// # Errors
/// If it is not a number from 0 to 1000.
pub fn temperature(text: &str) -> Result<f64, String> {
    let found = text.parse::<f64>().ok().filter(|n| (0.0..=1000.0).contains(n));
    found.ok_or_else(|| "expected a number from 0 (the most likely token) to 1000".to_owned())
}

/// A probability above 0 and at most 1.
///
/// # Errors
/// If it is not a number above 0 and at most 1.
pub fn share(text: &str) -> Result<f64, String> {
    let found = text.parse::<f64>().ok().filter(|n| *n > 0.0 && *n <= 1.0);
    found.ok_or_else(|| "expected a probability above 0 and at most 1, such as 0.9".to_owned())
}

/// The limit of a folder in MiB.
///
/// # Errors
/// If it is not a whole number below 2^32.
pub fn whole_mebibytes(text: &str) -> Result<u32, String> {
    whole(text, 0, u64::from(u32::MAX)).map(|n| n as u32)
}

/// An amount of memory in MiB.
///
/// # Errors
/// If it is not a number above 0 and below a million.
pub fn mebibytes(text: &str) -> Result<f64, String> {
    let found = text.parse::<f64>().ok().filter(|n| *n > 0.0 && *n < 1e6);
    found.ok_or_else(|| "expected a number of MiB above 0 and below 1000000, such as 64 or 0.5".to_owned())
}

fn whole(text: &str, least: u64, most: u64) -> Result<u64, String> {
    let found = text.parse().ok().filter(|n| (least..=most).contains(n));
    let is_large = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) && text.bytes().any(|b| b != b'0');
    found.ok_or_else(|| match most {
        // The upper bound is reported if it is exceeded.
        u64::MAX if !is_large => format!("expected a whole number, at least {least}"),
        _ => format!("expected a whole number from {least} to {most}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_is_allowed() {
        assert_eq!((positive("7"), seed("0"), threads("64"), held_out("0.2")), (Ok(7), Ok(0), Ok(64), Ok(0.2)));
        for text in ["", "0", "-1", "1.5", "abc", "1e3", " 1", "0x10"] {
            assert_eq!(positive(text).unwrap_err(), "expected a whole number, at least 1", "{text}");
        }
        assert!(seed("18446744073709551616").unwrap_err().ends_with("from 0 to 18446744073709551615"));
        assert!(["0", "65", "x", "99999999999999999999"].iter().all(|t| threads(t).unwrap_err().ends_with("1 to 64")));
        assert_eq!(
            (temperature("0"), temperature("0.8"), share("1"), share("1e-3")),
            (Ok(0.0), Ok(0.8), Ok(1.0), Ok(1e-3))
        );
        assert!(["x", "-1", "NaN", "inf", "1001"].iter().all(|t| temperature(t).unwrap_err().contains("from 0")));
        assert!(["x", "0", "1.5", "NaN", "-0.5"].iter().all(|t| share(t).unwrap_err().contains("above 0")));
        let refused = |text: &&str| held_out(text).unwrap_err().contains("a fraction below 1");
        assert!(["x", "-1", "1.5", "NaN", "inf"].iter().all(refused));
    }
}
