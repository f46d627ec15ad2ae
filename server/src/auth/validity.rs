//! Until when a certificate holds. The library that checks it does not say, and a connection may outlive it.

use std::time::Duration;

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// `notAfter` of a certificate (DER), since 1970; None where it cannot be read.
pub(super) fn not_after(certificate: &[u8]) -> Option<Duration> {
    let (certificate, _) = take(certificate, SEQUENCE)?;
    let (signed, _) = take(certificate, SEQUENCE)?;
    // Version, serial number, algorithm, issuer, validity.
    let signed = take(signed, VERSION).map_or(signed, |(_, rest)| rest);
    let (_, signed) = take(signed, INTEGER)?;
    let (_, signed) = take(signed, SEQUENCE)?;
    let (_, signed) = take(signed, SEQUENCE)?;
    let (validity, _) = take(signed, SEQUENCE)?;
    let (_, _, not_after) = element(validity)?;
    let (tag, time, _) = element(not_after)?;
    seconds(tag, std::str::from_utf8(time).ok()?).map(Duration::from_secs)
}

/// What is in the first element, if it is of this kind, and what comes after it.
fn take(der: &[u8], wanted: u8) -> Option<(&[u8], &[u8])> {
    let (tag, content, rest) = element(der)?;
    (tag == wanted).then_some((content, rest))
}

/// The first element: its tag, its content, and what comes after it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, der) = der.split_first()?;
    let (&first, der) = der.split_first()?;
    let (length, der) = match first {
        0..=0x7f => (usize::from(first), der),
        0x81..=0x83 => {
            let (bytes, der) = der.split_at_checked(usize::from(first & 0x7f))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), der)
        }
        _ => return None,
    };
    let (content, rest) = der.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// Seconds since 1970 of `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`, by the tag; 0 for what lies before.
fn seconds(tag: u8, text: &str) -> Option<u64> {
    let digits = text.strip_suffix('Z').filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()))?;
    let (year, rest) = match (tag, digits.len()) {
        (UTC_TIME, 12) => (digits[..2].parse::<i64>().ok()?, &digits[2..]),
        (GENERALIZED_TIME, 14) => (digits[..4].parse::<i64>().ok()?, &digits[4..]),
        _ => return None,
    };
    let year = match tag {
        UTC_TIME if year >= 50 => year + 1900,
        UTC_TIME => year + 2000,
        _ => year,
    };
    let part = |place: usize| rest[2 * place..2 * place + 2].parse::<i64>().ok();
    let (month, day, hour, minute, second) = (part(0)?, part(1)?, part(2)?, part(3)?, part(4)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Days since 1970 in the Gregorian calendar, counted in years that begin in March.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468;
    Some(u64::try_from(days * 86_400 + hour * 3_600 + minute * 60 + second).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_certificates_write_them() {
        for (tag, text, expected) in [
            (UTC_TIME, "700101000000Z", Some(0)),
            (UTC_TIME, "491231235959Z", Some(2_524_607_999)),
            (UTC_TIME, "500101000000Z", Some(0)),
            (UTC_TIME, "240229120000Z", Some(1_709_208_000)),
            (GENERALIZED_TIME, "20500101000000Z", Some(2_524_608_000)),
            (GENERALIZED_TIME, "99991231235959Z", Some(253_402_300_799)),
            (UTC_TIME, "20500101000000Z", None),
            (UTC_TIME, "2402291200Z", None),
            (UTC_TIME, "240229120000", None),
            (UTC_TIME, "241329120000Z", None),
            (INTEGER, "240229120000Z", None),
        ] {
            assert_eq!(seconds(tag, text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_certificate_has_no_end() {
        for der in [&[][..], &[0x30], &[0x30, 0x84, 0, 0, 0, 0], &[0x30, 0x03, 0x30, 0x01], &[0xff; 40]] {
            assert_eq!(not_after(der), None, "{der:?}");
        }
    }
}
