//! Long texts as they came from the database.

use sqlx::{
    Decode, Postgres, Type, Value as _, ValueRef,
    error::BoxDynError,
    postgres::{PgTypeInfo, PgValue, PgValueRef},
};

use crate::error::StoreError;

/// A text of a row, neither copied nor checked: of 64 MiB both take longer than a thread that serves calls may be kept.
pub(crate) struct StoredText(PgValue);

impl StoredText {
    /// Its bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.as_ref().as_bytes().map_or(0, <[u8]>::len)
    }

    /// The text.
    pub(crate) fn text(&self) -> Result<&str, StoreError> {
        self.0.as_ref().as_str().map_err(|_| StoreError::Unreadable("content"))
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
