//! Versions of PostgreSQL.

use std::fmt;

/// A version of PostgreSQL, such as 18.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// 18 in 18.1.
    pub major: u32,
    /// 1 in 18.1; 0 if only the major version is known, as in `18` or `19beta2`.
    pub minor: u32,
}

impl Version {
    /// Reads the number in `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`, `18.1` or
    /// `19beta2`.
    pub(crate) fn parse(text: &str) -> Option<Version> {
        let number = text
            .split_whitespace()
            .find(|word| word.starts_with(|first: char| first.is_ascii_digit()))?;
        let digits = |text: &str| {
            text.split(|c: char| !c.is_ascii_digit())
                .next()
                .and_then(|digits| digits.parse().ok())
        };
        let minor = number
            .split_once('.')
            .and_then(|(_, minor)| digits(minor))
            .unwrap_or(0);
        Some(Version {
            major: digits(number)?,
            minor,
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_parsed_from_the_output_of_postgres() {
        let parse = |text| Version::parse(text).map(|version| (version.major, version.minor));
        assert_eq!(
            parse("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)"),
            Some((15, 18))
        );
        assert_eq!(parse("postgres (PostgreSQL) 19beta2"), Some((19, 0)));
        assert_eq!(parse("postgres (EnterpriseDB)"), None);
    }
}
