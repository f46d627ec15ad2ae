//! The recorded counts: a file that people read in reviews and only `--write` writes.

use std::fmt;

use anyhow::{Context, Result};
use toml::{Table, Value};

const HEADING: &str = "\
# Numbers of instructions, counted by callgrind, of the code that every append and every context runs
# (dev/instructions/src/main.rs). `cargo xtask instructions` fails if one grows by more than 5 %.
# `cargo xtask instructions --write` writes this file.
";

/// The tools that the counts depend on, besides the code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Toolchain {
    /// The output of `rustc --version`.
    pub(super) rustc: String,
    /// The host target of the compiler.
    pub(super) host: String,
}

impl fmt::Display for Toolchain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.rustc, self.host)
    }
}

/// One count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Measurement {
    /// The measurement's name.
    pub(super) name: String,
    /// A description of the measured function.
    pub(super) description: String,
    /// The number of instructions.
    pub(super) instructions: u64,
}

/// The counts and the toolchain. Formatted as text, it is the content of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Baseline {
    /// The toolchain that was used.
    pub(super) toolchain: Toolchain,
    /// The counts, in the order in which the program measures them.
    pub(super) measurements: Vec<Measurement>,
}

impl Baseline {
    /// Parses the file.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let table: Table = text.parse()?;
        let measurements = table
            .get("measurement")
            .and_then(Value::as_array)
            .context("it has no measurement")?;
        Ok(Self {
            toolchain: Toolchain {
                rustc: string(&table, "rustc")?,
                host: string(&table, "host")?,
            },
            measurements: measurements
                .iter()
                .map(measurement)
                .collect::<Result<_>>()?,
        })
    }
}

fn measurement(value: &Value) -> Result<Measurement> {
    let table = value.as_table().context("a measurement is not a table")?;
    let name = string(table, "name")?;
    let count = table.get("instructions").and_then(Value::as_integer);
    let instructions = count
        .and_then(|count| u64::try_from(count).ok())
        .filter(|count| *count > 0);
    let instructions = instructions.with_context(|| format!("{name} has no instructions"))?;
    Ok(Measurement {
        description: string(table, "description")?,
        name,
        instructions,
    })
}

/// The string under a key.
fn string(table: &Table, key: &str) -> Result<String> {
    table
        .get(key)
        .and_then(Value::as_str)
        .map(str::to_owned)
        .with_context(|| format!("{key} is missing"))
}

impl fmt::Display for Baseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Toolchain { rustc, host } = &self.toolchain;
        writeln!(f, "{HEADING}rustc = \"{rustc}\"\nhost = \"{host}\"")?;
        for Measurement {
            name,
            description,
            instructions,
        } in &self.measurements
        {
            writeln!(
                f,
                "\n[[measurement]]\nname = \"{name}\"\ndescription = \"{description}\""
            )?;
            writeln!(f, "instructions = {}", grouped(*instructions, '_'))?;
        }
        Ok(())
    }
}

/// Formats a number with a separator between its thousands.
pub(super) fn grouped(number: u64, separator: char) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(separator);
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_baseline_is_parsed_again() {
        let baseline = Baseline {
            toolchain: Toolchain {
                rustc: "rustc 1.95.0 (1 2026-04-14)".into(),
                host: "x86_64-linux".into(),
            },
            measurements: vec![
                Measurement {
                    name: "context_50".into(),
                    description: "a tail, cut".into(),
                    instructions: 999,
                },
                Measurement {
                    name: "count".into(),
                    description: "32 kB".into(),
                    instructions: 12_345_678,
                },
            ],
        };
        let text = baseline.to_string();
        assert!(
            text.contains("instructions = 12_345_678\n") && text.contains("instructions = 999\n"),
            "{text}"
        );
        assert_eq!(
            Baseline::parse(&text).expect("the text is parsed again"),
            baseline
        );
    }

    #[test]
    fn an_incomplete_baseline_is_refused() {
        let whole = "rustc = 'r'\nhost = 'h'\n[[measurement]]\nname = 'n'\ndescription = 's'\n\
                     instructions = 1\n";
        assert!(Baseline::parse(whole).is_ok());
        for line in whole.lines() {
            assert!(
                Baseline::parse(&whole.replace(line, "")).is_err(),
                "without {line}"
            );
        }
        assert!(Baseline::parse(&whole.replace("= 1", "= 0")).is_err());
    }
}
