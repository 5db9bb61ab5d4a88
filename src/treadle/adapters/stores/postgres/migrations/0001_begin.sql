-- One row: which schema this is, and what is added to transaction ids to number changes (see treadle_change).
CREATE TABLE treadle_meta (
  version     integer NOT NULL,
  change_base bigint  NOT NULL DEFAULT 0
);
INSERT INTO treadle_meta (version) VALUES (1);

-- One row a chat: its summary as JSON, the columns that queries need, and who may write. Every append replaces the row:
-- the space for it is kept on its page.
CREATE TABLE chats (
  no          bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  updated_ms  bigint  NOT NULL,
  wake_ms     bigint  NOT NULL,
  changed     bigint  NOT NULL,
  lease_until bigint  NOT NULL DEFAULT 0,
  head        integer NOT NULL,
  epoch       integer NOT NULL DEFAULT 0,
  runnable    boolean NOT NULL,
  archived    boolean NOT NULL,
  token       uuid,
  id          text    COLLATE "C" NOT NULL UNIQUE,
  owner       text    COLLATE "C" NOT NULL,
  status      text    COLLATE "C" NOT NULL,
  worker      text    COLLATE "C" NOT NULL DEFAULT '',
  title       text    COLLATE "C" NOT NULL,
  labels      text[]  COLLATE "C" NOT NULL,
  summary     bytea   NOT NULL
) WITH (fillfactor = 70);

CREATE INDEX chats_listed ON chats (owner, updated_ms, id);
CREATE INDEX chats_changed ON chats (changed);
-- What a claim looks at: who has something to do, who wakes when, who is held until when.
CREATE INDEX chats_ready ON chats (owner, updated_ms) WHERE runnable AND NOT archived;
CREATE INDEX chats_waking ON chats (wake_ms) WHERE NOT runnable AND wake_ms > 0 AND NOT archived;
CREATE INDEX chats_held ON chats (owner, lease_until) WHERE worker <> '';

-- The log. Bodies come compressed.
CREATE TABLE events (
  chat_no bigint   NOT NULL,
  time_ms bigint   NOT NULL,
  seq     integer  NOT NULL,
  epoch   integer  NOT NULL,
  crc     integer  NOT NULL,
  version smallint NOT NULL,
  packing smallint NOT NULL,
  type    text     COLLATE "C" NOT NULL,
  body    bytea    NOT NULL,
  PRIMARY KEY (chat_no, seq)
);
ALTER TABLE events ALTER COLUMN body SET STORAGE EXTERNAL;

-- Caches: deleting them all is safe.
CREATE TABLE snapshots (
  chat_no bigint  PRIMARY KEY,
  seq     integer NOT NULL,
  body    bytea   NOT NULL
);
ALTER TABLE snapshots ALTER COLUMN body SET STORAGE EXTERNAL;

-- Large payloads by their SHA-256, in parts. The parts are there before the blob is.
CREATE TABLE blobs (
  digest bytea   PRIMARY KEY,
  upload bigint  NOT NULL,
  size   bigint  NOT NULL
);
CREATE SEQUENCE blob_uploads;
CREATE TABLE blob_parts (
  upload bigint      NOT NULL,
  part   integer     NOT NULL,
  made   timestamptz NOT NULL DEFAULT now(),
  data   bytea       NOT NULL,
  PRIMARY KEY (upload, part)
);

-- What was answered to requests that may be repeated; kept for a day.
CREATE TABLE answers (
  owner   text     COLLATE "C" NOT NULL,
  key     text     COLLATE "C" NOT NULL,
  request text     COLLATE "C" NOT NULL,
  status  smallint NOT NULL,
  body    bytea    NOT NULL,
  time_ms bigint   NOT NULL,
  PRIMARY KEY (owner, key)
);
CREATE INDEX answers_by_time ON answers (time_ms);

-- Live text for readers on other machines, until the message is in the log. Nothing in it is worth a place in the WAL.
CREATE UNLOGGED TABLE deltas (
  chat_no bigint  NOT NULL,
  epoch   integer NOT NULL,
  turn    integer NOT NULL,
  number  integer NOT NULL,
  payload bytea   NOT NULL,
  PRIMARY KEY (chat_no, epoch, turn, number)
);

-- Damaged records, as they were found, after a repair put session.record_lost in their place.
CREATE TABLE quarantine (LIKE events, found timestamptz NOT NULL DEFAULT now(), reason text NOT NULL);
