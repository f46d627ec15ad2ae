//! Why a setting of a policy or of a model is refused.

/// A setting with an invalid value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key} must be {must_be}")]
pub struct PolicyError {
    /// The setting's name.
    pub key: &'static str,
    /// The valid values.
    pub must_be: String,
}

impl PolicyError {
    pub(crate) fn new(key: &'static str, must_be: impl Into<String>) -> Self {
        Self {
            key,
            must_be: must_be.into(),
        }
    }
}
