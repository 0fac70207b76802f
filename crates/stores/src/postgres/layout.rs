//! What is in the schema: whether it is what this version needs, and how it becomes that.
//!
//! The schema says itself of which layout it is, so a connection to one that is up to date only reads. Servers of two versions
//! may use one schema while a cluster is upgraded: each layout also says which servers can still work with it.

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error, Row};

/// Changing the schema excludes everybody else who does, by this number that nobody else uses.
const SCHEMA_LOCK: i64 = 0x656c_6173_7469_6e00;

/// What makes a layout out of the one before it.
#[derive(Debug)]
struct Step {
    text: &'static str,
    /// The earliest layout whose servers can work with the one that this makes.
    usable_from: i32,
}

/// Layout 1 is what the first step makes, layout 2 what the second makes of it, and so on. A later version of Elastin adds a
/// step; a step that is here is never changed, because there are schemas that have been through it.
const STEPS: &[Step] = &[Step {
    text: include_str!("schema.sql"),
    usable_from: 1,
}];

/// Where a schema says of which layout it is.
const MARKER: &str = "
    CREATE SCHEMA IF NOT EXISTS @schema@;
    CREATE TABLE IF NOT EXISTS @schema@.layout (
        one_row     boolean PRIMARY KEY DEFAULT true CHECK (one_row),
        version     int     NOT NULL,
        usable_from int     NOT NULL
    );";

/// Of which layout a schema is.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Layout {
    version: i32,
    usable_from: i32,
}

/// Why a schema can't be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum LayoutError {
    #[error(
        "a later version of Elastin has made the schema `{schema}` what it is: it has layout {found} and can be used by those \\
         who know layout {usable_from}, and this one knows only {known}"
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

/// Whether the schema is as this version needs it. Only reads.
pub(super) async fn is_up_to_date(client: &Client, schema: &str) -> Result<bool, LayoutError> {
    let found = match look(client, schema).await {
        Err(error) if is_absent(&error) => None,
        found => found?,
    };
    Ok(missing(STEPS, found, schema)?.is_empty())
}

/// Makes the schema what this version needs, while nobody else does. Either all of it is done or nothing.
pub(super) async fn bring_up_to_date(client: &Client, schema: &str) -> Result<(), LayoutError> {
    let begin = format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock({SCHEMA_LOCK}); {}",
        named(MARKER, schema)
    );
    client.batch_execute(&begin).await?;
    // Somebody else may have done it meanwhile.
    let found = look(client, schema).await?;
    let missing = missing(STEPS, found, schema)?;
    for step in missing {
        client.batch_execute(&named(step.text, schema)).await?;
    }
    if let Some(last) = missing.last() {
        let mark = named(
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

async fn look(client: &Client, schema: &str) -> Result<Option<Layout>, Error> {
    let look = named("SELECT version, usable_from FROM @schema@.layout", schema);
    let layout = |row: Row| {
        Ok(Layout {
            version: row.try_get(0)?,
            usable_from: row.try_get(1)?,
        })
    };
    client.query_opt(&look, &[]).await?.map(layout).transpose()
}

/// The steps that a schema of this layout has not been through.
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

/// Whether there is no such schema yet, or one that does not say of which layout it is.
fn is_absent(error: &Error) -> bool {
    let code = error.code();
    code == Some(&SqlState::UNDEFINED_TABLE) || code == Some(&SqlState::INVALID_SCHEMA_NAME)
}

fn named(text: &str, schema: &str) -> String {
    text.replace("@schema@", schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_goes_through_the_steps_that_it_lacks() {
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
        // Of a later version that minds those who know only this one.
        assert!(missing_at(5, 3).unwrap().is_empty());
        let refused = missing_at(5, 4).unwrap_err();
        assert!(
            refused.contains("layout 5") && refused.contains("knows only 3"),
            "{refused}"
        );
    }
}
