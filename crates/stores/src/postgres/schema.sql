-- What Elastin keeps in PostgreSQL, in a schema of its own (@schema@). Running this again changes nothing: earlier versions
-- made all of it without saying so in `layout`.

-- Actors: who may write (the highest epoch that claimed or wrote, and the node that claimed it), and the state.
-- Rows are never removed, because they keep the epoch.
CREATE TABLE IF NOT EXISTS @schema@.actors (
    actor   bytea  PRIMARY KEY,
    slot    bigint NOT NULL,
    counter bigint NOT NULL,
    claimer bigint,
    state   bytea
);

CREATE TABLE IF NOT EXISTS @schema@.shared (
    key     bytea  PRIMARY KEY,
    version bigint NOT NULL,
    value   bytea  NOT NULL
);

CREATE TABLE IF NOT EXISTS @schema@.locks (
    key   bytea       PRIMARY KEY,
    token bigint      NOT NULL,
    until timestamptz NOT NULL
);

-- Counts the writes of shared values and the grants of locks. Always drawn under the key's lock (see `guard`), so the
-- numbers of a key grow in the order of its writes.
CREATE SEQUENCE IF NOT EXISTS @schema@.versions;

-- Keeps other transactions from this key until the end of this one, also if there is no row yet.
CREATE OR REPLACE FUNCTION @schema@.guard(key bytea) RETURNS void LANGUAGE sql AS $$
    SELECT pg_advisory_xact_lock(('x' || left(md5(key), 16))::bit(64)::bigint)
$$;

CREATE OR REPLACE FUNCTION @schema@.holds(lock_key bytea, lock_token bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM @schema@.locks AS l
        WHERE l.key = lock_key AND l.token = lock_token AND l.until > clock_timestamp() FOR UPDATE;
    RETURN found;
END $$;

-- Outcomes: 0 done, 1 the value is not as expected, 2 the lock is not held.
-- Expectations: 0 anything, 1 no value, 2 a value of this version.
CREATE OR REPLACE FUNCTION @schema@.swap(
    swapped bytea, expectation int, expected bigint, new_value bytea, lock_key bytea, lock_token bigint,
    OUT outcome int, OUT version bigint
) LANGUAGE plpgsql AS $$
BEGIN
    IF lock_key IS NOT NULL AND NOT @schema@.holds(lock_key, lock_token) THEN
        outcome := 2;
        RETURN;
    END IF;
    PERFORM @schema@.guard(swapped);
    SELECT s.version INTO version FROM @schema@.shared AS s WHERE s.key = swapped;
    IF (expectation = 1 AND version IS NOT NULL) OR (expectation = 2 AND version IS DISTINCT FROM expected) THEN
        outcome := 1;
        RETURN;
    END IF;
    version := nextval('@schema@.versions');
    IF new_value IS NULL THEN
        DELETE FROM @schema@.shared AS s WHERE s.key = swapped;
    ELSE
        INSERT INTO @schema@.shared AS s VALUES (swapped, version, new_value)
            ON CONFLICT (key) DO UPDATE SET version = excluded.version, value = excluded.value;
    END IF;
    outcome := 0;
END $$;

-- The token of the lock, or for how many more microseconds somebody else holds it.
CREATE OR REPLACE FUNCTION @schema@.lock(
    locked bytea, ttl_us bigint, OUT token bigint, OUT remaining_us bigint
) LANGUAGE plpgsql AS $$
DECLARE
    held timestamptz;
BEGIN
    PERFORM @schema@.guard(locked);
    SELECT l.until INTO held FROM @schema@.locks AS l WHERE l.key = locked FOR UPDATE;
    IF held > clock_timestamp() THEN
        remaining_us := greatest(1, ceil(extract(epoch FROM held - clock_timestamp()) * 1000000));
        RETURN;
    END IF;
    token := nextval('@schema@.versions');
    INSERT INTO @schema@.locks AS l VALUES (locked, token, clock_timestamp() + ttl_us * interval '1 microsecond')
        ON CONFLICT (key) DO UPDATE SET token = excluded.token, until = excluded.until;
END $$;

CREATE OR REPLACE FUNCTION @schema@.renew(renewed bytea, its_token bigint, ttl_us bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT @schema@.holds(renewed, its_token) THEN
        RETURN false;
    END IF;
    UPDATE @schema@.locks AS l SET until = clock_timestamp() + ttl_us * interval '1 microsecond' WHERE l.key = renewed;
    RETURN true;
END $$;

CREATE OR REPLACE FUNCTION @schema@.unlock(unlocked bytea, its_token bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF NOT @schema@.holds(unlocked, its_token) THEN
        RETURN false;
    END IF;
    DELETE FROM @schema@.locks AS l WHERE l.key = unlocked;
    RETURN true;
END $$;
