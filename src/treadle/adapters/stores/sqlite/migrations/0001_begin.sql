-- One row a chat: its summary as JSON, the columns that queries need, and who may write.
CREATE TABLE chats (
  no          INTEGER PRIMARY KEY,
  id          TEXT    NOT NULL UNIQUE,
  head        INTEGER NOT NULL,
  status      TEXT    NOT NULL,
  runnable    INTEGER NOT NULL,
  wake_ms     INTEGER NOT NULL,
  archived    INTEGER NOT NULL,
  owner       TEXT    NOT NULL,
  updated_ms  INTEGER NOT NULL,
  epoch       INTEGER NOT NULL DEFAULT 0,
  worker      TEXT    NOT NULL DEFAULT '',
  lease_until INTEGER NOT NULL DEFAULT 0,
  boot        TEXT    NOT NULL DEFAULT '',
  summary     BLOB    NOT NULL
);

-- Changes only when a chat begins or stops to have something to do, not with every append.
CREATE INDEX chats_ready ON chats (no) WHERE archived = 0 AND (runnable = 1 OR wake_ms > 0);

-- The log. place = chats.no * 2^32 + seq: one integer key keeps a chat's records together and in order, and lets bodies
-- of up to a page lie inside it. (WITHOUT ROWID and a key of two columns moves every body over 1 KB to a page of its
-- own: half as large again, measured.)
CREATE TABLE events (
  place   INTEGER PRIMARY KEY,
  time_ms INTEGER NOT NULL,
  type    INTEGER NOT NULL,
  version INTEGER NOT NULL,
  epoch   INTEGER NOT NULL,
  packing INTEGER NOT NULL,
  crc     INTEGER NOT NULL,
  body    BLOB    NOT NULL
);

-- The names of event types, by the small numbers that stand in the log.
CREATE TABLE types (
  no   INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE
);

-- Caches: deleting them all is safe.
CREATE TABLE snapshots (
  chat_no INTEGER PRIMARY KEY,
  seq     INTEGER NOT NULL,
  body    BLOB    NOT NULL
);

-- Damaged records, as they were found, after a repair put session.record_lost in their place.
CREATE TABLE quarantine (
  no      INTEGER PRIMARY KEY,
  place   INTEGER NOT NULL,
  time_ms,
  type,
  version,
  epoch,
  packing,
  crc,
  body,
  reason  TEXT    NOT NULL
);
