//! The result of one check.

use std::fmt;

use serde::Serialize;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// Nothing is to be done.
    Ok,
    /// It works, but slower or less safely than it could.
    Warning,
    /// Something does not work, or data is in danger.
    Problem,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) level: Level,
    /// The name of the check, for programs.
    pub(super) check: &'static str,
    /// The result in words, for people.
    pub(super) found: String,
    /// The advice to the operator; empty if nothing is to be done.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) remedy: String,
}

impl Finding {
    pub(super) fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self {
            level: Level::Ok,
            check,
            found: found.into(),
            remedy: String::new(),
        }
    }

    pub(super) fn warning(
        check: &'static str,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            level: Level::Warning,
            check,
            found: found.into(),
            remedy: remedy.into(),
        }
    }

    pub(super) fn problem(
        check: &'static str,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            level: Level::Problem,
            check,
            found: found.into(),
            remedy: remedy.into(),
        }
    }
}

/// The line `level  what was found  what to do`.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Problem => "problem",
        };
        write!(f, "{level:<7}  {}", self.found)?;
        if self.remedy.is_empty() {
            Ok(())
        } else {
            write!(f, "  {}", self.remedy)
        }
    }
}
