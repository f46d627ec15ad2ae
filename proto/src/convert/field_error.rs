//! Why a field of a request is refused.

use std::borrow::Cow;

/// A field of a request that cannot be accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// Its value cannot be accepted.
    #[error("{field}: {description}")]
    Invalid {
        /// The field's path, for example `messages[2].parts[0]`.
        field: String,
        /// The rule that the value breaks.
        description: Cow<'static, str>,
    },
    /// Its value is larger than its limit.
    #[error("{field}: at most {most} {unit}")]
    Limit {
        /// The field's path.
        field: String,
        /// The limit.
        most: usize,
        /// The plural noun of what is limited.
        unit: &'static str,
    },
}

impl FieldError {
    /// The error for a value that cannot be accepted.
    pub fn invalid(field: impl Into<String>, description: impl Into<Cow<'static, str>>) -> Self {
        Self::Invalid {
            field: field.into(),
            description: description.into(),
        }
    }

    /// The error for a value that exceeds its limit.
    pub fn limit(field: impl Into<String>, most: usize, unit: &'static str) -> Self {
        Self::Limit {
            field: field.into(),
            most,
            unit,
        }
    }
}
