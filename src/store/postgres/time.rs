//! Times on the wire: microseconds since 2000, as PostgreSQL sends them in
//! binary. There is no jiff for this sqlx in a library yet.

use jiff::Timestamp;
use sqlx::{
    Decode, Encode, Postgres, Type,
    encode::IsNull,
    error::BoxDynError,
    postgres::{
        PgArgumentBuffer, PgHasArrayType, PgTypeInfo, PgValueFormat, PgValueRef, types::Oid,
    },
};

use crate::clock::from_micros;

/// A `timestamptz`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Time(pub(crate) Timestamp);

/// 2000-01-01T00:00:00Z, in microseconds since 1970.
const EPOCH: i64 = 946_684_800_000_000;

impl Type<Postgres> for Time {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(TIMESTAMPTZ)
    }
}

impl PgHasArrayType for Time {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(TIMESTAMPTZ_ARRAY)
    }
}

impl Encode<'_, Postgres> for Time {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        Encode::<Postgres>::encode(self.0.as_microsecond() - EPOCH, buffer)
    }
}

impl Decode<'_, Postgres> for Time {
    /// `infinity` and what no calendar can hold become the nearest end of it.
    fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
        match value.format() {
            PgValueFormat::Binary => {
                let micros: i64 = Decode::<Postgres>::decode(value)?;
                Ok(Self(from_micros(micros.saturating_add(EPOCH))))
            }
            PgValueFormat::Text => Err("a time in text, where binary was asked for".into()),
        }
    }
}

// src/include/catalog/pg_type.dat of PostgreSQL.
const TIMESTAMPTZ: Oid = Oid(1184);
const TIMESTAMPTZ_ARRAY: Oid = Oid(1185);
