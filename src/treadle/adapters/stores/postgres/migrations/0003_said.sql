-- What was said, without case, in parts of a chat: what searches look through. A cache, caught up when somebody searches:
-- emptied by a crash, it is filled again.
CREATE UNLOGGED TABLE said (
  chat_no bigint  NOT NULL,
  first   integer NOT NULL,
  last    integer NOT NULL,
  text    text    COLLATE "C" NOT NULL,
  PRIMARY KEY (chat_no, first)
);
