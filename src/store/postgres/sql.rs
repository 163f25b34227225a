//! The statements, with the names of the tables as this store has them.

use sqlx::{AssertSqlSafe, SqlSafeStr as _, SqlStr};

/// Reads each statement from its file and puts the schema before the tables.
macro_rules! statements {
    ($($name:ident),+ $(,)?) => {
        #[derive(Debug)]
        pub(crate) struct Statements {
            $(pub(crate) $name: SqlStr,)+
        }

        impl Statements {
            pub(super) fn of(schema: Option<&Schema>) -> Self {
                Self {
                    $($name: qualified(include_str!(concat!("sql/", stringify!($name), ".sql")), schema),)+
                }
            }
        }
    };
}

statements! {
    amend,
    archive_amend,
    archive_insert,
    archive_lookup,
    archive_lookup_all,
    claim,
    complete,
    discard,
    expired,
    expired_months,
    fate,
    get,
    inspect_archive_columns,
    inspect_archive_history,
    inspect_archive_minutes,
    inspect_archive_open_at,
    inspect_archive_since,
    inspect_backlog,
    inspect_bytes,
    inspect_counts,
    inspect_erase,
    inspect_minutes,
    inspect_open_at,
    inspect_record,
    inspect_settings,
    inspect_ttls,
    now,
    publish_ttl,
    release,
    remove,
    renew,
    replace,
    sweep,
    work_complete,
    work_lock,
}

/// The schema that holds the tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Schema(String);

impl Schema {
    /// `None` for what PostgreSQL takes for no name.
    pub(super) fn new(name: &str) -> Option<Self> {
        let fits = (1..=LONGEST_NAME).contains(&name.len()) && !name.contains('\0');
        fits.then(|| Self(name.to_owned()))
    }

    pub(super) fn name(&self) -> &str {
        &self.0
    }

    pub(super) fn quoted(&self) -> String {
        format!("\"{}\"", self.0.replace('"', "\"\""))
    }
}

/// Longer names are cut off by the server.
const LONGEST_NAME: usize = 63;

/// The tables of a store and its archive.
pub(super) const TABLES: [&str; 3] = [
    "idempotency_keys",
    "idempotency_key_archive",
    "idempotency_ttls",
];

fn qualified(sql: &'static str, schema: Option<&Schema>) -> SqlStr {
    let Some(schema) = schema else {
        return sql.into_sql_str();
    };
    let schema = schema.quoted();
    let qualify = |sql: String, table: &str| sql.replace(table, &format!("{schema}.{table}"));
    let sql = TABLES
        .iter()
        .fold(sql.to_owned(), |sql, table| qualify(sql, table));
    AssertSqlSafe(sql).into_sql_str()
}
