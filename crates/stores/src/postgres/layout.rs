//! The layout of the schema: whether it is current, and how to upgrade it.
//!
//! The schema records its own layout, so connecting to a current one only reads. During a rolling upgrade servers of
//! two versions use one schema: each layout also records the earliest version that can still use it.

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error, Row};

/// The advisory lock that serializes changes of the schema.
const SCHEMA_LOCK: i64 = 0x656c_6173_7469_6e00;

/// Upgrades the previous layout to the next.
#[derive(Debug)]
struct Step {
    text: &'static str,
    /// The earliest layout whose servers can use the new one.
    usable_from: i32,
}

/// The first step creates layout 1, the second upgrades it to layout 2, and so on. A later version of Elastin appends a
/// step. A released step never changes, because there are schemas it has been applied to.
const STEPS: &[Step] = &[Step {
    text: include_str!("schema.sql"),
    usable_from: 1,
}];

/// The table that records the layout of a schema.
const MARKER: &str = "
    CREATE SCHEMA IF NOT EXISTS @schema@;
    CREATE TABLE IF NOT EXISTS @schema@.layout (
        one_row     boolean PRIMARY KEY DEFAULT true CHECK (one_row),
        version     int     NOT NULL,
        usable_from int     NOT NULL
    );";

/// The recorded layout of a schema.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Layout {
    version: i32,
    usable_from: i32,
}

/// The reason why a schema can't be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum LayoutError {
    #[error(
        "the schema `{schema}` was upgraded by a later version of Elastin: its layout {found} can be used by versions \
         that know layout {usable_from}, and this one knows only {known}; upgrade this server"
    )]
    TooNew {
        schema: String,
        found: i32,
        usable_from: i32,
        known: usize,
    },
    #[error(transparent)]
    Server(#[from] Error),
}

/// Whether the schema has the layout that this version needs. Only reads.
pub(super) async fn is_up_to_date(client: &Client, schema: &str) -> Result<bool, LayoutError> {
    let found = match read_layout(client, schema).await {
        Err(error) if is_absent(&error) => None,
        found => found?,
    };
    Ok(missing(STEPS, found, schema)?.is_empty())
}

/// Upgrades the schema to the layout that this version needs, atomically and one client at a time.
pub(super) async fn upgrade(client: &Client, schema: &str) -> Result<(), LayoutError> {
    let begin = format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock({SCHEMA_LOCK}); {}",
        with_schema(MARKER, schema)
    );
    client.batch_execute(&begin).await?;
    // Another client may have upgraded it meanwhile.
    let found = read_layout(client, schema).await?;
    let missing = missing(STEPS, found, schema)?;
    for step in missing {
        client.batch_execute(&with_schema(step.text, schema)).await?;
    }
    if let Some(last) = missing.last() {
        let mark = with_schema(
            "INSERT INTO @schema@.layout (version, usable_from) VALUES ($1, $2)
             ON CONFLICT (one_row) DO UPDATE SET version = excluded.version, usable_from = excluded.usable_from",
            schema,
        );
        client
            .execute(&mark, &[&(STEPS.len() as i32), &last.usable_from])
            .await?;
    }
    Ok(client.batch_execute("COMMIT").await?)
}

async fn read_layout(client: &Client, schema: &str) -> Result<Option<Layout>, Error> {
    let select = with_schema("SELECT version, usable_from FROM @schema@.layout", schema);
    let layout = |row: Row| {
        Ok(Layout {
            version: row.try_get(0)?,
            usable_from: row.try_get(1)?,
        })
    };
    client.query_opt(&select, &[]).await?.map(layout).transpose()
}

/// The steps that a schema of this layout lacks.
fn missing<'a>(steps: &'a [Step], found: Option<Layout>, schema: &str) -> Result<&'a [Step], LayoutError> {
    let Some(Layout { version, usable_from }) = found else {
        return Ok(steps);
    };
    let known = steps.len();
    if usable_from > known as i32 {
        return Err(LayoutError::TooNew {
            schema: schema.to_owned(),
            found: version,
            usable_from,
            known,
        });
    }
    let done = usize::try_from(version).unwrap_or(0).min(known);
    Ok(&steps[done..])
}

/// Whether the schema does not exist yet, or does not record its layout.
fn is_absent(error: &Error) -> bool {
    let code = error.code();
    code == Some(&SqlState::UNDEFINED_TABLE) || code == Some(&SqlState::INVALID_SCHEMA_NAME)
}

fn with_schema(text: &str, schema: &str) -> String {
    text.replace("@schema@", schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_is_upgraded_by_the_steps_it_lacks() {
        let step = |text, usable_from| Step { text, usable_from };
        let steps = [step("first", 1), step("second", 1), step("third", 3)];
        let missing_at = |version, usable_from| {
            let found = Some(Layout { version, usable_from });
            let missing = missing(&steps, found, "s").map_err(|error| error.to_string())?;
            Ok::<_, String>(missing.iter().map(|step| step.text).collect::<Vec<_>>())
        };
        assert_eq!(missing(&steps, None, "s").unwrap().len(), 3);
        assert_eq!(missing_at(1, 1).unwrap(), ["second", "third"]);
        assert_eq!(missing_at(2, 1).unwrap(), ["third"]);
        assert!(missing_at(3, 3).unwrap().is_empty());
        // From a later version that stays compatible with this one.
        assert!(missing_at(5, 3).unwrap().is_empty());
        let refused = missing_at(5, 4).unwrap_err();
        assert!(
            refused.contains("layout 5") && refused.contains("knows only 3"),
            "{refused}"
        );
    }
}
