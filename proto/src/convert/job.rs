//! Converts kinds of jobs to and from protobuf.

use anneal_core::job::JobKind;

use super::FieldError;
use crate::v1 as pb;

/// Parses the field `kind`. None: UNSPECIFIED, which means any kind.
pub fn parse_kind(number: i32) -> Result<Option<JobKind>, FieldError> {
    match pb::JobKind::try_from(number) {
        Ok(pb::JobKind::Unspecified) => Ok(None),
        Ok(pb::JobKind::CountTokens) => Ok(Some(JobKind::CountTokens)),
        Ok(pb::JobKind::Checkpoint) => Ok(Some(JobKind::Checkpoint)),
        Ok(pb::JobKind::SummarizeMessages) => Ok(Some(JobKind::SummarizeMessages)),
        Err(_) => Err(FieldError::invalid(
            "kind",
            format!("{number} is not a kind of job"),
        )),
    }
}

/// Parses the field `kind`; UNSPECIFIED is refused.
pub fn parse_required_kind(number: i32) -> Result<JobKind, FieldError> {
    parse_kind(number)?.ok_or_else(|| FieldError::invalid("kind", "must be given"))
}

impl From<JobKind> for pb::JobKind {
    fn from(kind: JobKind) -> Self {
        match kind {
            JobKind::CountTokens => Self::CountTokens,
            JobKind::Checkpoint => Self::Checkpoint,
            JobKind::SummarizeMessages => Self::SummarizeMessages,
        }
    }
}
