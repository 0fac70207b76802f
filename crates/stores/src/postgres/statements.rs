//! The prepared statements of a connection, and the translation of their results.

use bytes::Bytes;
use elastin_protocol::store::{
    Expected, LockToken, SCAN_BYTES_MAX, SCAN_LIMIT_MAX, Space, StateError, StateReply, StateRequest, StoreFailure,
    ValueKey, Version, Versioned,
};
use elastin_types::{ActivationEpoch, ActorId, NodeId, SlotEpoch};
use std::time::Duration;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, Row, Statement};

use crate::keys::{actor_key, space_prefix, value_key};

pub(super) struct Statements {
    claim: Statement,
    load: Statement,
    write: Statement,
    get: Statement,
    swap: Statement,
    scan: Statement,
    lock: Statement,
    renew: Statement,
    unlock: Statement,
}

/// The result of a statement.
pub(super) enum StatementResult {
    /// The result of the request.
    Completed(Result<StateReply, StateError>),
    /// A later activation owns the actor; its epoch needs another query.
    Fenced,
}

/// The reason why the statements could not be prepared.
#[derive(Debug, thiserror::Error)]
pub(super) enum PrepareError {
    /// The schema has a column of another type than Elastin creates.
    #[error("the schema `{schema}` was not created by Elastin: `{column}` is of type {found}, not {expected}")]
    Foreign {
        schema: String,
        column: String,
        found: Type,
        expected: Type,
    },
    #[error(transparent)]
    Server(#[from] Error),
}

impl Statements {
    pub(super) async fn prepare(client: &Client, schema: &str) -> Result<Self, PrepareError> {
        const BYTES: Type = Type::BYTEA;
        const LONG: Type = Type::INT8;
        const INT: Type = Type::INT4;
        let prepare = async |text: &str, parameters: &[Type], columns: &[Type]| {
            let text = text.replace("@schema@", schema);
            let statement = client.prepare_typed(&text, parameters).await?;
            for (column, expected) in statement.columns().iter().zip(columns) {
                if column.type_() != expected {
                    return Err(PrepareError::Foreign {
                        schema: schema.to_owned(),
                        column: column.name().to_owned(),
                        found: column.type_().clone(),
                        expected: expected.clone(),
                    });
                }
            }
            Ok(statement)
        };
        Ok(Self {
            claim: prepare(
                "INSERT INTO @schema@.actors AS a (actor, slot, counter, claimer) VALUES ($1, $2, $3, $4)
                 ON CONFLICT (actor) DO UPDATE
                    SET slot = excluded.slot, counter = excluded.counter, claimer = excluded.claimer
                    WHERE (a.slot, a.counter) < (excluded.slot, excluded.counter)
                       OR ((a.slot, a.counter) = (excluded.slot, excluded.counter) AND a.claimer = excluded.claimer)
                 RETURNING a.state",
                &[BYTES, LONG, LONG, LONG],
                &[BYTES],
            )
            .await?,
            load: prepare(
                "SELECT slot, counter, state FROM @schema@.actors WHERE actor = $1",
                &[BYTES],
                &[LONG, LONG, BYTES],
            )
            .await?,
            write: prepare(
                "INSERT INTO @schema@.actors AS a (actor, slot, counter, state) VALUES ($1, $2, $3, $4)
                 ON CONFLICT (actor) DO UPDATE
                    SET slot = excluded.slot, counter = excluded.counter, state = excluded.state,
                        claimer = CASE WHEN (a.slot, a.counter) = (excluded.slot, excluded.counter)
                                       THEN a.claimer END
                    WHERE (a.slot, a.counter) <= (excluded.slot, excluded.counter)
                 RETURNING 1",
                &[BYTES, LONG, LONG, BYTES],
                &[INT],
            )
            .await?,
            get: prepare(
                "SELECT version, value FROM @schema@.shared WHERE key = $1",
                &[BYTES],
                &[LONG, BYTES],
            )
            .await?,
            swap: prepare(
                "SELECT outcome, version FROM @schema@.swap($1, $2, $3, $4, $5, $6)",
                &[BYTES, INT, LONG, BYTES, BYTES, LONG],
                &[INT, LONG],
            )
            .await?,
            scan: prepare(
                "SELECT key, version, value, rows_found FROM (
                    SELECT key, version, value, count(*) OVER () AS rows_found,
                        sum(length(key) + length(value)) OVER (ORDER BY key)
                            - length(key) - length(value) AS bytes_before
                    FROM (SELECT * FROM @schema@.shared WHERE key >= $1 AND key < $2 ORDER BY key LIMIT $3) AS found
                 ) AS counted
                 WHERE bytes_before < $4 ORDER BY key",
                &[BYTES, BYTES, LONG, LONG],
                &[BYTES, LONG, BYTES, LONG],
            )
            .await?,
            lock: prepare(
                "SELECT token, remaining_us FROM @schema@.lock($1, $2)",
                &[BYTES, LONG],
                &[LONG, LONG],
            )
            .await?,
            renew: prepare("SELECT @schema@.renew($1, $2, $3)", &[BYTES, LONG, LONG], &[Type::BOOL]).await?,
            unlock: prepare("SELECT @schema@.unlock($1, $2)", &[BYTES, LONG], &[Type::BOOL]).await?,
        })
    }

    /// Sends one validated request when first polled. The result is valid only if the transaction commits.
    pub(super) async fn run(&self, client: &Client, request: &StateRequest) -> Result<StatementResult, Error> {
        let ended = match request {
            StateRequest::Claim { actor, epoch, claimer } => return self.claim(client, actor, *epoch, *claimer).await,
            StateRequest::Save { actor, epoch, state } => {
                return self.write(client, actor, *epoch, Some(state), StateReply::Saved).await;
            }
            StateRequest::Delete { actor, epoch } => {
                return self.write(client, actor, *epoch, None, StateReply::Deleted).await;
            }
            StateRequest::Load { actor } => Ok(self.load(client, actor).await?),
            StateRequest::Get { key } => Ok(self.get(client, key).await?),
            StateRequest::Swap {
                key,
                expected,
                value,
                under,
            } => {
                self.swap(client, key, *expected, value.as_ref(), under.as_ref())
                    .await?
            }
            StateRequest::Scan {
                space,
                from,
                until,
                limit,
            } => Ok(self.scan(client, *space, from, until.as_ref(), *limit).await?),
            StateRequest::Lock { key, ttl } => self.lock(client, key, *ttl).await?,
            StateRequest::Renew { lock, ttl } => {
                let (key, token) = lock_of(lock);
                let row = client
                    .query_one(&self.renew, &[&key, &token, &microseconds(*ttl)])
                    .await?;
                let token = lock.token;
                held(&row, StateReply::Locked { token })?
            }
            StateRequest::Unlock { lock } => {
                let (key, token) = lock_of(lock);
                let row = client.query_one(&self.unlock, &[&key, &token]).await?;
                held(&row, StateReply::Unlocked)?
            }
        };
        Ok(StatementResult::Completed(ended))
    }

    /// Reads the stored epoch of an actor.
    pub(super) async fn epoch(&self, client: &Client, actor: &ActorId) -> Result<ActivationEpoch, Error> {
        let row = client.query_one(&self.load, &[&actor_key(actor)]).await?;
        epoch_in(&row)
    }

    async fn claim(
        &self,
        client: &Client,
        actor: &ActorId,
        epoch: ActivationEpoch,
        claimer: NodeId,
    ) -> Result<StatementResult, Error> {
        let (slot, counter) = columns(epoch);
        let claimer = claimer.0 as i64;
        let row = client
            .query_opt(&self.claim, &[&actor_key(actor), &slot, &counter, &claimer])
            .await?;
        Ok(match row {
            Some(row) => StatementResult::Completed(Ok(StateReply::Claimed { state: bytes(&row, 0)? })),
            None => StatementResult::Fenced,
        })
    }

    async fn write(
        &self,
        client: &Client,
        actor: &ActorId,
        epoch: ActivationEpoch,
        state: Option<&Bytes>,
        done: StateReply,
    ) -> Result<StatementResult, Error> {
        let (slot, counter) = columns(epoch);
        let state = state.map(|state| &state[..]);
        let row = client
            .query_opt(&self.write, &[&actor_key(actor), &slot, &counter, &state])
            .await?;
        Ok(match row {
            Some(_) => StatementResult::Completed(Ok(done)),
            None => StatementResult::Fenced,
        })
    }

    async fn load(&self, client: &Client, actor: &ActorId) -> Result<StateReply, Error> {
        let row = client.query_opt(&self.load, &[&actor_key(actor)]).await?;
        let (epoch, state) = match &row {
            Some(row) => (Some(epoch_in(row)?), bytes(row, 2)?),
            None => (None, None),
        };
        Ok(StateReply::Loaded { epoch, state })
    }

    async fn get(&self, client: &Client, key: &ValueKey) -> Result<StateReply, Error> {
        let row = client.query_opt(&self.get, &[&value_key(key)]).await?;
        Ok(StateReply::Value(row.map(|row| versioned(&row, 0)).transpose()?))
    }

    async fn swap(
        &self,
        client: &Client,
        key: &ValueKey,
        expected: Expected,
        value: Option<&Bytes>,
        under: Option<&LockToken>,
    ) -> Result<Result<StateReply, StateError>, Error> {
        let (expectation, version) = match expected {
            Expected::Anything => (0_i32, None),
            Expected::Absent => (1, None),
            Expected::Version(Version(version)) => (2, Some(version as i64)),
        };
        let (lock_key, lock_token) = under.map(lock_of).unzip();
        let value = value.map(|value| &value[..]);
        let row = client
            .query_one(
                &self.swap,
                &[&value_key(key), &expectation, &version, &value, &lock_key, &lock_token],
            )
            .await?;
        let current: Option<i64> = row.try_get(1)?;
        let current = current.map(|version| Version(version as u64));
        Ok(match (row.try_get::<_, i32>(0)?, current) {
            (0, Some(version)) => Ok(StateReply::Swapped { version }),
            (1, current) => Err(StateError::Conflict { current }),
            (2, _) => Err(StateError::LockLost),
            (outcome, _) => {
                let reason = format!("the function `swap` returned {outcome}");
                Err(StoreFailure::Corrupt { reason }.into())
            }
        })
    }

    async fn scan(
        &self,
        client: &Client,
        space: Space,
        from: &Bytes,
        until: Option<&Bytes>,
        limit: u32,
    ) -> Result<StateReply, Error> {
        let prefix = space_prefix(space);
        let first = [&prefix[..], from].concat();
        let end = until.map_or_else(|| prefix_end(&prefix), |until| [&prefix[..], until].concat());
        let limit = limit.min(SCAN_LIMIT_MAX) as usize;
        // One row more than requested, to know whether there are more.
        let rows_max = limit as i64 + 1;
        // The database also counts the bytes of the prefixes; they are few.
        let found = client
            .query(&self.scan, &[&first, &end, &rows_max, &(SCAN_BYTES_MAX as i64)])
            .await?;
        let rows_found: i64 = found.first().map_or(Ok(0), |row| row.try_get(3))?;
        let row = |row: &Row| {
            let key: &[u8] = row.try_get(0)?;
            // Always present: the key is between two keys with the prefix.
            let name = key.strip_prefix(&prefix[..]).unwrap_or(key);
            Ok((Bytes::copy_from_slice(name), versioned(row, 1)?))
        };
        let rows: Vec<(Bytes, Versioned)> = found.iter().take(limit).map(row).collect::<Result<_, Error>>()?;
        let more = rows_found as usize > rows.len();
        Ok(StateReply::Rows { rows, more })
    }

    async fn lock(
        &self,
        client: &Client,
        key: &ValueKey,
        ttl: Duration,
    ) -> Result<Result<StateReply, StateError>, Error> {
        let row = client
            .query_one(&self.lock, &[&value_key(key), &microseconds(ttl)])
            .await?;
        Ok(match row.try_get::<_, Option<i64>>(0)? {
            Some(token) => Ok(StateReply::Locked {
                token: Version(token as u64),
            }),
            None => Err(StateError::LockHeld {
                remaining: Duration::from_micros(row.try_get::<_, i64>(1)?.unsigned_abs()),
            }),
        })
    }
}

fn held(row: &Row, reply: StateReply) -> Result<Result<StateReply, StateError>, Error> {
    let held: bool = row.try_get(0)?;
    Ok(if held { Ok(reply) } else { Err(StateError::LockLost) })
}

fn lock_of(lock: &LockToken) -> (Vec<u8>, i64) {
    (value_key(&lock.key), lock.token.0 as i64)
}

/// The first key after all keys with a prefix.
fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    unreachable!("a space's prefix starts with a small number")
}

/// Microseconds for an interval, limited to the range of PostgreSQL.
fn microseconds(ttl: Duration) -> i64 {
    const YEARS_100_US: i64 = 100 * 365 * 24 * 3600 * 1_000_000;
    i64::try_from(ttl.as_micros()).unwrap_or(YEARS_100_US).min(YEARS_100_US)
}

fn columns(epoch: ActivationEpoch) -> (i64, i64) {
    (i64::from(epoch.slot.0), i64::from(epoch.counter))
}

fn epoch_in(row: &Row) -> Result<ActivationEpoch, Error> {
    let (slot, counter): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    Ok(ActivationEpoch {
        slot: SlotEpoch(slot as u32),
        counter: counter as u32,
    })
}

fn bytes(row: &Row, column: usize) -> Result<Option<Bytes>, Error> {
    Ok(row.try_get::<_, Option<Vec<u8>>>(column)?.map(Bytes::from))
}

fn versioned(row: &Row, column: usize) -> Result<Versioned, Error> {
    Ok(Versioned {
        version: Version(row.try_get::<_, i64>(column)? as u64),
        value: bytes(row, column + 1)?.unwrap_or_default(),
    })
}
