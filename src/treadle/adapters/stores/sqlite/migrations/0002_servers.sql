-- What lists ask for: the title without its case, the labels as a JSON array; and the number of the last change, by which
-- all chats can be followed at once.
ALTER TABLE chats ADD COLUMN title TEXT NOT NULL DEFAULT '';
ALTER TABLE chats ADD COLUMN labels TEXT NOT NULL DEFAULT '';
ALTER TABLE chats ADD COLUMN changed INTEGER NOT NULL DEFAULT 0;

UPDATE chats SET
  title = folded(coalesce(json_extract(CAST(summary AS TEXT), '$.title'), '')),
  labels = coalesce(json_extract(CAST(summary AS TEXT), '$.labels'), '')
WHERE json_valid(CAST(summary AS TEXT));

UPDATE chats SET changed = numbered.number
FROM (SELECT no, row_number() OVER (ORDER BY updated_ms, no) AS number FROM chats) AS numbered
WHERE numbered.no = chats.no;

CREATE INDEX chats_changed ON chats (changed);
CREATE INDEX chats_listed ON chats (updated_ms, id);

-- Claims are fair between owners: these are counted.
CREATE INDEX chats_held ON chats (owner) WHERE worker <> '';

-- What was answered to requests that may be repeated; kept for a day.
CREATE TABLE answers (
  no      INTEGER PRIMARY KEY,
  owner   TEXT    NOT NULL,
  key     TEXT    NOT NULL,
  request TEXT    NOT NULL,
  status  INTEGER NOT NULL,
  body    BLOB    NOT NULL,
  time_ms INTEGER NOT NULL,
  UNIQUE (owner, key)
);
CREATE INDEX answers_by_time ON answers (time_ms);

-- Live text for readers in other processes, until the message is in the log. Nothing in it is worth a sync.
CREATE TABLE deltas (
  chat_no INTEGER NOT NULL,
  epoch   INTEGER NOT NULL,
  turn    INTEGER NOT NULL,
  number  INTEGER NOT NULL,
  payload BLOB    NOT NULL,
  PRIMARY KEY (chat_no, epoch, turn, number)
) WITHOUT ROWID;
