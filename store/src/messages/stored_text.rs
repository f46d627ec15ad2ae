//! A type for long text columns that does not copy them.

use sqlx::{
    Decode, Postgres, Type, Value as _, ValueRef,
    error::BoxDynError,
    postgres::{PgTypeInfo, PgValue, PgValueRef},
};

use crate::error::StoreError;

/// A text column as the database has sent it: not copied, and not yet checked to be UTF-8. Doing
/// either to a text of 64 MiB would block a thread that serves calls for too long.
pub(crate) struct StoredText(PgValue);

impl StoredText {
    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.as_ref().as_bytes().map_or(0, <[u8]>::len)
    }

    /// The text. Fails if it is not UTF-8.
    pub(crate) fn text(&self) -> Result<&str, StoreError> {
        self.0
            .as_ref()
            .as_str()
            .map_err(|_| StoreError::Unreadable("content"))
    }
}

impl Type<Postgres> for StoredText {
    fn type_info() -> PgTypeInfo {
        <String as Type<Postgres>>::type_info()
    }

    fn compatible(ty: &PgTypeInfo) -> bool {
        <String as Type<Postgres>>::compatible(ty)
    }
}

impl Decode<'_, Postgres> for StoredText {
    fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
        Ok(Self(ValueRef::to_owned(&value)))
    }
}
