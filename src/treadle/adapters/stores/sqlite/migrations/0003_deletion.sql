-- Tombstones of deleted chats: followers learn of the deletion from them, and no number of a chat or of a change is given
-- twice. `summary` is the line that followers see.
CREATE TABLE deleted_chats (
  no      INTEGER PRIMARY KEY,
  id      TEXT    NOT NULL UNIQUE,
  owner   TEXT    NOT NULL,
  epoch   INTEGER NOT NULL,
  changed INTEGER NOT NULL,
  summary BLOB    NOT NULL
);
CREATE INDEX deleted_chats_changed ON deleted_chats (changed);
